/* A pool of device memory behind the plugin ABI, written to be held against the conformance suite:
 * a right manager, and what wrong ones are made from (tests/mutants/abi_wrong.txt, tools/mutate).
 *
 * Requests up to kLargestCut are cut from slabs, best fit first; neighbours that are free are
 * joined. Larger ones are the driver's, one allocation each. A block that was freed carries a
 * fence: an event behind the work that its old owner put on streams. Its next owner's stream waits
 * for the event. Frees that the driver has to make wait in a queue. No driver call is made under
 * the lock.
 */
#define _POSIX_C_SOURCE 200809L
#include <emm_plugin.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static const uint64_t kGranule = 512;         /* Blocks begin and end at multiples of it. */
static const uint64_t kPage = 2 * MIB;        /* What the driver's allocations are made of. */
static const uint64_t kSlab = 4 * MIB;        /* The size of a slab, where nothing is said. */
static const uint64_t kLargestCut = 16 * MIB; /* The largest request that a slab serves. */

static const uint64_t kPendingCount = 10; /* One more pending free makes them all. */

enum { kBins = 64, kBuckets = 1024 };

/* Work that was on streams when a block was freed: what comes after `event` comes after it. The
 * parts of the block share it. */
struct fence {
  emm_handle event;
  uint32_t users;
  bool has_passed;
  struct fence *before, *after; /* In the order in which they were recorded. */
};

/* Part of a slab, free or handed out. */
struct block {
  struct slab* slab;
  uint64_t address, size;
  bool is_free;
  struct fence* fence;          /* NULL: no work can reach it. */
  struct block *below, *above;  /* Its neighbours in the slab. */
  struct block *before, *after; /* In its bin, while it is free. */
};

/* One allocation of the driver that blocks are cut from. */
struct slab {
  uint64_t address, size;
  uint64_t used; /* Blocks that are not free. */
  struct block* lowest;
  struct slab *before, *after;
};

enum kind { BLOCK, DIRECT, MANAGED, HOST, REGION };

/* What a token names. It is alive, or pending, or in the hands of the one thread that ends it. */
struct record {
  emm_token token;
  enum kind kind;
  uint64_t size; /* As requested. */
  uint64_t held; /* What the driver gave for it alone. */
  uint64_t address;
  void* host;
  struct block* block;
  emm_stream stream;
  unsigned thread; /* Whose per-thread stream it is. */
  struct record *before, *after, *same_bucket;
};

struct list {
  struct record *oldest, *youngest;
};

struct emm_manager {
  const emm_driver_v1* driver;
  const emm_host_v1* host;
  uint64_t max, slab_size;

  pthread_mutex_t making_room; /* Held by the one thread that makes room. No free needs it. */
  pthread_mutex_t mutex; /* Guards all that follows. Nobody holds it in a call of the driver. */

  struct slab* slabs;
  struct block* bins[kBins];
  struct fence *oldest_fence, *youngest_fence;
  struct fence* spare_fences; /* Their events can be recorded again. */
  struct fence unordered;     /* Stands for work that no event could be recorded behind. */
  struct list live, pending;
  struct record* buckets[kBuckets];
  emm_token last_token;
  emm_token last_reset; /* The tokens up to this one were ended by a reset. */
  unsigned deferrals;

  uint64_t total; /* Of the device; 0 before initialize(). */
  uint64_t reserved, live_bytes, live_count;
  uint64_t free_bytes; /* Of free blocks. */
  uint64_t pending_count, pending_bytes;
  uint64_t allocated, refused;
};

/* Errors. */

static _Thread_local char last_words[160];

static emm_status failed(emm_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_words, sizeof last_words, format, arguments);
  va_end(arguments);
  return status;
}

static size_t put_text(const char* text, char* buffer, size_t size) {
  const size_t length = strlen(text);
  if (size > 0) {
    const size_t fits = length < size - 1 ? length : size - 1;
    memcpy(buffer, text, fits);
    buffer[fits] = '\0';
  }
  return length;
}

static size_t last_error(emm_manager* self, char* buffer, size_t size) {
  (void)self;
  return put_text(last_words, buffer, size);
}

/* The mutex knows who holds it: a lock that is taken twice, or ended by who does not hold it, is
 * the pool's own mistake. */
static void lock(emm_manager* self) {
  if (pthread_mutex_lock(&self->mutex) != 0) abort();
}
static void unlock(emm_manager* self) {
  if (pthread_mutex_unlock(&self->mutex) != 0) abort();
}

