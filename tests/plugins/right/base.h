/* What the right managers of this folder share: the table of tokens, host memory, reset. Each of
 * them defines struct own, includes this file, and says with take(), give() and make_room() where
 * its device memory comes from. No driver call is made under a lock. */
#include <emm_plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

enum kind { DEVICE, MANAGED, HOST, REGION };

struct record {
  emm_token token;
  enum kind kind;
  uint64_t size; /* As requested. */
  uint64_t held; /* What lies at `address`, as the manager rounds it. */
  uint64_t address;
  uint64_t number; /* What the manager likes. */
  uint32_t flags;  /* Of page-locked memory. */
  void* host;
  emm_stream stream; /* That device memory was asked for on. */
  bool is_others;    /* Another thread cannot name that stream. */
  uint64_t thread;
  struct record* next;
};

enum { kBuckets = 4096 };

struct emm_manager {
  const emm_driver_v1* driver;
  const emm_host_v1* host;
  pthread_mutex_t mutex; /* Guards what follows, and what `own` says. */
  struct record* buckets[kBuckets];
  emm_token last_token, last_reset;
  uint64_t live_bytes;
  unsigned deferrals;
  bool is_unordered; /* Work may be pending on free memory, since the device refused to wait. */
  struct own own;
};

/* Takes device memory for a record. EMM_OUT_OF_MEMORY is answered after make_room() was tried. */
static emm_status take(emm_manager* self, struct record* record);
/* Ends a record of any kind, and owns it. */
static emm_status give(emm_manager* self, struct record* record, emm_stream stream);
/* Gives back to the device what is idle, or pending, as far as a deferral allows. */
static emm_status make_room(emm_manager* self);

static inline void lock(emm_manager* self) { pthread_mutex_lock(&self->mutex); }
static inline void unlock(emm_manager* self) { pthread_mutex_unlock(&self->mutex); }

