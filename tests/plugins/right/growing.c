/* One range of addresses, to whose end physical memory is mapped as it is needed, 2 MiB or more at
 * a time, and from whose end it is unmapped. Blocks are cut from it, next fit, and joined. The
 * next owner waits for all work. */
#include <emm_plugin.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

struct part {
  uint64_t offset, size;
  int is_used;
  struct part *before, *after;
};
struct piece { /* What is mapped, the latest first. */
  uint64_t offset, size;
  emm_handle physical;
  struct piece* before;
};
struct own {
  uint64_t base, size, end;       /* Mapped up to `end`. */
  struct part *first, *last, *at; /* Where the last search ended, or NULL. */
  struct piece* pieces;
  pthread_mutex_t growth; /* Held by who maps or unmaps: no free needs it, and no forked child. */
  long process;
};
#include "base.h"

static void join_after(struct own* own, struct part* part) {
  struct part* const next = part->after;
  if (own->at == next) own->at = part;
  part->size += next->size;
  part->after = next->after;
  if (next->after != NULL)
    next->after->before = part;
  else
    own->last = part;
  free(next);
}

/* Under the lock. */
static void set_free(struct own* own, struct part* part) {
  part->is_used = 0;
  if (part->after != NULL && !part->after->is_used) join_after(own, part);
  if (part->before != NULL && !part->before->is_used) join_after(own, part->before);
}

/* Under the lock. */
static struct part* cut(struct own* own, uint64_t size) {
  struct part* const begin = own->at != NULL ? own->at : own->first;
  struct part* part = begin;
  if (begin == NULL) return NULL;
  while (part->is_used || part->size < size) {
    part = part->after != NULL ? part->after : own->first;
    if (part == begin) return NULL;
  }
  own->at = part;
  if (part->size > size) {
    struct part* rest = calloc(1, sizeof *rest);
    if (rest == NULL) return NULL;
    rest->offset = part->offset + size;
    rest->size = part->size - size;
    rest->before = part;
    rest->after = part->after;
    if (rest->after != NULL)
      rest->after->before = rest;
    else
      own->last = rest;
    part->after = rest;
    part->size = size;
  }
  part->is_used = 1;
  return part;
}

/* Maps `bytes` more at the end. Under the lock of growth. */
static emm_status grow(emm_manager* self, uint64_t bytes) {
  const emm_driver_v1* driver = self->driver;
  struct own* own = &self->own;
  uint64_t page = 0;
  emm_status status = driver->mem_get_allocation_granularity(driver->user, &page);
  if (status != EMM_SUCCESS) return status;
  if (own->base == 0) {
    const uint64_t size = UINT64_C(1) << 40;
    status = driver->mem_address_reserve(driver->user, size, 0, 0, &own->base);
    if (status != EMM_SUCCESS) return status;
    own->size = size;
  }
  bytes = round_up(bytes, page);
  if (bytes > own->size - own->end) return EMM_OUT_OF_MEMORY;
  struct piece* piece = calloc(1, sizeof *piece);
  struct part* part = calloc(1, sizeof *part);
  bool is_made = false, is_mapped = false;
  status = piece != NULL && part != NULL ? EMM_SUCCESS : EMM_OUT_OF_MEMORY;
  if (status == EMM_SUCCESS) {
    status = driver->mem_create(driver->user, bytes, &piece->physical);
    is_made = status == EMM_SUCCESS;
  }
  const uint64_t address = own->base + own->end;
  if (status == EMM_SUCCESS) {
    status = driver->mem_map(driver->user, address, bytes, 0, piece->physical);
    is_mapped = status == EMM_SUCCESS;
  }
  if (status == EMM_SUCCESS) status = driver->mem_set_access(driver->user, address, bytes, 3);
  if (status != EMM_SUCCESS) {
    if (is_mapped) tell_of_failure(self, driver->mem_unmap(driver->user, address, bytes));
    if (is_made) tell_of_failure(self, driver->mem_release(driver->user, piece->physical));
    free(piece);
    free(part);
    return status;
  }
  lock(self);
  piece->offset = part->offset = own->end;
  piece->size = part->size = bytes;
  piece->before = own->pieces;
  own->pieces = piece;
  own->end += bytes;
  part->before = own->last;
  if (own->last != NULL)
    own->last->after = part;
  else
    own->first = part;
  own->last = part;
  set_free(own, part);
  unlock(self);
  return EMM_SUCCESS;
}

