/* Powers of two that are halved and joined again, in arenas of 16 MiB. A free waits for all work.
 * At most CAP bytes are alive, as they were requested. */
#include <stdint.h>

enum { kLeafBits = 9, kArenaBits = 24, kOrders = kArenaBits - kLeafBits + 1 };
enum { kLeaves = 1 << (kArenaBits - kLeafBits) };

/* Of each leaf at which a block begins, the block's order plus one; negative where it is free. */
struct arena {
  uint64_t address, used;
  signed char orders[kLeaves];
  struct arena* next;
};
struct own {
  struct arena* arenas;
  uint64_t counted; /* Requested bytes of device memory. */
};
#define LATE_FREES_ARE_REFUSED
#ifndef CAP
#define CAP UINT64_MAX
#endif
#include "base.h"

static unsigned order_of(uint64_t size) {
  unsigned order = 0;
  while (UINT64_C(1) << (order + kLeafBits) < size) ++order;
  return order;
}

/* Under the lock. Answers the leaf of a block of `order`, or -1. */
static long cut(struct arena* arena, unsigned order) {
  long best = -1;
  for (long leaf = 0; leaf < kLeaves;) {
    const int order_there = abs(arena->orders[leaf]) - 1;
    if (arena->orders[leaf] < 0 && order_there >= (int)order &&
        (best < 0 || order_there < -arena->orders[best] - 1))
      best = leaf;
    leaf += 1L << order_there;
  }
  if (best < 0) return -1;
  for (int now = -arena->orders[best] - 1; now > (int)order; --now)
    arena->orders[best + (1L << (now - 1))] = (signed char)-now;
  arena->orders[best] = (signed char)(order + 1);
  ++arena->used;
  return best;
}

static void put_back(struct arena* arena, long leaf) {
  int order = arena->orders[leaf] - 1;
  while (order < kOrders - 1) {
    const long buddy = leaf ^ (1L << order);
    if (arena->orders[buddy] != -(order + 1)) break;
    arena->orders[buddy > leaf ? buddy : leaf] = 0;
    leaf = buddy < leaf ? buddy : leaf;
    ++order;
  }
  arena->orders[leaf] = (signed char)-(order + 1);
  --arena->used;
}

static bool cut_anywhere(emm_manager* self, struct record* record) {
  const unsigned order = order_of(record->size);
  lock(self);
  for (struct arena* arena = self->own.arenas; arena != NULL; arena = arena->next) {
    const long leaf = cut(arena, order);
    if (leaf < 0) continue;
    record->address = arena->address + ((uint64_t)leaf << kLeafBits);
    break;
  }
  unlock(self);
  return record->address != 0;
}

static emm_status place(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  record->address = 0;
  if (record->size > UINT64_C(1) << kArenaBits) {
    record->held = record->size;
    return driver->mem_alloc(driver->user, record->size, &record->address);
  }
  const emm_status ordered = make_ordered(self);
  if (ordered != EMM_SUCCESS) return ordered;
  if (cut_anywhere(self, record)) return EMM_SUCCESS;
  struct arena* arena = calloc(1, sizeof *arena);
  if (arena == NULL) return EMM_OUT_OF_MEMORY;
  const emm_status status =
      driver->mem_alloc(driver->user, UINT64_C(1) << kArenaBits, &arena->address);
  if (status != EMM_SUCCESS) {
    free(arena);
    return status;
  }
  arena->orders[0] = -kOrders;
  record->address = arena->address + ((uint64_t)cut(arena, order_of(record->size)) << kLeafBits);
  lock(self);
  arena->next = self->own.arenas;
  self->own.arenas = arena;
  unlock(self);
  return EMM_SUCCESS;
}

static void uncount(emm_manager* self, uint64_t size) {
  lock(self);
  self->own.counted -= size;
  unlock(self);
}

static emm_status take(emm_manager* self, struct record* record) {
  lock(self);
  const bool fits = record->size <= CAP && self->own.counted <= CAP - record->size;
  if (fits) self->own.counted += record->size;
  unlock(self);
  if (!fits) return EMM_OUT_OF_MEMORY;
  const emm_status status = place(self, record);
  if (status != EMM_SUCCESS) uncount(self, record->size);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind == DEVICE) uncount(self, record->size);
  if (record->kind != DEVICE || record->held != 0) return end_at_driver(self, record);
  wait_for_work(self);
  lock(self);
  for (struct arena* arena = self->own.arenas; arena != NULL; arena = arena->next) {
    const uint64_t offset = record->address - arena->address;
    if (offset < UINT64_C(1) << kArenaBits) put_back(arena, (long)(offset >> kLeafBits));
  }
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

/* Gives back the arenas that nobody uses. */
static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct arena** link = &self->own.arenas;
    while (*link != NULL && (*link)->used > 0) link = &(*link)->next;
    struct arena* arena = *link;
    if (arena != NULL) *link = arena->next;
    unlock(self);
    if (arena == NULL) return first;
    const emm_status status = self->driver->mem_free(self->driver->user, arena->address);
    if (first == EMM_SUCCESS) first = status;
    free(arena);
  }
}

RIGHT_MANAGER("buddies", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info, .reset = reset,
              .state = state)
