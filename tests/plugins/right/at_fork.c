/* Requests go to the driver one at a time, under a lock that a fork replaces in the child: all
 * managers of the process are in a list, which a handler of pthread_atfork() goes through. */
#include <pthread.h>
#include <stdint.h>

struct emm_manager;
struct own {
  pthread_mutex_t asking; /* Held while the driver is asked: no free needs it. */
  struct emm_manager* next;
};
#include "base.h"

static pthread_mutex_t managers_mutex = PTHREAD_MUTEX_INITIALIZER;
static emm_manager* managers;

/* Nobody changes the list, or holds a manager's inner lock, while the process forks. The outer one
 * may be held for as long as a call of the driver lasts, and is not waited for. */
static void before_fork(void) {
  pthread_mutex_lock(&managers_mutex);
  for (emm_manager* one = managers; one != NULL; one = one->own.next) lock(one);
}
static void after_fork(void) {
  for (emm_manager* one = managers; one != NULL; one = one->own.next) unlock(one);
  pthread_mutex_unlock(&managers_mutex);
}
static void after_fork_in_child(void) {
  for (emm_manager* one = managers; one != NULL; one = one->own.next) {
    pthread_mutex_init(&one->mutex, NULL);
    pthread_mutex_init(&one->own.asking, NULL);
  }
  pthread_mutex_init(&managers_mutex, NULL);
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

static emm_status take(emm_manager* self, struct record* record) {
  pthread_mutex_lock(&self->own.asking);
  const emm_status status =
      self->driver->mem_alloc(self->driver->user, record->size, &record->address);
  pthread_mutex_unlock(&self->own.asking);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  return end_at_driver(self, record);
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static emm_status create_watched(const emm_create_v1* asked, emm_manager** answer) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  const emm_status status = create(asked, answer);
  if (status != EMM_SUCCESS) return status;
  pthread_mutex_init(&(*answer)->own.asking, NULL);
  pthread_mutex_lock(&managers_mutex);
  (*answer)->own.next = managers;
  managers = *answer;
  pthread_mutex_unlock(&managers_mutex);
  return status;
}

static void destroy_watched(emm_manager* self) {
  pthread_mutex_lock(&managers_mutex);
  emm_manager** link = &managers;
  while (*link != self) link = &(*link)->own.next;
  *link = self->own.next;
  pthread_mutex_unlock(&managers_mutex);
  pthread_mutex_destroy(&self->own.asking);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "locks that a fork replaces",
                                            .create = create_watched,
                                            .destroy = destroy_watched,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .get_ipc_handle = get_ipc_handle,
                                            .reset = reset,
                                            .state = state};
  return &table;
}
