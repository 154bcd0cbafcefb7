/* One allocation of the driver a request; there is nothing to flush or to trim, and it says so. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static emm_status flush(emm_manager* self) {
  (void)self;
  return EMM_NOT_SUPPORTED;
}

static emm_status trim(emm_manager* self, uint64_t keep) {
  (void)self;
  (void)keep;
  return EMM_NOT_SUPPORTED;
}

RIGHT_MANAGER("flush and trim are not supported", RIGHT_HOST_SLOTS,
              .get_memory_info = get_memory_info, .get_ipc_handle = get_ipc_handle, .reset = reset,
              .flush = flush, .trim = trim, .state = state)
