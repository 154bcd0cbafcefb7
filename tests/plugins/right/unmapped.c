/* One allocation of the driver a request; nothing is mapped, or attached to the host. */
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

static emm_status host_unmapped(emm_manager* self, uint64_t size, uint32_t flags,
                                emm_memory* memory) {
  if ((flags & EMM_HOST_MAPPED) != 0) return EMM_NOT_SUPPORTED;
  return memhostalloc(self, size, flags, memory);
}

static emm_status pin_unmapped(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                               emm_memory* memory) {
  if ((flags & EMM_PIN_MAPPED) != 0) return EMM_NOT_SUPPORTED;
  return mempin(self, pointer, size, flags, memory);
}

static emm_status managed_for_all(emm_manager* self, uint64_t size, uint32_t attach,
                                  emm_memory* memory) {
  if (attach == EMM_ATTACH_HOST) return EMM_NOT_SUPPORTED;
  return memallocmanaged(self, size, attach, memory);
}

RIGHT_MANAGER("nothing mapped", .memhostalloc = host_unmapped, .mempin = pin_unmapped,
              .memallocmanaged = managed_for_all, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
