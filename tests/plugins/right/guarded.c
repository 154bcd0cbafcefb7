/* Every request has 4 KiB on either side that nobody gets. */
struct own {
  char nothing;
};
#include "base.h"

static const uint64_t kGuard = 4 * KIB;

static emm_status take(emm_manager* self, struct record* record) {
  const emm_status status =
      self->driver->mem_alloc(self->driver->user, record->size + 2 * kGuard, &record->address);
  if (status == EMM_SUCCESS) record->address += kGuard;
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind == DEVICE) record->address -= kGuard;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static emm_status get_guarded_handle(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                                     emm_ipc_handle* handle) {
  const emm_status status = get_ipc_handle(self, pointer, size, handle);
  if (status == EMM_SUCCESS) handle->offset += kGuard;
  return status;
}

RIGHT_MANAGER("guards around each request", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_guarded_handle, .reset = reset, .state = state)
