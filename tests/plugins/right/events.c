/* Blocks of powers of two are kept with an event behind the work of their old owner. */
#include <stdint.h>

struct kept {
  uint64_t address, event;
  struct kept* next;
};
struct own {
  struct kept* classes[64];
};
#define ASKS_EVENTS
#include "base.h"

static unsigned class_of(uint64_t size) {
  unsigned class = 12; /* 4 KiB at least. */
  while (UINT64_C(1) << class < size) ++class;
  return class;
}

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  const unsigned class = class_of(record->size);
  record->held = UINT64_C(1) << class;
  lock(self);
  struct kept* kept = self->own.classes[class];
  if (kept != NULL) self->own.classes[class] = kept->next;
  unlock(self);
  if (kept == NULL) return driver->mem_alloc(driver->user, record->held, &record->address);
  emm_status status = make_ordered(self);
  const bool is_over = kept->event == 0 || driver->event_query(driver->user, kept->event) == 0;
  if (status == EMM_SUCCESS && !is_over)
    status = driver->stream_wait_event(driver->user, record->stream, kept->event);
  if (status != EMM_SUCCESS) {
    lock(self);
    kept->next = self->own.classes[class];
    self->own.classes[class] = kept;
    unlock(self);
    return status;
  }
  record->address = kept->address;
  if (kept->event != 0) tell_of_failure(self, driver->event_destroy(driver->user, kept->event));
  free(kept);
  return EMM_SUCCESS;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  struct kept* kept = record->kind == DEVICE ? calloc(1, sizeof *kept) : NULL;
  if (kept == NULL) return end_at_driver(self, record);
  const unsigned class = class_of(record->held);
  kept->address = record->address;
  if (bring_to(self, record, stream)) {
    emm_handle event = 0;
    if (driver->event_create(driver->user, &event) != EMM_SUCCESS) {
      wait_for_work(self);
    } else if (driver->event_record(driver->user, event, stream) != EMM_SUCCESS) {
      tell_of_failure(self, driver->event_destroy(driver->user, event));
      wait_for_work(self);
    } else {
      kept->event = event;
    }
  }
  lock(self);
  kept->next = self->own.classes[class];
  self->own.classes[class] = kept;
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

static emm_status make_room(emm_manager* self) {
  const emm_driver_v1* driver = self->driver;
  emm_status first = EMM_SUCCESS;
  for (unsigned class = 0; class < 64; ++class) {
    for (;;) {
      lock(self);
      struct kept* kept = self->own.classes[class];
      if (kept != NULL) self->own.classes[class] = kept->next;
      unlock(self);
      if (kept == NULL) break;
      emm_status status = driver->mem_free(driver->user, kept->address);
      if (first == EMM_SUCCESS) first = status;
      if (kept->event != 0) status = driver->event_destroy(driver->user, kept->event);
      if (first == EMM_SUCCESS) first = status;
      free(kept);
    }
  }
  return first;
}

RIGHT_MANAGER("powers of two with events", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