static inline uint64_t round_up(uint64_t size, uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

/* The number of this thread, from 1. A later thread may have its pthread_t again. */
static inline uint64_t this_thread(void) {
  static atomic_uint_fast64_t threads;
  static _Thread_local uint64_t number;
  if (number == 0) number = atomic_fetch_add(&threads, 1) + 1;
  return number;
}

static inline bool is_deferred(emm_manager* self) {
  lock(self);
  const bool deferred = self->deferrals > 0;
  unlock(self);
  return deferred;
}

static inline void tell_of_failure(emm_manager* self, emm_status status) {
  if (status != EMM_SUCCESS && self->host != NULL && self->host->free_failed != NULL)
    self->host->free_failed(self->host->user, status, NULL);
}

/* Waits for all work, or remembers that it could not. */
static inline void wait_for_work(emm_manager* self) {
  const bool failed = self->driver->ctx_synchronize(self->driver->user) != EMM_SUCCESS;
  lock(self);
  self->is_unordered |= failed;
  unlock(self);
}

/* Before memory is handed out that somebody had before. */
static inline emm_status make_ordered(emm_manager* self) {
  lock(self);
  const bool is_unordered = self->is_unordered;
  self->is_unordered = false;
  unlock(self);
  if (!is_unordered) return EMM_SUCCESS;
  const emm_status status = self->driver->ctx_synchronize(self->driver->user);
  lock(self);
  self->is_unordered |= status != EMM_SUCCESS;
  unlock(self);
  return status;
}

/* Makes what comes on `stream` come after the record's own stream. False: it waited for all. */
static inline bool bring_to(emm_manager* self, const struct record* record, emm_stream stream) {
  const emm_driver_v1* driver = self->driver;
  const bool is_own = !record->is_others || record->thread == this_thread();
  if (is_own && record->stream == stream) return true;
  emm_handle event = 0;
  if (is_own && driver->event_create(driver->user, &event) == EMM_SUCCESS) {
    const bool is_recorded =
        driver->event_record(driver->user, event, record->stream) == EMM_SUCCESS;
#ifdef ASKS_EVENTS
    const bool is_over = is_recorded && driver->event_query(driver->user, event) == EMM_SUCCESS;
#else
    const bool is_over = false;
#endif
    const bool is_done =
        is_over || (is_recorded && driver->stream_wait_event(driver->user, stream, event) == 0);
    tell_of_failure(self, driver->event_destroy(driver->user, event));
    if (is_done) return true;
  }
  wait_for_work(self);
  return false;
}

static inline emm_status end_at_driver(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  const emm_status status = record->kind == HOST ? driver->mem_free_host(driver->user, record->host)
                            : record->kind == REGION
                                ? driver->mem_host_unregister(driver->user, record->host)
                                : driver->mem_free(driver->user, record->address);
  free(record);
  return status;
}

#ifdef KEEPS_WHAT_IS_FREED
/* What is freed stands in own.kept, the latest first. */

static inline emm_status keep(emm_manager* self, struct record* record) {
  lock(self);
  record->next = self->own.kept;
  self->own.kept = record;
  unlock(self);
  return EMM_SUCCESS;
}

/* Ends what is kept, where nothing is deferred. Returns the first error. */
static inline emm_status end_kept(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  for (;;) {
    lock(self);
    struct record* record = self->deferrals == 0 ? self->own.kept : NULL;
    if (record != NULL) self->own.kept = record->next;
    unlock(self);
    if (record == NULL) return first;
    const emm_status status = end_at_driver(self, record);
    if (first == EMM_SUCCESS) first = status;
  }
}
#endif

/* Records. */

static inline struct record* new_record(enum kind kind, uint64_t size) {
  struct record* record = calloc(1, sizeof *record);
  if (record == NULL) return NULL;
  record->kind = kind;
  record->size = size;
  return record;
}

static inline emm_status hand_out(emm_manager* self, struct record* record, emm_memory* memory) {
  lock(self);
  record->token = ++self->last_token;
  struct record** bucket = &self->buckets[record->token % kBuckets];
  record->next = *bucket;
  *bucket = record;
  if (record->kind == DEVICE || record->kind == MANAGED) self->live_bytes += record->size;
  memory->token = record->token;
  unlock(self);
  memory->device_pointer = record->address;
  memory->host_pointer = record->host;
  return EMM_SUCCESS;
}

static inline struct record* unlink_record(emm_manager* self, struct record** link) {
  struct record* record = *link;
  if (record == NULL) return NULL;
  *link = record->next;
  record->next = NULL;
  if (record->kind == DEVICE || record->kind == MANAGED) self->live_bytes -= record->size;
  return record;
}

static inline emm_status free_token(emm_manager* self, emm_token token, emm_stream stream) {
  lock(self);
  struct record** link = &self->buckets[token % kBuckets];
  while (*link != NULL && (*link)->token != token) link = &(*link)->next;
  struct record* record = unlink_record(self, link);
  const bool is_late = token <= self->last_reset;
  unlock(self);
  if (record != NULL) return give(self, record, stream == 1 ? 0 : stream);
#ifdef LATE_FREES_ARE_REFUSED
  (void)is_late;
  return EMM_INVALID_VALUE; /* The host counts it, and nothing is done. */
#else
  return is_late ? EMM_SUCCESS : EMM_INVALID_VALUE;
#endif
}

static inline void end_all(emm_manager* self) {
  lock(self);
  const emm_token last = self->last_reset = self->last_token;
  unlock(self);
  for (unsigned i = 0; i < kBuckets; ++i) {
    for (;;) {
      lock(self);
      struct record** link = &self->buckets[i];
      while (*link != NULL && (*link)->token > last) link = &(*link)->next;
      struct record* record = unlink_record(self, link);
      unlock(self);
      if (record == NULL) break;
      tell_of_failure(self, give(self, record, record->stream));
    }
  }
}

static inline void reset(emm_manager* self) {
  end_all(self);
  tell_of_failure(self, make_room(self));
}

/* Slots. */

static inline emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                                  emm_memory* memory) {
  if (size == 0) return EMM_INVALID_VALUE;
  struct record* record = new_record(DEVICE, size);
  if (record == NULL) return EMM_OUT_OF_MEMORY;
  record->stream = stream == 1 ? 0 : stream;
  record->is_others = stream == 2;
  record->thread = this_thread();
  emm_status status = size >> 50 != 0 ? EMM_OUT_OF_MEMORY : take(self, record);
  if (status == EMM_OUT_OF_MEMORY && size >> 50 == 0) {
#ifdef ANSWERS_REFUSED_FREES
    status = make_room(self);
    if (status == EMM_SUCCESS) status = take(self, record);
#else
    tell_of_failure(self, make_room(self));
    status = take(self, record);
#endif
  }
  if (status == EMM_SUCCESS) return hand_out(self, record, memory);
  free(record);
  return status;
}

static inline emm_status ask_for_host(emm_manager* self, struct record* record, uint32_t flags) {
  return self->driver->mem_host_alloc(self->driver->user, record->size, flags, &record->host);
}
static inline emm_status ask_for_region(emm_manager* self, struct record* record, uint32_t flags) {
  return self->driver->mem_host_register(self->driver->user, record->host, record->size, flags);
}
static inline emm_status ask_for_managed(emm_manager* self, struct record* record,
                                         uint32_t attach) {
  const emm_status status =
      self->driver->mem_alloc_managed(self->driver->user, record->size, attach, &record->address);
  if (status == EMM_SUCCESS) record->host = (void*)(uintptr_t)record->address;
  return status;
}

