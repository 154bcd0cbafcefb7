/* Every request takes whole pages of 2 MiB. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, round_up(record->size, 2 * MIB),
                                 &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("2 MiB at least for each request", RIGHT_HOST_SLOTS,
              .get_memory_info = get_memory_info, .get_ipc_handle = get_ipc_handle, .reset = reset,
              .state = state)
