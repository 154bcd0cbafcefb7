/* Whoever asks for memory where it is out is told of a free that the device refuses, by the answer
 * of the request. What was freed is kept until then. */
struct record;
struct own {
  struct record* kept;
};
#define ANSWERS_REFUSED_FREES
#define KEEPS_WHAT_IS_FREED
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  return keep(self, record);
}

static emm_status make_room(emm_manager* self) { return end_kept(self); }

RIGHT_MANAGER("a request answers the error of a free", RIGHT_HOST_SLOTS,
              .get_memory_info = get_memory_info, .get_ipc_handle = get_ipc_handle, .reset = reset,
              .defer_cleanup = defer_cleanup, .end_defer_cleanup = end_defer_cleanup,
              .flush = make_room, .state = state)
