/* What was freed is kept for the next request that it is large enough for, until a reset, a trim,
 * or until memory is out. Nothing is cut or joined. */
struct record;
struct own {
  struct record* kept;
};
#define KEEPS_WHAT_IS_FREED
#include "base.h"

static emm_status take(emm_manager* self, struct record* record) {
  lock(self);
  struct record** best = NULL;
  for (struct record** link = &self->own.kept; *link != NULL; link = &(*link)->next) {
    if ((*link)->held >= record->size && (best == NULL || (*link)->held < (*best)->held))
      best = link;
  }
  struct record* found = best != NULL ? *best : NULL;
  if (found != NULL) *best = found->next;
  unlock(self);
  if (found == NULL) {
    record->held = round_up(record->size, 64 * KIB);
    return self->driver->mem_alloc(self->driver->user, record->held, &record->address);
  }
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  if (status != EMM_SUCCESS) {
    (void)keep(self, found);
    return status;
  }
  record->held = found->held;
  record->address = found->address;
  free(found);
  return EMM_SUCCESS;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* Whoever takes it waits for all work. */
  if (record->kind != DEVICE) return end_at_driver(self, record);
  return keep(self, record);
}

/* Frees what is kept, the latest first, until no more than `keep` bytes are. */
static emm_status trim(emm_manager* self, uint64_t keep) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    uint64_t kept = 0;
    lock(self);
    for (const struct record* one = self->own.kept; one != NULL; one = one->next) kept += one->held;
    struct record* record = kept > keep ? self->own.kept : NULL;
    if (record != NULL) self->own.kept = record->next;
    unlock(self);
    if (record == NULL) return first;
    const emm_status status = end_at_driver(self, record);
    if (first == EMM_SUCCESS) first = status;
  }
}

static emm_status make_room(emm_manager* self) { return trim(self, 0); }

RIGHT_MANAGER("what was freed is kept", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state, .trim = trim)
