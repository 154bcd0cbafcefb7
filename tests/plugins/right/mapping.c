/* Every request is physical memory of its own, mapped at an address of its own. */
struct own {
  char nothing;
};
#include "base.h"

/* Undoes the first `steps` of take(). Answers the first failure. */
static emm_status undo(emm_manager* self, struct record* record, int steps) {
  const emm_driver_v1* driver = self->driver;
  emm_status status = EMM_SUCCESS, first = EMM_SUCCESS;
  if (steps > 2) first = driver->mem_unmap(driver->user, record->address, record->held);
  if (steps > 1) status = driver->mem_address_free(driver->user, record->address, record->held);
  if (first == EMM_SUCCESS) first = status;
  if (steps > 0) status = driver->mem_release(driver->user, record->number);
  return first == EMM_SUCCESS ? status : first;
}

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  uint64_t page = 0;
  emm_status status = driver->mem_get_allocation_granularity(driver->user, &page);
  if (status != EMM_SUCCESS) return status;
  record->held = round_up(record->size, page);
  int steps = 0;
  status = driver->mem_create(driver->user, record->held, &record->number);
  if (status == EMM_SUCCESS) {
    ++steps;
    status = driver->mem_address_reserve(driver->user, record->held, 0, 0, &record->address);
  }
  if (status == EMM_SUCCESS) {
    ++steps;
    status = driver->mem_map(driver->user, record->address, record->held, 0, record->number);
  }
  if (status == EMM_SUCCESS) {
    ++steps;
    status = driver->mem_set_access(driver->user, record->address, record->held, 3);
  }
  if (status != EMM_SUCCESS) tell_of_failure(self, undo(self, record, steps));
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  wait_for_work(self); /* An unmap waits for nothing. */
  const emm_status status = undo(self, record, 3);
  free(record);
  return status;
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

RIGHT_MANAGER("a mapping for each request", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
