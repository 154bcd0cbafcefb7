/* 300 MiB at most, and 100 MiB a block; one allocation of the driver a request. */
#include <stdint.h>

struct own {
  uint64_t held;
};
#include "base.h"

static const uint64_t kCap = 300 * MIB, kLargest = 100 * MIB;

static emm_status take(emm_manager* self, struct record* record) {
  lock(self);
  const bool fits = record->size <= kLargest && self->own.held <= kCap - record->size;
  if (fits) self->own.held += record->size;
  unlock(self);
  if (!fits) return EMM_OUT_OF_MEMORY;
  const emm_status status =
      self->driver->mem_alloc(self->driver->user, record->size, &record->address);
  if (status == EMM_SUCCESS) return status;
  lock(self);
  self->own.held -= record->size;
  unlock(self);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  const uint64_t held = record->kind == DEVICE ? record->size : 0;
  const emm_status status = end_at_driver(self, record);
  lock(self);
  if (status == EMM_SUCCESS) self->own.held -= held;
  unlock(self);
  return status;
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

/* 300 MiB at most, and 100 MiB a block; one allocation of the driver a request. */
static emm_status get_capped_info(emm_manager* self, emm_memory_info* info) {
  const emm_status status = get_memory_info(self, info);
  if (status != EMM_SUCCESS) return status;
  lock(self);
  const uint64_t left = kCap - self->own.held;
  unlock(self);
  if (info->free > left) info->free = left;
  if (info->total > kCap) info->total = kCap;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("300 MiB at most, 100 MiB a block", RIGHT_HOST_SLOTS,
              .get_memory_info = get_capped_info, .reset = reset, .state = state)
