/* A thread of the manager's makes the frees of page-locked and managed memory; whoever may not wait
 * for it, as a forked child that does not have it, makes them itself. A deferral makes it pause. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

struct record;
struct own {
  pthread_mutex_t queueing; /* Guards what follows, and is held in no call. */
  pthread_cond_t changed;
  struct record* waiting;
  unsigned paused;
  uint64_t count, bytes;
  bool is_busy, ends, runs;
  pthread_t thread;
  pid_t process;
};
#include "base.h"

static bool is_home(emm_manager* self) { return self->own.process == getpid(); }

/* Makes one free that waits. False: there is none, or it may not be made. */
static bool make_one(emm_manager* self, bool anyway) {
  struct own* own = &self->own;
  struct record* record = own->paused == 0 || anyway ? own->waiting : NULL;
  if (record == NULL) return false;
  own->waiting = record->next;
  own->is_busy = true;
  const uint64_t size = record->size;
  pthread_mutex_unlock(&own->queueing);
  tell_of_failure(self, end_at_driver(self, record));
  if (self->host != NULL && self->host->flushed != NULL)
    self->host->flushed(self->host->user, 1, size);
  pthread_mutex_lock(&own->queueing);
  --own->count;
  own->bytes -= size;
  own->is_busy = false;
  pthread_cond_broadcast(&own->changed);
  return true;
}

static void* help(void* argument) {
  emm_manager* self = argument;
  pthread_mutex_lock(&self->own.queueing);
  while (!self->own.ends) {
    if (!make_one(self, false)) pthread_cond_wait(&self->own.changed, &self->own.queueing);
  }
  pthread_mutex_unlock(&self->own.queueing);
  return NULL;
}

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  struct own* own = &self->own;
  if (record->kind == REGION || record->kind == DEVICE || !is_home(self))
    return end_at_driver(self, record);
  if (self->host != NULL && self->host->pending_added != NULL)
    self->host->pending_added(self->host->user, record->kind == HOST ? "mem_free_host" : "mem_free",
                              record->size);
  pthread_mutex_lock(&own->queueing);
  if (!own->runs) own->runs = pthread_create(&own->thread, NULL, help, self) == 0;
  record->next = own->waiting;
  own->waiting = record;
  ++own->count;
  own->bytes += record->size;
  pthread_cond_broadcast(&own->changed);
  pthread_mutex_unlock(&own->queueing);
  return EMM_SUCCESS;
}

/* Waits until nothing waits that may be freed. */
static emm_status make_room(emm_manager* self) {
  struct own* own = &self->own;
  if (!is_home(self)) return EMM_SUCCESS;
  pthread_mutex_lock(&own->queueing);
  while (own->runs && (own->is_busy || (own->waiting != NULL && own->paused == 0)))
    pthread_cond_wait(&own->changed, &own->queueing);
  while (!own->runs && make_one(self, false)) {
  }
  pthread_mutex_unlock(&own->queueing);
  return EMM_SUCCESS;
}

static void pause_helper(emm_manager* self) {
  if (!is_home(self)) return;
  pthread_mutex_lock(&self->own.queueing);
  ++self->own.paused;
  while (self->own.is_busy) pthread_cond_wait(&self->own.changed, &self->own.queueing);
  pthread_mutex_unlock(&self->own.queueing);
}
static void go_on(emm_manager* self) {
  if (!is_home(self)) return;
  pthread_mutex_lock(&self->own.queueing);
  --self->own.paused;
  pthread_cond_broadcast(&self->own.changed);
  pthread_mutex_unlock(&self->own.queueing);
}

static void full_state(emm_manager* self, emm_state* answer) {
  state(self, answer);
  if (answer->struct_size < sizeof *answer) return; /* An older host's. */
  if (!is_home(self)) return;
  pthread_mutex_lock(&self->own.queueing);
  answer->pending_count = self->own.count;
  answer->pending_bytes = self->own.bytes;
  pthread_mutex_unlock(&self->own.queueing);
}

static emm_status create_helped(const emm_create_v1* asked, emm_manager** answer) {
  const emm_status status = create(asked, answer);
  if (status != EMM_SUCCESS) return status;
  pthread_mutex_init(&(*answer)->own.queueing, NULL);
  pthread_cond_init(&(*answer)->own.changed, NULL);
  (*answer)->own.process = getpid();
  return status;
}

static void destroy_helped(emm_manager* self) {
  struct own* own = &self->own;
  if (!is_home(self)) return; /* Its locks may be another thread's, for ever. */
  pthread_mutex_lock(&own->queueing);
  own->paused = 0;
  pthread_cond_broadcast(&own->changed);
  pthread_mutex_unlock(&own->queueing);
  if (self->driver != NULL) reset(self);
  pthread_mutex_lock(&own->queueing);
  own->ends = true;
  pthread_cond_broadcast(&own->changed);
  pthread_mutex_unlock(&own->queueing);
  if (own->runs) pthread_join(own->thread, NULL);
  pthread_cond_destroy(&own->changed);
  pthread_mutex_destroy(&own->queueing);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "a thread helps with some frees",
                                            .create = create_helped,
                                            .destroy = destroy_helped,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .get_ipc_handle = get_ipc_handle,
                                            .reset = reset,
                                            .defer_cleanup = pause_helper,
                                            .end_defer_cleanup = go_on,
                                            .flush = make_room,
                                            .state = full_state};
  return &table;
}
