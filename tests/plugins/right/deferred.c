/* Frees wait until a hundred of them do, or a flush, or until memory is out. */
#include <stdint.h>

struct own {
  struct record *oldest, *youngest;
  uint64_t count, bytes;
};
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  uint64_t count = 0, bytes = 0;
  for (;;) {
    lock(self);
    struct record* record = self->deferrals == 0 ? self->own.oldest : NULL;
    if (record != NULL) {
      self->own.oldest = record->next;
      if (record->next == NULL) self->own.youngest = NULL;
      --self->own.count;
      self->own.bytes -= record->size;
    }
    unlock(self);
    if (record == NULL) break;
    ++count;
    bytes += record->size;
    const emm_status status = end_at_driver(self, record);
    if (first == EMM_SUCCESS) first = status;
  }
  if (count > 0 && self->host != NULL && self->host->flushed != NULL)
    self->host->flushed(self->host->user, count, bytes);
  return first;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind == REGION) return end_at_driver(self, record); /* It can be pinned again. */
  if (self->host != NULL && self->host->pending_added != NULL)
    self->host->pending_added(self->host->user, record->kind == HOST ? "mem_free_host" : "mem_free",
                              record->size);
  lock(self);
  record->next = NULL;
  if (self->own.youngest != NULL)
    self->own.youngest->next = record;
  else
    self->own.oldest = record;
  self->own.youngest = record;
  self->own.bytes += record->size;
  const bool is_full = ++self->own.count > 100;
  unlock(self);
  if (is_full) tell_of_failure(self, make_room(self));
  return EMM_SUCCESS;
}

static void fill_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  lock(self);
  answer->pending_count = self->own.count;
  answer->pending_bytes = self->own.bytes;
  unlock(self);
}

static void full_state(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

RIGHT_MANAGER("a hundred frees wait", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_ipc_handle, .reset = reset, .defer_cleanup = defer_cleanup,
              .end_defer_cleanup = end_defer_cleanup, .flush = make_room, .state = full_state)