/* The number of this thread, from 1. */
static unsigned this_thread(void) {
  static pthread_mutex_t numbering = PTHREAD_MUTEX_INITIALIZER;
  static unsigned last_number;
  static _Thread_local unsigned number;
  if (number == 0) {
    pthread_mutex_lock(&numbering);
    number = ++last_number;
    pthread_mutex_unlock(&numbering);
  }
  return number;
}

static uint64_t round_up(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

/* What is cut for a request: eight sizes between one power of two and the next, so that blocks
 * that were freed fit again. */
static uint64_t class_size(uint64_t size) {
  uint64_t unit = kGranule;
  while (unit * 16 <= size && unit < MIB / 8) unit *= 2;
  return round_up(size, unit);
}

/* The bin of a size: bin n has the blocks of 2^n granules and more. */
static unsigned bin_of(uint64_t size) {
  unsigned bin = 0;
  for (uint64_t granules = size / kGranule; granules > 1; granules /= 2) ++bin;
  return bin;
}

/* Records: the live ones, in the order in which they were handed out, and by their token. */

static void append(struct list* list, struct record* record) {
  record->before = list->youngest;
  record->after = NULL;
  if (list->youngest != NULL)
    list->youngest->after = record;
  else
    list->oldest = record;
  list->youngest = record;
}

static void take_out(struct list* list, struct record* record) {
  if (record->before != NULL)
    record->before->after = record->after;
  else
    list->oldest = record->after;
  if (record->after != NULL)
    record->after->before = record->before;
  else
    list->youngest = record->before;
}

static struct record* new_record(enum kind kind, uint64_t size) {
  struct record* record = calloc(1, sizeof *record);
  if (record == NULL) return NULL;
  record->kind = kind;
  record->size = size;
  return record;
}

/* What a record counts as live: bytes that the device reaches as its own. */
static uint64_t live_size(const struct record* record) {
  return record->kind == REGION || record->kind == HOST ? 0 : record->size;
}

static emm_status hand_out(emm_manager* self, struct record* record, emm_memory* memory) {
  lock(self);
  record->token = ++self->last_token;
  struct record** bucket = &self->buckets[record->token % kBuckets];
  record->same_bucket = *bucket;
  *bucket = record;
  append(&self->live, record);
  self->live_bytes += live_size(record);

  ++self->live_count;
  ++self->allocated;
  unlock(self);
  memory->token = record->token;
  memory->device_pointer = record->address;
  memory->host_pointer = record->host;
  return EMM_SUCCESS;
}

/* Under the lock. NULL where the token names nothing that is alive. */
static struct record* take_record(emm_manager* self, emm_token token) {
  struct record** link = &self->buckets[token % kBuckets];
  while (*link != NULL && (*link)->token != token) link = &(*link)->same_bucket;
  struct record* record = *link;
  if (record == NULL) return NULL;
  *link = record->same_bucket;
  take_out(&self->live, record);
  self->live_bytes -= live_size(record);
  --self->live_count;

  return record;
}

/* Fences. All of these are called under the lock, unless they say otherwise. */

static void drop_fence(emm_manager* self, struct fence* fence) {
  if (fence == NULL || fence == &self->unordered || --fence->users > 0) return;
  if (fence->before != NULL)
    fence->before->after = fence->after;
  else
    self->oldest_fence = fence->after;
  if (fence->after != NULL)
    fence->after->before = fence->before;
  else
    self->youngest_fence = fence->before;
  fence->after = self->spare_fences;
  self->spare_fences = fence;
}

/* Not under the lock. Answers a fence with an event that is recorded on `stream`, or NULL. */
static struct fence* record_fence(emm_manager* self, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  lock(self);
  struct fence* fence = self->spare_fences;
  if (fence != NULL) self->spare_fences = fence->after;
  unlock(self);
  if (fence == NULL) {
    fence = calloc(1, sizeof *fence);
    if (fence == NULL) return NULL;
    if (driver->event_create(driver->user, &fence->event) != EMM_SUCCESS) {
      free(fence);
      return NULL;
    }
  }
  const bool is_recorded = driver->event_record(driver->user, fence->event, stream) == EMM_SUCCESS;
  lock(self);
  fence->users = 1;
  fence->has_passed = false;
  fence->before = self->youngest_fence;
  fence->after = NULL;
  if (self->youngest_fence != NULL)
    self->youngest_fence->after = fence;
  else
    self->oldest_fence = fence;
  self->youngest_fence = fence;
  if (!is_recorded) drop_fence(self, fence);
  unlock(self);
  return is_recorded ? fence : NULL;
}

/* Not under the lock. Answers what the next owner of a record's memory has to wait for, where it is
 * freed on `stream`: the work of the stream that it was asked for on, and of `stream`. */
static struct fence* fence_behind(emm_manager* self, const struct record* record,
                                  emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  const bool is_nameable = record->stream != 2 || record->thread == this_thread();
  struct fence* own = is_nameable ? record_fence(self, record->stream) : NULL;
  if (own != NULL && record->stream == stream) return own;
  if (own != NULL && driver->stream_wait_event(driver->user, stream, own->event) == EMM_SUCCESS) {
    struct fence* both = record_fence(self, stream);
    if (both != NULL) {
      lock(self);
      drop_fence(self, own);
      unlock(self);
      return both;
    }
  }
  lock(self);
  drop_fence(self, own);
  unlock(self);
  return driver->ctx_synchronize(driver->user) == EMM_SUCCESS ? NULL : &self->unordered;
}

/* Blocks. All of these are called under the lock. */

static void put_in_bin(emm_manager* self, struct block* block) {
  struct block** bin = &self->bins[bin_of(block->size)];
  block->is_free = true;
  block->before = NULL;
  block->after = *bin;
  if (*bin != NULL) (*bin)->before = block;
  *bin = block;
  self->free_bytes += block->size;
}

static void take_from_bin(emm_manager* self, struct block* block) {
  if (block->before != NULL)
    block->before->after = block->after;
  else
    self->bins[bin_of(block->size)] = block->after;
  if (block->after != NULL) block->after->before = block->before;
  block->is_free = false;
  self->free_bytes -= block->size;
}

/* Joins `above`, which is in no bin, to the block below it. */
static void join(struct block* below, struct block* above) {
  below->size += above->size;
  below->above = above->above;
  if (above->above != NULL) above->above->below = below;
  free(above);
}

static bool can_join(const struct block* block) {
  return block != NULL && block->is_free && block->fence == NULL;
}

/* Puts a block that is in no bin into its bin, joined with its free neighbours. */
static void insert_free(emm_manager* self, struct block* block) {
  if (block->fence == NULL && can_join(block->above)) {
    take_from_bin(self, block->above);
    join(block, block->above);
  }
  if (block->fence == NULL && can_join(block->below)) {
    struct block* below = block->below;
    take_from_bin(self, below);
    join(below, block);
    block = below;
  }
  put_in_bin(self, block);
}

static void give_back_block(emm_manager* self, struct block* block, struct fence* fence) {
  --block->slab->used;
  block->fence = fence;
  insert_free(self, block);
}

/* Cuts `block`, which is in no bin, after `size` bytes. The rest is free. Where there is no memory
 * for a block, it stays whole. */
static void split(emm_manager* self, struct block* block, uint64_t size) {
  if (block->size == size) return;
  struct block* rest = calloc(1, sizeof *rest);
  if (rest == NULL) return;
  rest->slab = block->slab;
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->below = block;
  rest->above = block->above;
  if (rest->above != NULL) rest->above->below = rest;
  block->above = rest;
  block->size = size;
  rest->fence = block->fence;
  if (rest->fence != NULL && rest->fence != &self->unordered) ++rest->fence->users;
  insert_free(self, rest);
}

/* Takes the smallest free block that has room for `size` bytes, of those the one whose fence, if it
 * has one, was not waited for. */
static struct block* take_best(emm_manager* self, uint64_t size) {
  for (unsigned bin = bin_of(size); bin < kBins; ++bin) {
    struct block* best = NULL;
    for (struct block* block = self->bins[bin]; block != NULL; block = block->after) {
      if (block->size < size) continue;
      if (best == NULL || block->size < best->size ||
          (block->size == best->size && best->fence != NULL && block->fence == NULL))
        best = block;
    }
    if (best == NULL) continue;
    take_from_bin(self, best);
    ++best->slab->used;
    split(self, best, size);
    return best;
  }
  return NULL;
}

/* Joins what has become free of fences. */
static void join_passed(emm_manager* self) {
  for (struct slab* slab = self->slabs; slab != NULL; slab = slab->after) {
    for (struct block* block = slab->lowest; block != NULL; block = block->above) {
      if (!block->is_free || block->fence == NULL || !block->fence->has_passed) continue;
      drop_fence(self, block->fence);
      block->fence = NULL;
      take_from_bin(self, block);
      struct block* below = block->below;
      insert_free(self, block);
      if (below != NULL && below->above != block) block = below; /* It was joined to that one. */
    }
  }
}

/* Not under the lock. Waits for all fences that there are, and joins the blocks that had them. */
static void settle(emm_manager* self) {
  const emm_driver_v1* driver = self->driver;
  lock(self);
  struct fence* fence = self->oldest_fence;
  while (fence != NULL) {
    ++fence->users; /* It stays in its place while the lock is not held. */
    unlock(self);
    const emm_status status = driver->event_synchronize(driver->user, fence->event);
    lock(self);
    if (status == EMM_SUCCESS) fence->has_passed = true;
    struct fence* next = fence->after;
    drop_fence(self, fence);
    fence = next;
  }
  join_passed(self);
  unlock(self);
}

/* Memory from the driver, and back. None of these is called under the lock. */

/* Asks the driver for `size` bytes, within the cap. */
static emm_status take_from_driver(emm_manager* self, uint64_t size, uint64_t* address) {
  lock(self);
  const bool is_over = self->max != 0 && (size > self->max || self->reserved > self->max - size);
  if (!is_over) self->reserved += size;
  unlock(self);
  if (is_over) return EMM_OUT_OF_MEMORY;
  const emm_status status = self->driver->mem_alloc(self->driver->user, size, address);
  lock(self);
  if (status != EMM_SUCCESS) self->reserved -= size;

  unlock(self);
  return status;
}

static void tell_of_failure(emm_manager* self, emm_status status, const char* words) {
  const emm_host_v1* host = self->host;
  if (host->free_failed != NULL) host->free_failed(host->user, status, words);
}

/* Makes the free of a record at the driver, and ends the record. */
static emm_status end_at_driver(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  emm_status status = EMM_SUCCESS;
  switch (record->kind) {
    case DIRECT:
    case MANAGED:
      status = driver->mem_free(driver->user, record->address);
      break;
    case HOST:
      status = driver->mem_free_host(driver->user, record->host);
      break;
    case REGION:
      status = driver->mem_host_unregister(driver->user, record->host);
      break;
    case BLOCK:
      break;
  }
  lock(self);
  if (status == EMM_SUCCESS) self->reserved -= record->held;
  unlock(self);
  free(record);
  return status;
}

/* Makes the pending frees, oldest first, unless cleanup is deferred. Answers the first failure. */
static emm_status flush_pending(emm_manager* self) {
  const emm_host_v1* host = self->host;
  emm_status first = EMM_SUCCESS;
  uint64_t count = 0, bytes = 0;
  for (;;) {
    lock(self);
    struct record* record = self->deferrals == 0 ? self->pending.oldest : NULL;
    if (record != NULL) {
      take_out(&self->pending, record);
      --self->pending_count;
      self->pending_bytes -= record->size;
    }
    unlock(self);
    if (record == NULL) break;
    ++count;
    bytes += record->size;
    const emm_status status = end_at_driver(self, record);

    if (status == EMM_SUCCESS) continue;
    tell_of_failure(self, status, "a pending free failed");
    if (first == EMM_SUCCESS) first = status;
  }
  if (count > 0 && host->flushed != NULL) host->flushed(host->user, count, bytes);
  return first;
}

/* Queues the free of a record. */
static void defer_free(emm_manager* self, struct record* record) {
  const emm_host_v1* host = self->host;
  if (host->pending_added != NULL)
    host->pending_added(host->user, record->kind == HOST ? "mem_free_host" : "mem_free",
                        record->size);
  lock(self);
  append(&self->pending, record);
  ++self->pending_count;
  self->pending_bytes += record->size;
  unlock(self);
}

/* Makes the pending frees where they are too many. */
static void flush_if_full(emm_manager* self) {
  lock(self);
  const bool is_full = self->pending_count > kPendingCount;
  unlock(self);
  if (is_full) flush_pending(self);
}

/* Under the lock. Takes out a slab that has no used block, if more than `keep` bytes are idle. */
static struct slab* take_idle_slab(emm_manager* self, uint64_t keep) {
  uint64_t idle = 0;
  struct slab* found = NULL;
  for (struct slab* slab = self->slabs; slab != NULL; slab = slab->after) {
    if (slab->used > 0) continue;
    idle += slab->size;
    found = slab;
  }
  if (found == NULL || idle <= keep) return NULL;
  if (found->before != NULL)
    found->before->after = found->after;
  else
    self->slabs = found->after;
  if (found->after != NULL) found->after->before = found->before;
  for (struct block* block = found->lowest; block != NULL;) {
    struct block* next = block->above;
    take_from_bin(self, block);
    drop_fence(self, block->fence); /* The driver's free waits for all work. */
    free(block);
    block = next;
  }
  return found;
}

/* Gives idle slabs back until no more than `keep` bytes are idle. Answers the first failure. */
static emm_status release_idle(emm_manager* self, uint64_t keep) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct slab* slab = take_idle_slab(self, keep);
    unlock(self);

    if (slab == NULL) return first;
    const emm_status status = self->driver->mem_free(self->driver->user, slab->address);
    lock(self);
    if (status == EMM_SUCCESS) self->reserved -= slab->size;

    unlock(self);

    free(slab);
    if (status == EMM_SUCCESS) continue;
    tell_of_failure(self, status, "the free of a slab failed");
    if (first == EMM_SUCCESS) first = status;
  }
}

