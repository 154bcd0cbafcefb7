/* New memory is filled with 0xCD, and freed memory with 0xDD, so that wrong uses show. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  emm_status status = driver->mem_alloc(driver->user, record->size, &record->address);
  if (status != EMM_SUCCESS) return status;
  status =
      driver->memset_d8_async(driver->user, record->address, 0xCD, record->size, record->stream);
  if (status != EMM_SUCCESS) tell_of_failure(self, driver->mem_free(driver->user, record->address));
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  (void)stream;
  if (record->kind == DEVICE && driver->ctx_synchronize(driver->user) == EMM_SUCCESS)
    (void)driver->memset_d8(driver->user, record->address, 0xDD, record->size);
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("memory is poisoned", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_ipc_handle, .reset = reset, .state = state)
