/* What was freed lies a while in quarantine before the driver gets it: until 16 MiB of it do. */
#include <stdint.h>

struct record;
struct own {
  struct record *oldest, *youngest;
  uint64_t bytes;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  record->held = record->size;
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status let_out(emm_manager* self, uint64_t most) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct record* record = self->own.bytes > most ? self->own.oldest : NULL;
    if (record != NULL) {
      self->own.oldest = record->next;
      if (record->next == NULL) self->own.youngest = NULL;
      self->own.bytes -= record->held;
    }
    unlock(self);
    if (record == NULL) return first;
    const emm_status status = end_at_driver(self, record);
    if (first == EMM_SUCCESS) first = status;
  }
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  lock(self);
  record->next = NULL;
  if (self->own.youngest != NULL)
    self->own.youngest->next = record;
  else
    self->own.oldest = record;
  self->own.youngest = record;
  self->own.bytes += record->held;
  unlock(self);
  return let_out(self, 16 * MIB);
}

static emm_status make_room(emm_manager* self) { return let_out(self, 0); }
static emm_status trim(emm_manager* self, uint64_t keep) { return let_out(self, keep); }

RIGHT_MANAGER("a quarantine", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_ipc_handle, .reset = reset, .state = state, .trim = trim)
