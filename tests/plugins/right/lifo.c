/* A few frees wait, and are made newest first. What a deferral held back is made by the next free,
 * request or flush after it. */
#include <stdbool.h>
#include <stdint.h>

struct record;
struct own {
  struct record* newest;
  uint64_t count, bytes;
};
#include "base.h"

/* Makes the frees that wait until no more than `most` do. */
static emm_status make_frees(emm_manager* self, uint64_t most) {
  emm_status first = EMM_SUCCESS;
  uint64_t count = 0, bytes = 0;
  for (;;) {
    lock(self);
    const bool goes_on = self->deferrals == 0 && self->own.count > most;
    struct record* record = goes_on ? self->own.newest : NULL;
    if (record != NULL) {
      self->own.newest = record->next;
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

static emm_status make_room(emm_manager* self) { return make_frees(self, 0); }

static emm_status take(emm_manager* self, struct record* record) {
  tell_of_failure(self, make_frees(self, 3));
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind == REGION) return end_at_driver(self, record); /* It can be pinned again. */
  if (self->host != NULL && self->host->pending_added != NULL)
    self->host->pending_added(self->host->user, record->kind == HOST ? "mem_free_host" : "mem_free",
                              record->size);
  lock(self);
  record->next = self->own.newest;
  self->own.newest = record;
  ++self->own.count;
  self->own.bytes += record->size;
  unlock(self);
  tell_of_failure(self, make_frees(self, 3));
  return EMM_SUCCESS;
}

static void full_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  if (answer->struct_size < sizeof *answer) return; /* An older host's. */
  lock(self);
  answer->pending_count = self->own.count;
  answer->pending_bytes = self->own.bytes;
  unlock(self);
}

RIGHT_MANAGER("newest frees first", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_ipc_handle, .reset = reset, .defer_cleanup = defer_cleanup,
              .end_defer_cleanup = end_defer_cleanup, .flush = make_room, .state = full_state)