/* Destroys the events that nobody uses. */
static void destroy_spare_fences(emm_manager* self) {
  lock(self);
  struct fence* spare = self->spare_fences;
  self->spare_fences = NULL;
  unlock(self);
  while (spare != NULL) {
    struct fence* next = spare->after;
    const emm_status status = self->driver->event_destroy(self->driver->user, spare->event);
    if (status != EMM_SUCCESS) tell_of_failure(self, status, "an event could not be destroyed");
    free(spare);
    spare = next;
  }
}

static bool is_deferred(emm_manager* self) {
  lock(self);
  const bool deferred = self->deferrals > 0;
  unlock(self);
  return deferred;
}

/* Makes a slab whose first block has `size` bytes and is used. A smaller slab will do where there
 * is no room for one of the usual size. */
static emm_status grow(emm_manager* self, uint64_t size, struct block** block) {
  struct slab* slab = calloc(1, sizeof *slab);
  struct block* first = calloc(1, sizeof *first);
  emm_status status = EMM_OUT_OF_MEMORY;
  if (slab != NULL && first != NULL) {
    const uint64_t least = round_up(size, kPage);
    slab->size = least > self->slab_size ? least : self->slab_size;
    status = take_from_driver(self, slab->size, &slab->address);
    if (status == EMM_OUT_OF_MEMORY && slab->size > least) {
      slab->size = least;
      status = take_from_driver(self, slab->size, &slab->address);
    }
  }
  if (status != EMM_SUCCESS) {
    free(slab);
    free(first);
    return status;
  }
  *first = (struct block){.slab = slab, .address = slab->address, .size = slab->size};
  slab->lowest = first;
  slab->used = 1;
  lock(self);
  slab->after = self->slabs;
  if (self->slabs != NULL) self->slabs->before = slab;
  self->slabs = slab;

  split(self, first, size);
  unlock(self);
  *block = first;
  return EMM_SUCCESS;
}

