/* Page-locked memory that was freed is kept for the next request of its size and flags. What ends
 * inside a deferral waits for its end, and is kept from then on. */
#include <stdint.h>

struct record;
struct own {
  struct record *kept, *waiting;
};
#define KEEPS_WHAT_IS_FREED
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static void push(struct record** list, struct record* record) {
  record->next = *list;
  *list = record;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != HOST) return end_at_driver(self, record);
  lock(self);
  push(self->deferrals > 0 ? &self->own.waiting : &self->own.kept, record);
  unlock(self);
  return EMM_SUCCESS;
}

/* What waits is kept, where nothing is deferred. */
static void end_waiting(emm_manager* self) {
  lock(self);
  while (self->deferrals == 0 && self->own.waiting != NULL) {
    struct record* record = self->own.waiting;
    self->own.waiting = record->next;
    push(&self->own.kept, record);
  }
  unlock(self);
}

static emm_status release_kept(emm_manager* self) {
  end_waiting(self);
  return end_kept(self);
}

static emm_status make_room(emm_manager* self) { return release_kept(self); }

static emm_status flush(emm_manager* self) {
  end_waiting(self);
  return EMM_SUCCESS;
}

/* Ends all, and keeps page-locked memory. */
static void reset_and_keep(emm_manager* self) {
  end_all(self);
  end_waiting(self);
}

static emm_status kept_or_new(emm_manager* self, uint64_t size, uint32_t flags,
                              emm_memory* memory) {
  end_waiting(self);
  lock(self);
  struct record** link = &self->own.kept;
  while (*link != NULL && ((*link)->size != size || (*link)->flags != flags)) link = &(*link)->next;
  struct record* record = *link;
  if (record != NULL) *link = record->next;
  unlock(self);
  if (record == NULL) return memhostalloc(self, size, flags, memory);
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  if (status == EMM_SUCCESS) return hand_out(self, record, memory);
  lock(self);
  push(&self->own.kept, record);
  unlock(self);
  return status;
}

RIGHT_MANAGER("page-locked memory is kept", .memhostalloc = kept_or_new, .mempin = mempin,
              .memallocmanaged = memallocmanaged, .get_memory_info = get_memory_info,
              .get_ipc_handle = get_ipc_handle, .reset = reset_and_keep,
              .defer_cleanup = defer_cleanup, .end_defer_cleanup = end_defer_cleanup,
              .flush = flush, .state = state)
