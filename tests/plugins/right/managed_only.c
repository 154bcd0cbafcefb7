/* Managed memory alone, one allocation of the driver a request. */
struct own {
  char nothing;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  (void)self;
  (void)record;
  return EMM_NOT_SUPPORTED;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("managed memory alone", .memallocmanaged = memallocmanaged,
              .get_memory_info = get_memory_info, .state = state)
