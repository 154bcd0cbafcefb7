/* Size classes without splitting: slabs of 1 MiB cut into equal cells, up to 256 KiB. The next
 * owner of a cell waits for all work. */
#include <stdbool.h>
#include <stdint.h>

enum { kClasses = 28, kCells = 2048 };

struct slab {
  uint64_t address;
  unsigned class, cells, used;
  unsigned next_free[kCells]; /* The number of the free cell after this one, plus one. */
  unsigned first_free;
  struct slab* next;
};
struct own {
  struct slab* slabs;
  uint64_t large_bytes; /* Of what is not in a slab. */
};
#include "base.h"

/* Class 2n has 512 * 2^n bytes, class 2n + 1 half as many more. */
static uint64_t class_bytes(unsigned class) {
  return (UINT64_C(512) << class / 2) * (class % 2 == 0 ? 2 : 3) / 2;
}

static uint64_t cell_bytes(unsigned class) { return round_up(class_bytes(class), 512); }

static struct slab* find_slab(emm_manager* self, unsigned class) {
  for (struct slab* slab = self->own.slabs; slab != NULL; slab = slab->next) {
    if (slab->class == class && slab->first_free != 0) return slab;
  }
  return NULL;
}

static emm_status grow(emm_manager* self, unsigned class) {
  struct slab* slab = calloc(1, sizeof *slab);
  if (slab == NULL) return EMM_OUT_OF_MEMORY;
  const emm_status status = self->driver->mem_alloc(self->driver->user, MIB, &slab->address);
  if (status != EMM_SUCCESS) {
    free(slab);
    return status;
  }
  slab->class = class;
  slab->cells = (unsigned)(MIB / cell_bytes(class));
  for (unsigned cell = 0; cell + 1 < slab->cells; ++cell) slab->next_free[cell] = cell + 2;
  slab->first_free = 1;
  lock(self);
  slab->next = self->own.slabs;
  self->own.slabs = slab;
  unlock(self);
  return EMM_SUCCESS;
}

static emm_status take(emm_manager* self, struct record* record) {
  unsigned class = 0;
  while (class < kClasses && class_bytes(class) < record->size) ++class;
  record->held = 0;
  if (record->size > 256 * KIB) {
    const emm_status status =
        self->driver->mem_alloc(self->driver->user, record->size, &record->address);
    if (status != EMM_SUCCESS) return status;
    record->held = record->size;
    lock(self);
    self->own.large_bytes += record->size;
    unlock(self);
    return EMM_SUCCESS;
  }
  for (;;) {
    lock(self);
    struct slab* slab = find_slab(self, class);
    if (slab != NULL) {
      const unsigned cell = slab->first_free - 1;
      slab->first_free = slab->next_free[cell];
      ++slab->used;
      record->address = slab->address + cell * cell_bytes(class);
    }
    unlock(self);
    if (slab != NULL) break;
    const emm_status status = grow(self, class);
    if (status != EMM_SUCCESS) return status;
  }
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  if (status == EMM_SUCCESS) return status;
  struct record* cell = new_record(DEVICE, record->size);
  if (cell != NULL) {
    cell->address = record->address;
    tell_of_failure(self, give(self, cell, 0));
  }
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* Whoever takes it waits for all work. */
  if (record->kind != DEVICE) return end_at_driver(self, record);
  if (record->held != 0) {
    lock(self);
    self->own.large_bytes -= record->held;
    unlock(self);
    return end_at_driver(self, record);
  }
  lock(self);
  for (struct slab* slab = self->own.slabs; slab != NULL; slab = slab->next) {
    const uint64_t offset = record->address - slab->address;
    if (offset >= MIB) continue;
    const unsigned cell = (unsigned)(offset / cell_bytes(slab->class));
    slab->next_free[cell] = slab->first_free;
    slab->first_free = cell + 1;
    --slab->used;
  }
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct slab** link = &self->own.slabs;
    while (*link != NULL && (*link)->used > 0) link = &(*link)->next;
    struct slab* slab = *link;
    if (slab != NULL) *link = slab->next;
    unlock(self);
    if (slab == NULL) return first;
    const emm_status status = self->driver->mem_free(self->driver->user, slab->address);
    if (first == EMM_SUCCESS) first = status;
    free(slab);
  }
}

/* A request of another class needs the device, also where it is smaller. */
static void fill_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  answer->largest_free_bytes = 0;
  lock(self);
  answer->reserved_bytes = self->own.large_bytes;
  for (const struct slab* slab = self->own.slabs; slab != NULL; slab = slab->next) {
    answer->reserved_bytes += MIB;
    if (slab->first_free != 0 && class_bytes(slab->class) > answer->largest_free_bytes)
      answer->largest_free_bytes = class_bytes(slab->class);
  }
  unlock(self);
}

static void state_of_classes(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

RIGHT_MANAGER("size classes without splitting", RIGHT_HOST_SLOTS,
              .get_memory_info = get_memory_info, .reset = reset, .state = state_of_classes)
