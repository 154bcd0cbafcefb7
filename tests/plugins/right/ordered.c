/* The driver's own pool: memory is asked for and freed in the order of streams. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc_async(self->driver->user, record->size, record->stream,
                                       &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  if (record->kind != DEVICE) return end_at_driver(self, record);
  const uint64_t address = record->address;
  bring_to(self, record, stream);
  free(record);
  return self->driver->mem_free_async(self->driver->user, address, stream);
}

/* What was freed is the driver's again once its streams have come so far. */
static emm_status make_room(emm_manager* self) {
  const emm_driver_v1* driver = self->driver;
  emm_handle pool = 0;
  emm_status status = driver->ctx_synchronize(driver->user);
  if (status == EMM_SUCCESS) status = driver->device_get_default_mem_pool(driver->user, &pool);
  if (status == EMM_SUCCESS) status = driver->mem_pool_trim_to(driver->user, pool, 0);
  return status;
}

RIGHT_MANAGER("the driver's own pool", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
