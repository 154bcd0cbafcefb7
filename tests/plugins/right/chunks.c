/* Page-locked memory is cut off chunks of 4 MiB, one for each set of flags. */
#include <stdint.h>

struct chunk {
  char* base;
  uint64_t device, used, live;
};
struct own {
  struct chunk* chunks[8];
};
#include "base.h"

static const uint64_t kChunk = 4 * MIB;

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

/* Whether the chunk is nobody's now. Under the lock. */
static bool leave(struct chunk* chunk) { return --chunk->live == 0; }

static emm_status end_chunk(emm_manager* self, struct chunk* chunk) {
  const emm_status status = self->driver->mem_free_host(self->driver->user, chunk->base);
  free(chunk);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  struct chunk* chunk = record->kind == HOST ? (struct chunk*)(uintptr_t)record->number : NULL;
  if (chunk == NULL) return end_at_driver(self, record);
  free(record);
  lock(self);
  const bool is_last = leave(chunk);
  unlock(self);
  return is_last ? end_chunk(self, chunk) : EMM_SUCCESS;
}

/* Gives up the chunks that are cut from, so that each ends with its last memory. */
static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (unsigned flags = 0; flags < 8; ++flags) {
    lock(self);
    struct chunk* chunk = self->own.chunks[flags];
    self->own.chunks[flags] = NULL;
    const bool is_last = chunk != NULL && leave(chunk);
    unlock(self);
    const emm_status status = is_last ? end_chunk(self, chunk) : EMM_SUCCESS;
    if (first == EMM_SUCCESS) first = status;
  }
  return first;
}

static emm_status cut(emm_manager* self, uint64_t size, uint32_t flags, emm_memory* memory) {
  const emm_driver_v1* driver = self->driver;
  const uint64_t held = round_up(size, 256);
  if (size == 0 || size > kChunk / 2 || flags > 7) return memhostalloc(self, size, flags, memory);
  struct record* record = new_record(HOST, size);
  if (record == NULL) return EMM_OUT_OF_MEMORY;
  struct chunk* fresh = NULL;
  for (;;) {
    lock(self);
    struct chunk* chunk = self->own.chunks[flags];
    struct chunk* old = NULL;
    if (chunk == NULL || chunk->used + held > kChunk) {
      if (fresh == NULL) {
        unlock(self);
        fresh = calloc(1, sizeof *fresh);
        emm_status status = fresh == NULL ? EMM_OUT_OF_MEMORY : EMM_SUCCESS;
        if (status == EMM_SUCCESS) {
          void* base = NULL;
          status = driver->mem_host_alloc(driver->user, kChunk, flags, &base);
          fresh->base = base;
          if (status == EMM_SUCCESS && (flags & EMM_HOST_MAPPED) != 0) {
            status = driver->mem_host_get_device_pointer(driver->user, base, &fresh->device);
            if (status != EMM_SUCCESS)
              tell_of_failure(self, driver->mem_free_host(driver->user, base));
          }
        }
        if (status == EMM_SUCCESS) {
          fresh->live = 1; /* The manager's own. */
          continue;
        }
        free(fresh);
        free(record);
        return status == EMM_OUT_OF_MEMORY ? memhostalloc(self, size, flags, memory) : status;
      }
      if (chunk != NULL && leave(chunk)) old = chunk;
      self->own.chunks[flags] = chunk = fresh;
      fresh = NULL;
    }
    record->host = chunk->base + chunk->used;
    record->address = chunk->device != 0 ? chunk->device + chunk->used : 0;
    record->number = (uintptr_t)chunk;
    chunk->used += held;
    ++chunk->live;
    unlock(self);
    if (old != NULL) tell_of_failure(self, end_chunk(self, old));
    if (fresh != NULL) tell_of_failure(self, end_chunk(self, fresh));
    return hand_out(self, record, memory);
  }
}

RIGHT_MANAGER("page-locked memory in chunks", .memhostalloc = cut, .mempin = mempin,
              .memallocmanaged = memallocmanaged, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
