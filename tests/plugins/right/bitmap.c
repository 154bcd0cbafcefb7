/* Chunks of 4 MiB, whose 64 pieces of 64 KiB are the bits of one word; the search goes on where the
 * last one ended. What is larger is an allocation of its own. The next owner waits for all work. */
#include <stdint.h>

enum { kPiece = 64 << 10, kPieces = 64 };

struct chunk {
  uint64_t address, used; /* A bit for each piece. */
  struct chunk* next;     /* The last one's is the first. */
};
struct own {
  struct chunk* at; /* Where the last search ended. */
  uint64_t large_bytes;
};
#include "base.h"

static uint64_t bits(unsigned count, unsigned first) {
  return (count == kPieces ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << first;
}

/* Under the lock. False: no chunk has as many pieces in a row. */
static bool find(struct own* own, unsigned count, uint64_t* address) {
  struct chunk* const begin = own->at;
  if (begin == NULL) return false;
  do {
    for (unsigned first = 0; first + count <= kPieces; ++first) {
      if ((own->at->used & bits(count, first)) != 0) continue;
      own->at->used |= bits(count, first);
      *address = own->at->address + (uint64_t)first * kPiece;
      return true;
    }
    own->at = own->at->next;
  } while (own->at != begin);
  return false;
}

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  record->held = round_up(record->size, kPiece);
  record->number = record->held > (uint64_t)kPieces * kPiece;
  if (record->number != 0) {
    const emm_status status = driver->mem_alloc(driver->user, record->held, &record->address);
    if (status != EMM_SUCCESS) return status;
    lock(self);
    self->own.large_bytes += record->held;
    unlock(self);
    return status;
  }
  for (;;) {
    lock(self);
    const bool found = find(&self->own, (unsigned)(record->held / kPiece), &record->address);
    unlock(self);
    if (found) break;
    struct chunk* chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL) return EMM_OUT_OF_MEMORY;
    const emm_status status =
        driver->mem_alloc(driver->user, (uint64_t)kPieces * kPiece, &chunk->address);
    if (status != EMM_SUCCESS) {
      free(chunk);
      return status;
    }
    lock(self);
    chunk->next = self->own.at != NULL ? self->own.at->next : chunk;
    if (self->own.at != NULL) self->own.at->next = chunk;
    self->own.at = chunk;
    unlock(self);
  }
  const emm_status status = driver->ctx_synchronize(driver->user);
  if (status == EMM_SUCCESS) return status;
  struct record* pieces = new_record(DEVICE, record->size);
  if (pieces == NULL) return status;
  pieces->address = record->address;
  pieces->held = record->held;
  tell_of_failure(self, give(self, pieces, 0));
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream; /* Whoever takes it waits for all work. */
  if (record->kind != DEVICE) return end_at_driver(self, record);
  if (record->number != 0) {
    lock(self);
    self->own.large_bytes -= record->held;
    unlock(self);
    return end_at_driver(self, record);
  }
  lock(self);
  struct chunk* chunk = self->own.at;
  while (record->address - chunk->address >= (uint64_t)kPieces * kPiece) chunk = chunk->next;
  chunk->used &= ~bits((unsigned)(record->held / kPiece),
                       (unsigned)((record->address - chunk->address) / kPiece));
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

/* Takes a chunk that nothing uses out of the ring. */
static struct chunk* unlink_idle(struct own* own) {
  struct chunk* before = own->at;
  if (before == NULL) return NULL;
  do {
    struct chunk* const chunk = before->next;
    if (chunk->used == 0) {
      before->next = chunk->next;
      own->at = chunk == before ? NULL : before;
      return chunk;
    }
    before = chunk;
  } while (before != own->at);
  return NULL;
}

static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct chunk* const chunk = unlink_idle(&self->own);
    unlock(self);
    if (chunk == NULL) return first;
    const emm_status status = self->driver->mem_free(self->driver->user, chunk->address);
    if (first == EMM_SUCCESS) first = status;
    free(chunk);
  }
}

static void fill_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  lock(self);
  answer->reserved_bytes = self->own.large_bytes;
  const struct chunk* chunk = self->own.at;
  do {
    if (chunk == NULL) break;
    answer->reserved_bytes += (uint64_t)kPieces * kPiece;
    chunk = chunk->next;
  } while (chunk != self->own.at);
  unlock(self);
}

static void state_of_chunks(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

RIGHT_MANAGER("a bit for each 64 KiB", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state_of_chunks)