static emm_status take(emm_manager* self, struct record* record) {
  struct own* own = &self->own;
  if (getpid() != own->process) return EMM_NOT_INITIALIZED;
  record->held = round_up(record->size, 512);
  lock(self);
  struct part* part = cut(own, record->held);
  unlock(self);
  if (part == NULL) {
    pthread_mutex_lock(&own->growth);
    lock(self);
    part = cut(own, record->held); /* Somebody may have mapped more. */
    const uint64_t idle = own->last != NULL && !own->last->is_used ? own->last->size : 0;
    unlock(self);
    emm_status status = EMM_SUCCESS;
    if (part == NULL) status = grow(self, record->held - (idle < record->held ? idle : 0));
    if (part == NULL && status == EMM_SUCCESS) {
      lock(self);
      part = cut(own, record->held);
      unlock(self);
      if (part == NULL) status = EMM_OUT_OF_MEMORY; /* Others were quicker. */
    }
    pthread_mutex_unlock(&own->growth);
    if (status != EMM_SUCCESS) return status;
  }
  record->address = own->base + part->offset;
  record->number = (uint64_t)(uintptr_t)part;
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  if (status == EMM_SUCCESS) return status;
  lock(self);
  set_free(own, part);
  unlock(self);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* Whoever takes it waits for all work. */
  if (record->kind != DEVICE) return end_at_driver(self, record);
  lock(self);
  set_free(&self->own, (struct part*)(uintptr_t)record->number);
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

/* Takes the last piece off the list, if nothing of it is used. Under the lock. */
static struct piece* cut_end(struct own* own) {
  struct piece* const piece = own->pieces;
  struct part* const last = own->last;
  own->at = NULL;
  if (piece == NULL || last == NULL || last->is_used || last->offset > piece->offset) return NULL;
  if (last->offset == piece->offset) {
    own->last = last->before;
    if (own->last != NULL)
      own->last->after = NULL;
    else
      own->first = NULL;
    free(last);
  } else {
    last->size -= piece->size;
  }
  own->pieces = piece->before;
  own->end -= piece->size;
  return piece;
}

static emm_status make_room(emm_manager* self) {
  const emm_driver_v1* driver = self->driver;
  emm_status first = EMM_SUCCESS;
  if (getpid() != self->own.process) return EMM_NOT_INITIALIZED;
  pthread_mutex_lock(&self->own.growth);
  for (;;) {
    lock(self);
    struct piece* piece = cut_end(&self->own);
    unlock(self);
    if (piece == NULL) break;
    wait_for_work(self); /* An unmap waits for nothing. */
    const emm_status one =
        driver->mem_unmap(driver->user, self->own.base + piece->offset, piece->size);
    const emm_status other = driver->mem_release(driver->user, piece->physical);
    if (first == EMM_SUCCESS) first = one != EMM_SUCCESS ? one : other;
    free(piece);
  }
  pthread_mutex_unlock(&self->own.growth);
  return first;
}

static emm_status get_ipc_handle_of_none(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                                         emm_ipc_handle* handle) {
  (void)self, (void)pointer, (void)size, (void)handle;
  return EMM_NOT_SUPPORTED; /* Of mapped memory the driver makes none. */
}

static void fill_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  lock(self);
  answer->reserved_bytes = self->own.end;
  answer->largest_free_bytes = 0;
  for (const struct part* part = self->own.first; part != NULL; part = part->after) {
    if (!part->is_used && part->size > answer->largest_free_bytes)
      answer->largest_free_bytes = part->size;
  }
  unlock(self);
}

static void state_of_range(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

static emm_status create_with_growth(const emm_create_v1* asked, emm_manager** answer) {
  const emm_status status = create(asked, answer);
  if (status != EMM_SUCCESS) return status;
  pthread_mutex_init(&(*answer)->own.growth, NULL);
  (*answer)->own.process = getpid();
  return status;
}

static void destroy_range(emm_manager* self) {
  self->deferrals = 0;
  if (self->driver != NULL) reset(self);
  if (self->own.base != 0)
    tell_of_failure(
        self, self->driver->mem_address_free(self->driver->user, self->own.base, self->own.size));
  pthread_mutex_destroy(&self->own.growth);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "one range that grows and shrinks",
                                            .create = create_with_growth,
                                            .destroy = destroy_range,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_ipc_handle = get_ipc_handle_of_none,
                                            .get_memory_info = get_memory_info,
                                            .reset = reset,
                                            .state = state_of_range};
  return &table;
}
