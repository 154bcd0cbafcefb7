/* One allocation of the driver a request, and nothing else: the host frees what a reset ends. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* The driver's free waits for all streams. */
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("one call of the driver a request", .get_memory_info = get_memory_info)