/* Makes work that is put on `stream` from now on come after what the block's fence stands for. */
static emm_status order_after(emm_manager* self, struct block* block, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  if (block->fence == NULL) return EMM_SUCCESS;
  const emm_status status =
      block->fence == &self->unordered
          ? driver->ctx_synchronize(driver->user)
          : driver->stream_wait_event(driver->user, stream, block->fence->event);
  lock(self);
  if (status == EMM_SUCCESS) {
    drop_fence(self, block->fence);
    block->fence = NULL;
  } else {
    give_back_block(self, block, block->fence);
  }
  unlock(self);
  return status;
}

static struct block* find_block(emm_manager* self, uint64_t size) {
  lock(self);
  struct block* block = take_best(self, size);
  unlock(self);
  return block;
}

/* Finds a block: a free one, else in a new slab. Where there is no memory, it makes room as it can:
 * it makes the pending frees, waits for fences, so that blocks are joined, and gives idle slabs
 * back. */
static emm_status allocate_block(emm_manager* self, struct record* record) {
  const uint64_t size = class_size(record->size);
  emm_status status = EMM_SUCCESS;
  struct block* block = find_block(self, size);
  if (block == NULL) status = grow(self, size, &block);
  if (status == EMM_OUT_OF_MEMORY) {
    pthread_mutex_lock(&self->making_room);
    flush_pending(self);
    settle(self);
    block = find_block(self, size);
    if (block == NULL) {
      if (!is_deferred(self)) release_idle(self, 0);
      status = grow(self, size, &block);
    }
    pthread_mutex_unlock(&self->making_room);
  }
  if (block == NULL) return status;
  status = order_after(self, block, record->stream);
  record->block = block;
  record->address = block->address;
  return status;
}

