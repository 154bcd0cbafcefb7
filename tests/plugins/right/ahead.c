/* A thread asks for the next 8 MiB before anybody needs them. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

struct own {
  pthread_cond_t wanted;
  uint64_t spare; /* 8 MiB that nobody has used, or 0. */
  bool is_wanted, is_busy, ends, runs;
  pthread_t thread;
  pid_t process;
};
#include "base.h"

static const uint64_t kSpare = 8 * MIB;

static void* work(void* argument) {
  emm_manager* self = argument;
  struct own* own = &self->own;
  lock(self);
  while (!own->ends) {
    if (!own->is_wanted) {
      pthread_cond_wait(&own->wanted, &self->mutex);
      continue;
    }
    own->is_wanted = false;
    own->is_busy = true;
    unlock(self);
    uint64_t address = 0;
    const bool is_given =
        self->driver->mem_alloc(self->driver->user, kSpare, &address) == EMM_SUCCESS;
    lock(self);
    own->is_busy = false;
    if (is_given && own->spare == 0) own->spare = address, address = 0;
    unlock(self);
    if (is_given && address != 0)
      tell_of_failure(self, self->driver->mem_free(self->driver->user, address));
    lock(self);
  }
  unlock(self);
  return NULL;
}

static emm_status take(emm_manager* self, struct record* record) {
  struct own* own = &self->own;
  lock(self);
  if (!own->runs && !own->ends && (own->process == 0 || own->process == getpid())) {
    own->process = getpid();
    own->runs = pthread_create(&own->thread, NULL, work, self) == 0;
  }
  if (record->size <= kSpare && record->size > kSpare / 2 && own->spare != 0) {
    record->address = own->spare;
    own->spare = 0;
  }
  if (record->size > kSpare / 2 && record->size <= kSpare) {
    own->is_wanted = true;
    pthread_cond_signal(&own->wanted);
  }
  unlock(self);
  if (record->address != 0) return EMM_SUCCESS;
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  struct own* own = &self->own;
  lock(self);
  const uint64_t spare = own->spare;
  own->spare = 0;
  own->is_wanted = false;
  unlock(self);
  return spare != 0 ? self->driver->mem_free(self->driver->user, spare) : EMM_SUCCESS;
}

static emm_status create_ahead(const emm_create_v1* asked, emm_manager** answer) {
  const emm_status status = create(asked, answer);
  if (status == EMM_SUCCESS) pthread_cond_init(&(*answer)->own.wanted, NULL);
  return status;
}

static void destroy_ahead(emm_manager* self) {
  struct own* own = &self->own;
  lock(self);
  own->ends = true;
  const bool runs = own->runs && own->process == getpid();
  pthread_cond_signal(&own->wanted);
  unlock(self);
  if (runs) pthread_join(own->thread, NULL);
  pthread_cond_destroy(&own->wanted);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "the next 8 MiB are asked for ahead",
                                            .create = create_ahead,
                                            .destroy = destroy_ahead,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .get_ipc_handle = get_ipc_handle,
                                            .reset = reset,
                                            .state = state};
  return &table;
}
