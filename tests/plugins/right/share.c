/* 60 % of what the device has free, taken when it begins, is cut and joined. Nothing else is ever
 * asked for, and memory information is of that share. */
#include <stdint.h>

struct hole {
  uint64_t address, size;
  int was_used; /* Work may be pending on a part. */
  struct hole* next;
};
struct own {
  uint64_t base, size, used;
  struct hole* holes; /* By address; none touch. */
};
#include "base.h"

static emm_status initialize_once(emm_manager* self) {
  const emm_driver_v1* driver = self->driver;
  if (self->own.base != 0) return EMM_SUCCESS;
  uint64_t free_bytes = 0, total = 0, base = 0;
  emm_status status = driver->mem_get_info(driver->user, &free_bytes, &total);
  if (status != EMM_SUCCESS) return status;
  const uint64_t size = free_bytes / 10 * 6 / (2 * MIB) * (2 * MIB);
  struct hole* whole = calloc(1, sizeof *whole);
  status =
      size == 0 || whole == NULL ? EMM_OUT_OF_MEMORY : driver->mem_alloc(driver->user, size, &base);
  if (status != EMM_SUCCESS) {
    free(whole);
    return status;
  }
  *whole = (struct hole){.address = base, .size = size};
  lock(self);
  self->own = (struct own){.base = base, .size = size, .holes = whole};
  unlock(self);
  return EMM_SUCCESS;
}

/* Threads wait for the one that takes the share: what it leaves free is not enough for a second. */
static emm_status initialize(emm_manager* self) {
  static pthread_mutex_t initializing = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&initializing);
  const emm_status status = initialize_once(self);
  pthread_mutex_unlock(&initializing);
  return status;
}

/* Cuts the first hole that is large enough. Answers whether there was one. */
static bool cut(emm_manager* self, struct record* record, bool* was_used) {
  struct hole* spare = NULL;
  lock(self);
  struct hole** link = &self->own.holes;
  while (*link != NULL && (*link)->size < record->held) link = &(*link)->next;
  struct hole* hole = *link;
  if (hole != NULL) {
    *was_used = hole->was_used;
    record->address = hole->address;
    hole->address += record->held;
    hole->size -= record->held;
    self->own.used += record->held;
    if (hole->size == 0) {
      *link = hole->next;
      spare = hole;
    }
  }
  unlock(self);
  free(spare);
  return hole != NULL;
}

/* Makes a hole, which is joined with those on either side. */
static void put(emm_manager* self, const struct record* record, struct hole* hole) {
  struct hole* spare[2] = {NULL, NULL};
  *hole = (struct hole){.address = record->address, .size = record->held, .was_used = true};
  lock(self);
  self->own.used -= record->held;
  struct hole *below = NULL, *above = self->own.holes;
  for (; above != NULL && above->address < hole->address; above = above->next) below = above;
  if (above != NULL && hole->address + hole->size == above->address) {
    hole->size += above->size;
    spare[0] = above;
    above = above->next;
  }
  hole->next = above;
  if (below != NULL && below->address + below->size == hole->address) {
    below->size += hole->size;
    below->was_used = true;
    below->next = above;
    spare[1] = hole;
  } else if (below != NULL) {
    below->next = hole;
  } else {
    self->own.holes = hole;
  }
  unlock(self);
  free(spare[0]);
  free(spare[1]);
}

static emm_status take(emm_manager* self, struct record* record) {
  bool was_used = false;
  record->held = round_up(record->size, 256);
  /* A hole is made ready now, so that giving needs no memory. */
  struct hole* hole = calloc(1, sizeof *hole);
  if (hole == NULL || !cut(self, record, &was_used)) {
    free(hole);
    return EMM_OUT_OF_MEMORY;
  }
  record->number = (uintptr_t)hole;
  if (!was_used) return EMM_SUCCESS;
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  if (status != EMM_SUCCESS) put(self, record, hole);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* Whoever takes it waits for all work. */
  if (record->kind != DEVICE) return end_at_driver(self, record);
  put(self, record, (struct hole*)(uintptr_t)record->number);
  free(record);
  return EMM_SUCCESS;
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static emm_status get_info_of_share(emm_manager* self, emm_memory_info* info) {
  lock(self);
  info->total = self->own.size;
  info->free = self->own.size - self->own.used;
  unlock(self);
  return EMM_SUCCESS;
}

static void destroy_share(emm_manager* self) {
  if (self->driver != NULL) {
    self->deferrals = 0;
    reset(self);
    if (self->own.base != 0)
      tell_of_failure(self, self->driver->mem_free(self->driver->user, self->own.base));
  }
  free(self->own.holes); /* The whole share, or none. */
  destroy(self);
}

RIGHT_MANAGER("60 % of the device, cut", RIGHT_HOST_SLOTS, .destroy = destroy_share,
              .initialize = initialize, .get_memory_info = get_info_of_share, .reset = reset,
              .state = state)
