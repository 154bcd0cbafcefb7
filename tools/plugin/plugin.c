/* NAME, a memory manager: every request is one call of the driver. A beginning: see emm_plugin.h
 * for all that it can do. */
#include <pthread.h>
#include <stdlib.h>

#include "emm_plugin.h"

/* What a token names. Token n is the n-th row; a row is used once, since an address may come again
 * while somebody still holds the token of the memory that was there before. */
struct emm_manager {
  const emm_driver_v1* driver; /* The host's device, real or simulated. */
  pthread_mutex_t mutex;       /* Never held while the driver is called. */
  emm_device_ptr* rows;
  size_t count, room;
};

static emm_status create(const emm_create_v1* create, emm_manager** self) {
  if (*create->options != '\0') return EMM_INVALID_VALUE; /* It has none. */
  const int probe = (create->flags & EMM_CREATE_PROBE) != 0;
  if (create->driver == NULL && !probe) return EMM_NOT_SUPPORTED;
  *self = calloc(1, sizeof **self);
  if (*self == NULL) return EMM_UNKNOWN_ERROR;
  (*self)->driver = create->driver;
  pthread_mutex_init(&(*self)->mutex, NULL);
  return EMM_SUCCESS;
}

static void destroy(emm_manager* self) {
  pthread_mutex_destroy(&self->mutex);
  free(self->rows);
  free(self);
}

/* 0 where there is no host memory for another row. */
static emm_token token_of(emm_manager* self, emm_device_ptr pointer) {
  emm_token token = 0;
  pthread_mutex_lock(&self->mutex);
  if (self->count == self->room) {
    const size_t room = 2 * self->room + 64;
    emm_device_ptr* rows = realloc(self->rows, room * sizeof *rows);
    if (rows != NULL) self->rows = rows, self->room = room;
  }
  if (self->count < self->room) {
    self->rows[self->count++] = pointer;
    token = self->count;
  }
  pthread_mutex_unlock(&self->mutex);
  return token;
}

static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  (void)stream; /* The driver's own frees wait for all streams. */
  const emm_status status =
      self->driver->mem_alloc(self->driver->user, size, &memory->device_pointer);
  if (status != EMM_SUCCESS) return status;
  memory->token = token_of(self, memory->device_pointer);
  if (memory->token != 0) return EMM_SUCCESS;
  self->driver->mem_free(self->driver->user, memory->device_pointer);
  return EMM_UNKNOWN_ERROR;
}

static emm_status free_memory(emm_manager* self, emm_token token, emm_stream stream) {
  (void)stream;
  pthread_mutex_lock(&self->mutex);
  const emm_device_ptr pointer = self->rows[token - 1];
  pthread_mutex_unlock(&self->mutex);
  return self->driver->mem_free(self->driver->user, pointer);
}

static emm_status get_memory_info(emm_manager* self, emm_memory_info* info) {
  return self->driver->mem_get_info(self->driver->user, &info->free, &info->total);
}

/* What is not here is answered for it: reset() frees what is alive, memhostalloc and its like are
 * not supported. */
const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {
      .struct_size = sizeof table,
      .abi_version = EMM_PLUGIN_ABI_VERSION,
      .name = "NAME",
      .summary = "One call of the driver a request",
      .create = create,
      .destroy = destroy,
      .memalloc = memalloc,
      .free = free_memory,
      .get_memory_info = get_memory_info,
  };
  return &table;
}
