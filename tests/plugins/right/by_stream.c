/* Ordered by streams without events: what a stream freed serves that stream at once, and another
 * one only after a wait for all work, where the device has no more. */
#include <stdbool.h>
#include <stdint.h>

struct record;
struct own {
  struct record* kept; /* The latest first. */
};
#define KEEPS_WHAT_IS_FREED
#include "base.h"

/* The kept block that fits best; of any stream, or of this one. */
static struct record* find(emm_manager* self, const struct record* asked, bool of_any) {
  struct record** best = NULL;
  lock(self);
  for (struct record** link = &self->own.kept; *link != NULL; link = &(*link)->next) {
    const struct record* one = *link;
    const bool is_its = one->number == 0 && one->stream == asked->stream &&
                        one->is_others == asked->is_others &&
                        (!one->is_others || one->thread == asked->thread);
    if (one->held < asked->size || !(of_any || is_its)) continue;
    if (best == NULL || one->held < (*best)->held) best = link;
  }
  struct record* found = best != NULL ? *best : NULL;
  if (found != NULL) *best = found->next;
  unlock(self);
  return found;
}

static void use(struct record* record, struct record* found) {
  record->held = found->held;
  record->address = found->address;
  free(found);
}

static emm_status take(emm_manager* self, struct record* record) {
  struct record* found = find(self, record, false);
  if (found != NULL) {
    use(record, found);
    return EMM_SUCCESS;
  }
  record->held = round_up(record->size, 4 * KIB);
  emm_status status = self->driver->mem_alloc(self->driver->user, record->held, &record->address);
  if (status != EMM_OUT_OF_MEMORY) return status;
  found = find(self, record, true);
  if (found == NULL) return status;
  status = self->driver->ctx_synchronize(self->driver->user);
  if (status == EMM_SUCCESS) {
    use(record, found);
    return status;
  }
  (void)keep(self, found);
  return status;
}

/* It belongs to the stream that frees it, which waits for the stream of the request. */
static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  if (record->kind != DEVICE) return end_at_driver(self, record);
  lock(self);
  const uint64_t last_reset = self->last_reset;
  unlock(self);
  if (record->token <= last_reset) {
    record->number = 1; /* A reset names no stream: only a wait for all work will do. */
    return keep(self, record);
  }
  (void)bring_to(self, record, stream);
  lock(self);
  record->number = self->is_unordered; /* Stays set: whose wait was refused is not known. */
  unlock(self);
  record->stream = stream;
  record->is_others = stream == 2;
  record->thread = this_thread();
  return keep(self, record);
}

static emm_status make_room(emm_manager* self) { return end_kept(self); }

/* Frees what is kept, until no more than `most` bytes are. */
static emm_status trim(emm_manager* self, uint64_t most) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    uint64_t kept = 0;
    lock(self);
    for (const struct record* one = self->own.kept; one != NULL; one = one->next) kept += one->held;
    struct record* record = kept > most ? self->own.kept : NULL;
    if (record != NULL) self->own.kept = record->next;
    unlock(self);
    if (record == NULL) return first;
    const emm_status status = end_at_driver(self, record);
    if (first == EMM_SUCCESS) first = status;
  }
}

RIGHT_MANAGER("a stream's own memory first", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state, .trim = trim)