static emm_status allocate_direct(emm_manager* self, struct record* record) {
  record->held = round_up(record->size, kPage);
  emm_status status = take_from_driver(self, record->held, &record->address);
  if (status != EMM_OUT_OF_MEMORY) return status;
  pthread_mutex_lock(&self->making_room);
  flush_pending(self);
  if (!is_deferred(self)) release_idle(self, 0);
  status = take_from_driver(self, record->held, &record->address);
  pthread_mutex_unlock(&self->making_room);
  return status;
}

/* The slots. */

static emm_status no_host_memory(void) {
  return failed(EMM_OUT_OF_MEMORY, "there is no host memory for the bookkeeping");
}

static emm_status refuse(emm_manager* self, struct record* record, emm_status status,
                         const char* what) {
  if (status == EMM_OUT_OF_MEMORY) {
    lock(self);
    ++self->refused;
    unlock(self);
  }
  failed(status, "%s of %llu bytes failed with %d", what, (unsigned long long)record->size,
         (int)status);
  free(record);
  return status;
}

static emm_status initialize(emm_manager* self) {
  uint64_t free_now = 0, total = 0;
  lock(self);
  const bool is_known = self->total != 0;
  unlock(self);
  if (is_known) return EMM_SUCCESS;
  const emm_status status = self->driver->mem_get_info(self->driver->user, &free_now, &total);
  if (status != EMM_SUCCESS) return failed(status, "the device does not tell its memory");
  lock(self);
  self->total = total;
  unlock(self);
  return EMM_SUCCESS;
}

