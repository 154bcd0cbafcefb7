/* A thread of the manager's makes the frees. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

struct record;
struct own {
  pthread_mutex_t queueing; /* Guards what follows. */
  pthread_cond_t has_more, has_less;
  struct record *oldest, *youngest;
  bool is_busy, ends, runs;
  unsigned held_back;    /* Deferrals, for the worker. */
  uint64_t count, bytes; /* Of frees that are not made. */
  pthread_t thread;
  pid_t process;  /* That the worker lives in: a forked child has none. */
  int32_t failed; /* The first failure since the last flush. */
};
#include "base.h"

static void* work(void* argument) {
  emm_manager* self = argument;
  struct own* own = &self->own;
  pthread_mutex_lock(&own->queueing);
  for (;;) {
    while (!own->ends && (own->oldest == NULL || own->held_back > 0))
      pthread_cond_wait(&own->has_more, &own->queueing);
    struct record* record = own->oldest;
    if (record == NULL) break;
    own->oldest = record->next;
    if (own->oldest == NULL) own->youngest = NULL;
    own->is_busy = true;
    const uint64_t size = record->size;
    pthread_mutex_unlock(&own->queueing);
    const emm_status status = end_at_driver(self, record);
    tell_of_failure(self, status);
    if (self->host != NULL && self->host->flushed != NULL)
      self->host->flushed(self->host->user, 1, size);
    pthread_mutex_lock(&own->queueing);
    --own->count;
    own->bytes -= size;
    if (own->failed == EMM_SUCCESS) own->failed = status;
    own->is_busy = false;
    pthread_cond_broadcast(&own->has_less);
  }
  pthread_mutex_unlock(&own->queueing);
  return NULL;
}

static emm_status take(emm_manager* self, struct record* record) {
  return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
}

static bool is_child(const struct own* own) {
  return own->process != 0 && own->process != getpid();
}

static bool has_worker(emm_manager* self) {
  struct own* own = &self->own;
  if (is_child(own)) return false;
  pthread_mutex_lock(&own->queueing);
  if (!own->runs) own->runs = pthread_create(&own->thread, NULL, work, self) == 0;
  own->process = getpid();
  const bool runs = own->runs;
  pthread_mutex_unlock(&own->queueing);
  return runs;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  struct own* own = &self->own;
  if (record->kind == REGION || !has_worker(self)) return end_at_driver(self, record);
  if (self->host != NULL && self->host->pending_added != NULL)
    self->host->pending_added(self->host->user, record->kind == HOST ? "mem_free_host" : "mem_free",
                              record->size);
  pthread_mutex_lock(&own->queueing);
  ++own->count;
  own->bytes += record->size;
  record->next = NULL;
  if (own->youngest != NULL)
    own->youngest->next = record;
  else
    own->oldest = record;
  own->youngest = record;
  pthread_cond_signal(&own->has_more);
  pthread_mutex_unlock(&own->queueing);
  return EMM_SUCCESS;
}

/* Waits until the worker has nothing to do, or may do nothing. */
static emm_status make_room(emm_manager* self) {
  struct own* own = &self->own;
  if (is_child(own)) return EMM_SUCCESS;
  pthread_mutex_lock(&own->queueing);
  while (own->is_busy || (own->oldest != NULL && own->held_back == 0))
    pthread_cond_wait(&own->has_less, &own->queueing);
  const emm_status failed = own->failed;
  own->failed = EMM_SUCCESS;
  pthread_mutex_unlock(&own->queueing);
  return failed;
}

static emm_status flush(emm_manager* self) { return make_room(self); }

/* No free that has begun is under way when it returns. A forked child has no worker, and whoever
 * held the lock is not there. */
static void hold_back(emm_manager* self) {
  struct own* own = &self->own;
  if (is_child(own)) return;
  pthread_mutex_lock(&own->queueing);
  ++own->held_back;
  while (own->is_busy) pthread_cond_wait(&own->has_less, &own->queueing);
  pthread_mutex_unlock(&own->queueing);
}

static void go_on(emm_manager* self) {
  struct own* own = &self->own;
  if (is_child(own)) return;
  pthread_mutex_lock(&own->queueing);
  --own->held_back;
  pthread_cond_signal(&own->has_more);
  pthread_cond_broadcast(&own->has_less);
  pthread_mutex_unlock(&own->queueing);
}

static void fill_state(emm_manager* self, emm_state* answer) {
  struct own* own = &self->own;
  state(self, answer);
  if (is_child(own)) return;
  pthread_mutex_lock(&own->queueing);
  answer->pending_count = own->count;
  answer->pending_bytes = own->bytes;
  pthread_mutex_unlock(&own->queueing);
}

static void full_state(emm_manager* self, emm_state* answer) {
  give_state(self, answer, fill_state);
}

static emm_status create_worker(const emm_create_v1* asked, emm_manager** answer) {
  const emm_status status = create(asked, answer);
  if (status != EMM_SUCCESS) return status;
  pthread_mutex_init(&(*answer)->own.queueing, NULL);
  pthread_cond_init(&(*answer)->own.has_more, NULL);
  pthread_cond_init(&(*answer)->own.has_less, NULL);
  return status;
}

static void destroy_worker(emm_manager* self) {
  struct own* own = &self->own;
  if (!is_child(own)) {
    pthread_mutex_lock(&own->queueing);
    own->held_back = 0;
    pthread_cond_signal(&own->has_more);
    pthread_mutex_unlock(&own->queueing);
  }
  if (self->driver != NULL) reset(self);
  if (own->runs && !is_child(own)) {
    pthread_mutex_lock(&own->queueing);
    own->ends = true;
    pthread_cond_signal(&own->has_more);
    pthread_mutex_unlock(&own->queueing);
    pthread_join(own->thread, NULL);
  }
  pthread_cond_destroy(&own->has_more);
  pthread_cond_destroy(&own->has_less);
  pthread_mutex_destroy(&own->queueing);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "a thread of its own makes the frees",
                                            .create = create_worker,
                                            .destroy = destroy_worker,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .get_ipc_handle = get_ipc_handle,
                                            .reset = reset,
                                            .defer_cleanup = hold_back,
                                            .end_defer_cleanup = go_on,
                                            .flush = flush,
                                            .state = full_state};
  return &table;
}