/* Asks for memory that the driver alone gives, and for its address on the device. */
static inline emm_status ask(emm_manager* self, struct record* record, uint32_t flags, bool maps,
                             emm_status (*how)(emm_manager*, struct record*, uint32_t),
                             emm_memory* memory) {
  const emm_driver_v1* driver = self->driver;
  if (record == NULL) return EMM_OUT_OF_MEMORY;
  emm_status status = how(self, record, flags);
  if (status == EMM_OUT_OF_MEMORY) {
    tell_of_failure(self, make_room(self));
    status = how(self, record, flags);
  }
  if (status != EMM_SUCCESS) {
    free(record);
    return status;
  }
  if (maps) {
    status = driver->mem_host_get_device_pointer(driver->user, record->host, &record->address);
    if (status != EMM_SUCCESS) {
      tell_of_failure(self, end_at_driver(self, record));
      return status;
    }
  }
  return hand_out(self, record, memory);
}

static inline emm_status memhostalloc(emm_manager* self, uint64_t size, uint32_t flags,
                                      emm_memory* memory) {
  struct record* record = new_record(HOST, size);
  if (record != NULL) record->flags = flags;
  return ask(self, record, flags, (flags & EMM_HOST_MAPPED) != 0, ask_for_host, memory);
}

static inline emm_status mempin(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                                emm_memory* memory) {
  struct record* record = new_record(REGION, size);
  if (record != NULL) record->host = pointer;
  return ask(self, record, flags, (flags & EMM_PIN_MAPPED) != 0, ask_for_region, memory);
}

static inline emm_status memallocmanaged(emm_manager* self, uint64_t size, uint32_t attach,
                                         emm_memory* memory) {
  return ask(self, new_record(MANAGED, size), attach, false, ask_for_managed, memory);
}

static inline emm_status get_memory_info(emm_manager* self, emm_memory_info* info) {
  return self->driver->mem_get_info(self->driver->user, &info->free, &info->total);
}

/* Of memory that is one allocation of the driver for each request. */
static inline emm_status get_ipc_handle(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                                        emm_ipc_handle* handle) {
  const emm_driver_v1* driver = self->driver;
  uint64_t base = 0;
  lock(self);
  for (unsigned i = 0; i < kBuckets; ++i) {
    for (const struct record* one = self->buckets[i]; one != NULL; one = one->next) {
      if (one->kind == DEVICE && pointer >= one->address && pointer - one->address <= one->size &&
          size <= one->size - (pointer - one->address))
        base = one->address;
    }
  }
  unlock(self);
  if (base == 0) return EMM_INVALID_VALUE;
  int32_t pci[3];
  driver->device_identity(driver->user, pci);
  handle->offset = pointer - base;
  handle->pci_domain_id = pci[0];
  handle->pci_bus_id = pci[1];
  handle->pci_device_id = pci[2];
  return driver->ipc_get_mem_handle(driver->user, base, handle->bytes);
}

static inline void defer_cleanup(emm_manager* self) {
  lock(self);
  ++self->deferrals;
  unlock(self);
}

static inline void end_defer_cleanup(emm_manager* self) {
  lock(self);
  --self->deferrals;
  unlock(self);
}

static inline void state(emm_manager* self, emm_state* answer) {
  lock(self);
  answer->live_bytes = self->live_bytes;
  unlock(self);
}

/* Fills in a whole state, and gives as much of it as the host has room for. */
static inline void give_state(emm_manager* self, emm_state* answer,
                              void (*fill)(emm_manager*, emm_state*)) {
  emm_state whole;
  memset(&whole, 0xff, sizeof whole); /* EMM_NOT_KNOWN */
  fill(self, &whole);
  const size_t size = answer->struct_size < sizeof whole ? answer->struct_size : sizeof whole;
  memcpy((char*)answer + sizeof(size_t), (char*)&whole + sizeof(size_t), size - sizeof(size_t));
}

static inline emm_status create(const emm_create_v1* create, emm_manager** answer) {
  if (*create->options != '\0') return EMM_INVALID_VALUE; /* It has none. */
  if (create->driver == NULL && (create->flags & EMM_CREATE_PROBE) == 0) return EMM_NOT_SUPPORTED;
  emm_manager* self = calloc(1, sizeof *self);
  if (self == NULL) return EMM_OUT_OF_MEMORY;
  self->driver = create->driver;
  self->host = create->host;
  pthread_mutex_init(&self->mutex, NULL);
  *answer = self;
  return EMM_SUCCESS;
}

static inline void destroy(emm_manager* self) {
  self->deferrals = 0;
  if (self->driver != NULL) reset(self);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* The table of a manager, with the slots that it has besides the needed ones. */
#define RIGHT_MANAGER(words, ...)                                                    \
  EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {                 \
    static const emm_plugin_table_v1 table = {.struct_size = sizeof table,           \
                                              .abi_version = EMM_PLUGIN_ABI_VERSION, \
                                              .name = "right",                       \
                                              .summary = words,                      \
                                              .create = create,                      \
                                              .destroy = destroy,                    \
                                              .memalloc = memalloc,                  \
                                              .free = free_token,                    \
                                              __VA_ARGS__};                          \
    return &table;                                                                   \
  }
#define RIGHT_HOST_SLOTS \
  .memhostalloc = memhostalloc, .mempin = mempin, .memallocmanaged = memallocmanaged
