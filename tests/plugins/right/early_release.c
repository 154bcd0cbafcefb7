/* Every request is physical memory of its own, whose handle is released as soon as it is mapped:
 * the mapping keeps the memory alive. The last few mappings are kept idle for requests of their
 * size. */
#include <stdint.h>

enum { kKept = 8 };
struct record;
struct own {
  struct record* kept[kKept];
  uint64_t reserved;
};
#include "base.h"

static emm_status unmap(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  const emm_status status = driver->mem_unmap(driver->user, record->address, record->held);
  const emm_status freed = driver->mem_address_free(driver->user, record->address, record->held);
  lock(self);
  self->own.reserved -= record->held;
  unlock(self);
  free(record);
  return status == EMM_SUCCESS ? freed : status;
}

/* Answers an idle mapping of `held` bytes, or of any size where `held` is 0. */
static struct record* take_kept(emm_manager* self, uint64_t held) {
  struct record* found = NULL;
  lock(self);
  for (int i = 0; i < kKept && found == NULL; ++i) {
    if (self->own.kept[i] == NULL || (held != 0 && self->own.kept[i]->held != held)) continue;
    found = self->own.kept[i];
    self->own.kept[i] = NULL;
  }
  unlock(self);
  return found;
}

static emm_status map(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  emm_handle handle = 0;
  emm_status status = driver->mem_create(driver->user, record->held, &handle);
  if (status != EMM_SUCCESS) return status;
  status = driver->mem_address_reserve(driver->user, record->held, 0, 0, &record->address);
  if (status != EMM_SUCCESS) {
    tell_of_failure(self, driver->mem_release(driver->user, handle));
    return status;
  }
  status = driver->mem_map(driver->user, record->address, record->held, 0, handle);
  tell_of_failure(self, driver->mem_release(driver->user, handle));
  const bool is_mapped = status == EMM_SUCCESS;
  if (is_mapped) status = driver->mem_set_access(driver->user, record->address, record->held, 3);
  if (status == EMM_SUCCESS) return status;
  if (is_mapped)
    tell_of_failure(self, driver->mem_unmap(driver->user, record->address, record->held));
  tell_of_failure(self, driver->mem_address_free(driver->user, record->address, record->held));
  return status;
}

static emm_status take(emm_manager* self, struct record* record) {
  uint64_t page = 0;
  emm_status status = self->driver->mem_get_allocation_granularity(self->driver->user, &page);
  if (status != EMM_SUCCESS) return status;
  record->held = round_up(record->size, page);
  struct record* kept = take_kept(self, record->held);
  if (kept != NULL) {
    record->address = kept->address;
    free(kept);
    return EMM_SUCCESS;
  }
  status = map(self, record);
  if (status != EMM_SUCCESS) return status;
  lock(self);
  self->own.reserved += record->held;
  unlock(self);
  return EMM_SUCCESS;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  /* Neither an unmap nor the next owner waits for the work. */
  wait_for_work(self);
  lock(self);
  for (int i = 0; i < kKept && !self->is_unordered; ++i) {
    if (self->own.kept[i] != NULL) continue;
    self->own.kept[i] = record;
    unlock(self);
    return EMM_SUCCESS;
  }
  unlock(self);
  return unmap(self, record);
}

static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (struct record* kept = take_kept(self, 0); kept != NULL; kept = take_kept(self, 0)) {
    const emm_status status = unmap(self, kept);
    if (first == EMM_SUCCESS) first = status;
  }
  return first;
}

static void fill_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  lock(self);
  answer->reserved_bytes = self->own.reserved;
  unlock(self);
}

static void full_state(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

RIGHT_MANAGER("mappings whose handles are released at once", RIGHT_HOST_SLOTS,
              .get_memory_info = get_memory_info, .reset = reset, .state = full_state)