static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  if (size == 0) return failed(EMM_INVALID_VALUE, "memalloc of 0 bytes");
  struct record* record = new_record(size > kLargestCut ? DIRECT : BLOCK, size);
  if (record == NULL) return no_host_memory();
  record->stream = stream;
  record->thread = this_thread();
  const emm_status status = size > self->total       ? EMM_OUT_OF_MEMORY
                            : record->kind == DIRECT ? allocate_direct(self, record)
                                                     : allocate_block(self, record);
  if (status != EMM_SUCCESS) return refuse(self, record, status, "memalloc");
  return hand_out(self, record, memory);
}

/* Runs `ask` on a record, and once more after the pending frees where there is no memory. */
static emm_status ask_twice(emm_manager* self, struct record* record, uint32_t flags,
                            emm_status (*ask)(emm_manager*, struct record*, uint32_t)) {
  const emm_status status = ask(self, record, flags);
  if (status != EMM_OUT_OF_MEMORY) return status;
  flush_pending(self);
  return ask(self, record, flags);
}

static emm_status ask_for_host(emm_manager* self, struct record* record, uint32_t flags) {
  return self->driver->mem_host_alloc(self->driver->user, record->size, flags, &record->host);
}
static emm_status ask_for_region(emm_manager* self, struct record* record, uint32_t flags) {
  return self->driver->mem_host_register(self->driver->user, record->host, record->size, flags);
}
static emm_status ask_for_managed(emm_manager* self, struct record* record, uint32_t attach) {
  return self->driver->mem_alloc_managed(self->driver->user, record->size, attach,
                                         &record->address);
}
static emm_status ask_for_address(emm_manager* self, struct record* record) {
  return self->driver->mem_host_get_device_pointer(self->driver->user, record->host,
                                                   &record->address);
}

static emm_status memhostalloc(emm_manager* self, uint64_t size, uint32_t flags,
                               emm_memory* memory) {
  struct record* record = new_record(HOST, size);
  if (record == NULL) return no_host_memory();
  emm_status status = ask_twice(self, record, flags, ask_for_host);
  if (status == EMM_SUCCESS && (flags & EMM_HOST_MAPPED) != 0) {
    status = ask_for_address(self, record);
    if (status != EMM_SUCCESS) {
      const emm_status ended = self->driver->mem_free_host(self->driver->user, record->host);
      if (ended != EMM_SUCCESS) tell_of_failure(self, ended, "memory that cannot be mapped");
    }
  }
  if (status != EMM_SUCCESS) return refuse(self, record, status, "memhostalloc");
  return hand_out(self, record, memory);
}

static emm_status mempin(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                         emm_memory* memory) {
  struct record* record = new_record(REGION, size);
  if (record == NULL) return no_host_memory();
  record->host = pointer;
  emm_status status = ask_twice(self, record, flags, ask_for_region);
  if (status == EMM_SUCCESS && (flags & EMM_PIN_MAPPED) != 0) {
    status = ask_for_address(self, record);
    if (status != EMM_SUCCESS) {
      const emm_status ended = self->driver->mem_host_unregister(self->driver->user, pointer);
      if (ended != EMM_SUCCESS) tell_of_failure(self, ended, "a region that cannot be mapped");
    }
  }
  if (status != EMM_SUCCESS) return refuse(self, record, status, "mempin");
  return hand_out(self, record, memory);
}

static emm_status memallocmanaged(emm_manager* self, uint64_t size, uint32_t attach,
                                  emm_memory* memory) {
  struct record* record = new_record(MANAGED, size);
  if (record == NULL) return no_host_memory();
  const emm_status status = ask_twice(self, record, attach, ask_for_managed);
  if (status != EMM_SUCCESS) return refuse(self, record, status, "memallocmanaged");
  record->host = (void*)(uintptr_t)record->address;
  return hand_out(self, record, memory);
}

