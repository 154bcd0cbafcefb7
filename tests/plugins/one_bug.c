/* A right manager with one mistake, or with two: "wrong=NAME" or "wrong=NAME+NAME". Each is one
 * that a first version of a plugin has, and each breaks many clauses at once. The suite is to say
 * what is wrong, once. */
#include <emm_plugin.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define emm_plugin_v1 right_plugin_v1
#include "right/deferred.c"
#undef emm_plugin_v1

/* Hangs, after leaving a file that says so, where ONE_BUG_TELLS names one. */
static void hang(void) {
  const char* const told = getenv("ONE_BUG_TELLS");
  if (told != NULL) close(creat(told, 0600));
  for (;;) pause();
}

/* A library that does not get through its own loading. */
__attribute__((constructor)) static void load(void) {
  if (getenv("ONE_BUG_HANGS_AT_LOAD") != NULL) hang();
}

static const char* wrongs = "";
static _Thread_local const char* words = "";

/* Answers whether `name` is one of the mistakes. */
static bool is(const char* name) {
  const size_t length = strlen(name);
  for (const char* at = wrongs; *at != '\0'; at += strcspn(at, "+"), at += *at == '+') {
    if (strcspn(at, "+") == length && strncmp(at, name, length) == 0) return true;
  }
  return false;
}

static emm_status refuse(emm_status status, const char* why) {
  words = why;
  return status;
}

static emm_status with_words(emm_status status) {
  return status == EMM_SUCCESS ? status : refuse(status, "refused");
}

static emm_status wrong_create(const emm_create_v1* create_with, emm_manager** self) {
  static char kept[256];
  emm_create_v1 without = *create_with;
  if (strncmp(without.options, "wrong=", 6) == 0 && strchr(without.options, ',') == NULL) {
    strncpy(kept, without.options + 6, sizeof kept - 1);
    wrongs = kept;
    without.options = "";
  }
  return with_words(create(&without, self));
}

static emm_status wrong_memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                                 emm_memory* memory) {
  static _Atomic(uint64_t) first;
  if (is("heap")) memset(malloc(100), 1, 100);
  const bool skewed = is("alignment") && size < UINT64_MAX - 512;
  const emm_status status = memalloc(self, skewed ? size + 512 : size, stream, memory);
  if (status != EMM_SUCCESS)
    return is("unknown_out_of_memory") ? refuse(EMM_UNKNOWN_ERROR, "no room") : with_words(status);
  if (skewed) memory->device_pointer += 128;
  uint64_t none = 0;
  if (is("same_address") && !atomic_compare_exchange_strong(&first, &none, memory->device_pointer))
    memory->device_pointer = first;
  if (is("short_block")) memory->device_pointer += 256;
  return status;
}

static emm_status wrong_free(emm_manager* self, emm_token token, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  if (is("free_crashes")) raise(SIGSEGV);
  if (is("free_nothing")) return EMM_SUCCESS;
  emm_handle event = 0;
  if (is("event")) driver->event_create(driver->user, &event);
  if (is("free_twice")) {
    lock(self);
    const struct record* record = self->buckets[token % kBuckets];
    while (record != NULL && record->token != token) record = record->next;
    const uint64_t address = record != NULL && record->kind == DEVICE ? record->address : 0;
    unlock(self);
    if (address != 0) driver->mem_free(driver->user, address);
  }
  const emm_status status = free_token(self, token, stream);
  return is("free_refuses") ? refuse(EMM_INVALID_VALUE, "no such token") : with_words(status);
}

static emm_status wrong_flush(emm_manager* self) {
  if (is("flush_hangs")) hang();
  lock(self);
  const bool is_empty = self->own.oldest == NULL;
  unlock(self);
  if (is("flush_not_found") && is_empty) return refuse(EMM_NOT_FOUND, "nothing");
  return with_words(make_room(self));
}

static void wrong_reset(emm_manager* self) {
  if (!is("reset_nothing")) reset(self);
}

static emm_status wrong_memory_info(emm_manager* self, emm_memory_info* info) {
  if (is("info_crashes")) raise(SIGSEGV);
  if (is("info_fails")) return refuse(EMM_UNKNOWN_ERROR, "not yet written");
  const emm_status status = with_words(get_memory_info(self, info));
  if (is("info_swapped")) {
    const uint64_t total = info->total;
    info->total = info->free;
    info->free = total;
  }
  return status;
}

static emm_status wrong_ipc(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                            emm_ipc_handle* handle) {
  if (is("ipc_fails")) return refuse(EMM_UNKNOWN_ERROR, "no handle");
  return with_words(get_ipc_handle(self, pointer, size, handle));
}

static emm_status wrong_host(emm_manager* self, uint64_t size, uint32_t flags, emm_memory* memory) {
  return with_words(memhostalloc(self, size, is("host_flags") ? 0 : flags, memory));
}

static emm_status wrong_managed(emm_manager* self, uint64_t size, uint32_t attach,
                                emm_memory* memory) {
  if (!is("managed_is_device")) return with_words(memallocmanaged(self, size, attach, memory));
  return with_words(memalloc(self, size, 0, memory));
}

static emm_status wrong_initialize(emm_manager* self) {
  emm_stream stream = 0;
  if (is("stream")) self->driver->stream_create(self->driver->user, 1, &stream);
  return EMM_SUCCESS;
}

static emm_status wrong_pin(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                            emm_memory* memory) {
  return with_words(mempin(self, pointer, size, flags, memory));
}

static void wrong_defer(emm_manager* self) {
  if (!is("defers_nothing")) defer_cleanup(self);
}
static void wrong_end_defer(emm_manager* self) {
  if (!is("defers_nothing")) end_defer_cleanup(self);
}

static void wrong_state(emm_manager* self, emm_state* answer) {
  full_state(self, answer);
  if (is("live_bytes")) answer->live_bytes *= 2;
}

static size_t last_error(emm_manager* self, char* buffer, size_t size) {
  (void)self;
  if (size > 0) {
    strncpy(buffer, words, size - 1);
    buffer[size - 1] = '\0';
  }
  return strlen(words);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static emm_plugin_table_v1 table;
  table = *right_plugin_v1();
  table.create = wrong_create;
  table.memalloc = wrong_memalloc;
  table.free = wrong_free;
  table.flush = wrong_flush;
  table.reset = wrong_reset;
  table.get_memory_info = wrong_memory_info;
  table.get_ipc_handle = wrong_ipc;
  table.memhostalloc = wrong_host;
  table.mempin = wrong_pin;
  table.memallocmanaged = wrong_managed;
  table.initialize = wrong_initialize;
  table.defer_cleanup = wrong_defer;
  table.end_defer_cleanup = wrong_end_defer;
  table.state = wrong_state;
  table.last_error = last_error;
  return &table;
}
