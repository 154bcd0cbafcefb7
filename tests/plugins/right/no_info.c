/* One allocation of the driver a request; it does not tell the device's memory. */
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

RIGHT_MANAGER("no memory information", RIGHT_HOST_SLOTS, .get_ipc_handle = get_ipc_handle,
              .reset = reset)