/* Ends what a record names. A region is unpinned at once, so that it can be pinned again. */
static emm_status end_record(emm_manager* self, struct record* record, emm_stream stream) {
  if (record->kind == BLOCK) {
    struct fence* fence = fence_behind(self, record, stream);
    lock(self);
    give_back_block(self, record->block, fence);
    unlock(self);
    free(record);
    return EMM_SUCCESS;
  }
  if (record->kind == REGION) return end_at_driver(self, record);
  defer_free(self, record);
  return EMM_SUCCESS;
}

static emm_status give_back(emm_manager* self, emm_token token, emm_stream stream) {
  lock(self);
  struct record* record = take_record(self, token);
  const bool is_late = record == NULL && token <= self->last_reset;
  unlock(self);
  if (is_late) return EMM_SUCCESS;
  if (record == NULL) return failed(EMM_INVALID_VALUE, "free: nothing alive has that token");
  const emm_status status = end_record(self, record, stream);
  flush_if_full(self);
  if (status != EMM_SUCCESS) return failed(status, "free failed with %d", (int)status);
  return EMM_SUCCESS;
}

static emm_status get_ipc_handle(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                                 emm_ipc_handle* handle) {
  uint64_t base = 0;
  int32_t pci[3];
  lock(self);
  for (struct record* record = self->live.oldest; record != NULL; record = record->after) {
    if (record->kind != BLOCK && record->kind != DIRECT) continue;
    if (pointer < record->address || pointer - record->address > record->size) continue;
    if (size > record->size - (pointer - record->address)) continue;
    base = record->kind == BLOCK ? record->block->slab->address : record->address;
  }
  unlock(self);
  if (base == 0) return failed(EMM_INVALID_VALUE, "get_ipc_handle: no live memory is there");
  const emm_status status =
      self->driver->ipc_get_mem_handle(self->driver->user, base, handle->bytes);
  if (status != EMM_SUCCESS) return failed(status, "get_ipc_handle failed with %d", (int)status);
  self->driver->device_identity(self->driver->user, pci);
  handle->offset = pointer - base;
  handle->pci_domain_id = pci[0];
  handle->pci_bus_id = pci[1];
  handle->pci_device_id = pci[2];
  return EMM_SUCCESS;
}

/* What is free: what the device has, and the free blocks. */
static emm_status get_memory_info(emm_manager* self, emm_memory_info* info) {
  uint64_t free_now = 0, total = 0;
  const emm_status status = self->driver->mem_get_info(self->driver->user, &free_now, &total);
  if (status != EMM_SUCCESS) return failed(status, "get_memory_info failed with %d", (int)status);
  lock(self);
  if (self->max != 0) {
    const uint64_t left = self->max > self->reserved ? self->max - self->reserved : 0;
    if (free_now > left) free_now = left;
    if (total > self->max) total = self->max;
  }
  info->free = free_now + self->free_bytes;
  unlock(self);
  if (info->free > total) info->free = total;
  info->total = total;
  return EMM_SUCCESS;
}

/* Ends all memory. What is freed inside a deferral waits for its end. */
static void reset(emm_manager* self) {
  lock(self);
  struct record* record = self->live.oldest;
  self->live = (struct list){NULL, NULL};
  memset(self->buckets, 0, sizeof self->buckets);
  self->last_reset = self->last_token;
  self->live_bytes = self->live_count = 0;
  unlock(self);
  while (record != NULL) {
    struct record* next = record->after;
    const emm_status status = end_record(self, record, record->stream);
    if (status != EMM_SUCCESS) tell_of_failure(self, status, "a region could not be unpinned");
    record = next;
  }
  if (is_deferred(self)) return;
  flush_pending(self);
  release_idle(self, 0);
  destroy_spare_fences(self);
}

static void defer_cleanup(emm_manager* self) {
  lock(self);
  ++self->deferrals;
  unlock(self);
}

static void end_defer_cleanup(emm_manager* self) {
  lock(self);
  if (self->deferrals > 0) --self->deferrals;
  unlock(self);
}

static int32_t interface_version(emm_manager* self) {
  (void)self;
  return 1;
}

static emm_status flush(emm_manager* self) {
  const emm_status status = flush_pending(self);
  return status == EMM_SUCCESS ? status : failed(status, "a pending free failed");
}

static uint64_t largest_free(emm_manager* self) { /* Under the lock. */
  uint64_t largest = 0;
  for (unsigned bin = kBins; bin-- > 0 && largest == 0;) {
    for (struct block* block = self->bins[bin]; block != NULL; block = block->after) {
      if (block->size > largest) largest = block->size;
    }
  }
  return largest;
}

static void fill_state(emm_manager* self, emm_state* answer) {
  lock(self);
  answer->live_bytes = self->live_bytes;
  answer->reserved_bytes = self->reserved;
  answer->largest_free_bytes = largest_free(self);
  answer->pending_count = self->pending_count;
  answer->pending_bytes = self->pending_bytes;
  unlock(self);
}

/* Gives as much of the state as the host has room for. */
static void state(emm_manager* self, emm_state* answer) {
  emm_state whole = {.struct_size = answer->struct_size};
  fill_state(self, &whole);
  memcpy(answer, &whole, whole.struct_size < sizeof whole ? whole.struct_size : sizeof whole);
}

static size_t report(emm_manager* self, char* buffer, size_t size) {
  char text[128];
  lock(self);
  snprintf(text, sizeof text, "%llu allocations, %llu refused\n",
           (unsigned long long)self->allocated, (unsigned long long)self->refused);
  unlock(self);
  return put_text(text, buffer, size);
}

static emm_status trim(emm_manager* self, uint64_t keep) {
  const emm_status status = release_idle(self, keep);
  return status == EMM_SUCCESS ? status : failed(status, "the free of a slab failed");
}

static size_t statistics(emm_manager* self, emm_statistic* numbers, size_t count) {
  lock(self);
  const emm_statistic all[] = {
      {"allocation.all.allocated", self->allocated},
      {"allocation.all.current", self->live_count},
      {"requested_bytes.all.current", self->live_bytes},
      {"reserved_bytes.all.current", self->reserved},
      {"num_ooms", self->refused},
  };
  unlock(self);
  const size_t there_are = sizeof all / sizeof *all;
  for (size_t i = 0; i < there_are && i < count; ++i) numbers[i] = all[i];
  return there_are;
}

/* Reads "max=BYTES,slab=BYTES", where BYTES are as in "48MiB". */
static bool read_options(emm_manager* self, const char* text) {
  while (*text != '\0') {
    uint64_t* into = strncmp(text, "max=", 4) == 0    ? &self->max
                     : strncmp(text, "slab=", 5) == 0 ? &self->slab_size
                                                      : NULL;
    if (into == NULL) return false;
    char* end = NULL;
    *into = strtoull(strchr(text, '=') + 1, &end, 10) * MIB;
    if (*into == 0 || strncmp(end, "MiB", 3) != 0) return false;
    text = end + 3;
    if (*text == ',') ++text;
  }
  self->slab_size = round_up(self->slab_size, kPage);
  return true;
}

static const emm_host_v1 nobody = {.struct_size = sizeof nobody};

static emm_status create(const emm_create_v1* create, emm_manager** answer) {
  const emm_driver_v1* driver = create->driver;
  const bool is_probe = (create->flags & EMM_CREATE_PROBE) != 0;
  if (!is_probe &&
      (driver == NULL || driver->struct_size < offsetof(emm_driver_v1, memset_d8_async)))
    return failed(EMM_NOT_SUPPORTED, "the pool needs a driver table with events");
  emm_manager* self = calloc(1, sizeof *self);
  if (self == NULL) return no_host_memory();
  self->driver = driver;
  self->host = create->host != NULL ? create->host : &nobody;
  self->slab_size = kSlab;
  if (!read_options(self, create->options)) {
    free(self);
    return failed(EMM_INVALID_VALUE, "\"%s\": expected max=BYTES, slab=BYTES", create->options);
  }
  pthread_mutex_init(&self->making_room, NULL);
  pthread_mutexattr_t checks;
  pthread_mutexattr_init(&checks);
  pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&self->mutex, &checks);
  pthread_mutexattr_destroy(&checks);

  *answer = self;
  return EMM_SUCCESS;
}

static void destroy(emm_manager* self) {
  if (self->driver != NULL) {
    self->deferrals = 0;
    reset(self);
  }

  pthread_mutex_destroy(&self->making_room);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {
      .struct_size = sizeof table,
      .abi_version = EMM_PLUGIN_ABI_VERSION,
      .name = "third_pool",
      .summary = "Slabs with best fit; events between streams; deferred frees",
      .options = "max=BYTES, slab=BYTES",
      .create = create,
      .destroy = destroy,
      .last_error = last_error,
      .initialize = initialize,
      .memalloc = memalloc,
      .free = give_back,
      .memhostalloc = memhostalloc,
      .mempin = mempin,
      .memallocmanaged = memallocmanaged,
      .get_ipc_handle = get_ipc_handle,
      .get_memory_info = get_memory_info,
      .reset = reset,
      .defer_cleanup = defer_cleanup,
      .end_defer_cleanup = end_defer_cleanup,
      .interface_version = interface_version,
      .flush = flush,
      .state = state,
      .report = report,
      .trim = trim,
      .statistics = statistics,
  };
  return &table;
}
