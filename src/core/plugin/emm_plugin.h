/* emm_plugin.h: a CUDA memory manager in a shared object, for emmctl and for whoever else loads it.
 *
 * A plugin exports one function, emm_plugin_v1(), which gives a table. The operations are those of
 * Numba's External Memory Management interface (NBEP 7), and have its names. C11 or later, or C++.
 *
 * Rules for everything below:
 * - Sizes are bytes. A status is a CUresult: 0 is success, 2 out of memory, 801 not supported (see
 * below). A call that fails changes nothing.
 * - Memory is named by a token that the plugin chooses: any number but 0. The host never takes it
 * for an address.
 * - Every struct begins with its size, as compiled on the side that fills it in. Structs grow at
 * their end. A side reads no member beyond the size that the other side wrote, and state() writes
 * none beyond it. A version that is not compatible would export another function, emm_plugin_v2().
 * - A slot may be NULL unless it says "Needed". The host then answers not_supported, or does what
 * is said at the slot.
 * - "Any thread" means that several threads may call at a time, also while other slots run. No
 * exception may leave a slot, and no slot may end the process.
 * - A driver call may wait for another thread. During a driver call, the manager must hold no lock
 * that free(), or a flush() after it, needs.
 * - In a forked child the driver does not work. Slots must neither crash nor hang there, also where
 * another thread was in a driver call when the process forked.
 * - Text is UTF-8 and ends with a NUL. The side that gives it owns it.
 */
#ifndef EMM_PLUGIN_H
#define EMM_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EMM_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define EMM_PLUGIN_EXPORT
#endif

/* The version of this table; NBEP 7's own is the slot interface_version. */
#define EMM_PLUGIN_ABI_VERSION 1u

/* A CUresult. A manager needs the values below; any other value is passed on unchanged. */
typedef int32_t emm_status;
enum {
  EMM_SUCCESS = 0,
  EMM_INVALID_VALUE = 1,
  EMM_OUT_OF_MEMORY = 2,
  EMM_NOT_INITIALIZED = 3,
  EMM_NO_DEVICE = 100,
  EMM_INVALID_CONTEXT = 201,
  EMM_NOT_FOUND = 500,
  EMM_NOT_READY = 600,
  EMM_CONTEXT_IS_DESTROYED = 709,
  EMM_HOST_MEMORY_ALREADY_REGISTERED = 712,
  EMM_HOST_MEMORY_NOT_REGISTERED = 713,
  EMM_NOT_SUPPORTED = 801,
  EMM_UNKNOWN_ERROR = 999
};

typedef uint64_t emm_device_ptr; /* A CUdeviceptr; 0 is null. */
typedef uint64_t
    emm_stream; /* A CUstream; 0 is the default stream, 1 the legacy, 2 the per-thread one. */
typedef uint64_t emm_token;  /* 0 names memory that need not be freed. */
typedef uint64_t emm_handle; /* An event, a library, a context, a pool, physical memory. */

/* One manager, which serves one context. The plugin defines struct emm_manager as it likes. */
typedef struct emm_manager emm_manager;

/* An unknown number, or a size that is not counted. */
#define EMM_NOT_KNOWN UINT64_MAX

/* The flags of memhostalloc are CU_MEMHOSTALLOC_*, those of mempin CU_MEMHOSTREGISTER_*. */
enum { EMM_HOST_PORTABLE = 1, EMM_HOST_MAPPED = 2, EMM_HOST_WRITE_COMBINED = 4 };
enum { EMM_PIN_PORTABLE = 1, EMM_PIN_MAPPED = 2, EMM_PIN_IO = 4, EMM_PIN_READ_ONLY = 8 };
/* The attach flags of memallocmanaged are CU_MEM_ATTACH_*. */
enum { EMM_ATTACH_GLOBAL = 1, EMM_ATTACH_HOST = 2 };

/* Memory that a manager handed out. The host sets struct_size, the plugin sets the rest. */
typedef struct emm_memory {
  size_t struct_size;
  emm_token token;
  emm_device_ptr device_pointer; /* 0 if the device cannot access it. */
  void* host_pointer;            /* NULL if the host cannot access it. */
} emm_memory;

typedef struct emm_memory_info {
  size_t struct_size;
  uint64_t free;
  uint64_t total;
} emm_memory_info;

/* Device memory as another process opens it: the driver's 64 bytes, and where in the driver's
 * allocation the exported part begins. */
typedef struct emm_ipc_handle {
  size_t struct_size;
  unsigned char bytes[64];
  uint64_t offset; /* From the base of the driver's allocation to the exported part. */
  int32_t pci_domain_id, pci_bus_id, pci_device_id; /* The device; -1 if it is not known. */
} emm_ipc_handle;

/* The state of a manager. The host sets every number to EMM_NOT_KNOWN, the plugin sets those that
 * it knows. */
typedef struct emm_state {
  size_t struct_size;
  uint64_t live_bytes; /* Requested bytes of live device and managed memory. Page-locked memory may
                          count too. */
  uint64_t reserved_bytes;     /* Physical bytes that the manager holds from the device. */
  uint64_t largest_free_bytes; /* The largest request that needs no memory from the device. */
  uint64_t pending_count;      /* Frees that were requested and not yet made. */
  uint64_t pending_bytes;
} emm_state;

/* A number that a manager counts, under the name that torch.cuda.memory_stats() has for it
 * ("allocated_bytes.all.peak") or a name of its own. The name stays valid while the library is
 * loaded. */
typedef struct emm_statistic {
  const char* name;
  uint64_t value;
} emm_statistic;

/* The host's device. A plugin that makes its driver calls through this table also runs on a
 * simulated device. Every function takes `user` first, makes the context current around the call,
 * and does what CUDA's function of that name does. Any thread may call, but not from inside another
 * function of the table. */
typedef struct emm_driver_v1 {
  size_t struct_size;
  void* user;

  emm_status (*mem_alloc)(void* user, uint64_t size, emm_device_ptr* ptr);
  emm_status (*mem_free)(void* user, emm_device_ptr ptr);
  emm_status (*mem_alloc_managed)(void* user, uint64_t size, uint32_t attach, emm_device_ptr* ptr);

  emm_status (*mem_host_alloc)(void* user, uint64_t size, uint32_t flags, void** ptr);
  emm_status (*mem_free_host)(void* user, void* ptr);
  emm_status (*mem_host_register)(void* user, void* ptr, uint64_t size, uint32_t flags);
  emm_status (*mem_host_unregister)(void* user, void* ptr);
  emm_status (*mem_host_get_device_pointer)(void* user, void* host, emm_device_ptr* ptr);

  emm_status (*mem_get_info)(void* user, uint64_t* free, uint64_t* total);
  emm_status (*mem_get_address_range)(void* user, emm_device_ptr ptr, emm_device_ptr* base,
                                      uint64_t* size);

  emm_status (*ipc_get_mem_handle)(void* user, emm_device_ptr ptr, unsigned char bytes[64]);
  emm_status (*ipc_open_mem_handle)(void* user, const unsigned char bytes[64], emm_device_ptr* ptr);
  emm_status (*ipc_close_mem_handle)(void* user, emm_device_ptr ptr);
  emm_status (*can_access_peer)(void* user, const int32_t pci[3],
                                int32_t* can); /* domain, bus, device */

  emm_status (*memset_d8)(void* user, emm_device_ptr ptr, uint8_t value, uint64_t size);
  emm_status (*memset_d32)(void* user, emm_device_ptr ptr, uint32_t value, uint64_t count);
  emm_status (*memcpy_htod)(void* user, emm_device_ptr to, const void* from, uint64_t size);
  emm_status (*memcpy_dtoh)(void* user, void* to, emm_device_ptr from, uint64_t size);
  emm_status (*memcpy_dtod)(void* user, emm_device_ptr to, emm_device_ptr from, uint64_t size);

  emm_status (*event_create)(void* user, emm_handle* event);
  emm_status (*event_destroy)(void* user, emm_handle event);
  emm_status (*stream_create)(void* user, uint32_t flags,
                              emm_stream* stream); /* 1: CU_STREAM_NON_BLOCKING */
  emm_status (*stream_destroy)(void* user, emm_stream stream);
  emm_status (*stream_synchronize)(void* user, emm_stream stream);
  emm_status (*library_load)(void* user, const void* image, uint64_t size, emm_handle* library);
  emm_status (*library_unload)(void* user, emm_handle library);
  emm_status (*ctx_synchronize)(void* user);
  emm_status (*ctx_push_current)(void* user);
  emm_status (*ctx_pop_current)(void* user, emm_handle* context);

  /* Facts about the device. These cost nothing and cannot fail. */
  emm_handle (*context_handle)(void* user);
  void (*device_identity)(void* user, int32_t pci[3]); /* domain, bus, device */
  const char* (*device_name)(void* user);
  int32_t (*device_ordinal)(void* user);
  int32_t (*can_map_host_memory)(void* user);
  uint64_t (*held_bytes)(void* user); /* Physical bytes of the device that the context holds. */
  uint64_t (*largest_free_bytes)(
      void* user); /* The largest mem_alloc that can succeed; 0: not known. */
  uint64_t (*log_address)(void* user, const void* host); /* What a log shows for a host address. */

  /* cudart's calls on the same device. NULL without a cudart. */
  emm_status (*runtime_malloc)(void* user, uint64_t size, emm_device_ptr* ptr);
  emm_status (*runtime_free)(void* user, emm_device_ptr ptr);
  emm_status (*runtime_mem_get_info)(void* user, uint64_t* free, uint64_t* total);

  /* Order on streams. EMM_NOT_READY: work is pending. */
  emm_status (*stream_query)(void* user, emm_stream stream);
  emm_status (*stream_wait_event)(void* user, emm_stream stream, emm_handle event);
  emm_status (*event_record)(void* user, emm_handle event, emm_stream stream);
  emm_status (*event_query)(void* user, emm_handle event);
  emm_status (*event_synchronize)(void* user, emm_handle event);

  emm_status (*memset_d8_async)(void* user, emm_device_ptr ptr, uint8_t value, uint64_t size,
                                emm_stream stream);
  emm_status (*memcpy_dtod_async)(void* user, emm_device_ptr to, emm_device_ptr from, uint64_t size,
                                  emm_stream stream);
  emm_status (*launch_host_func)(void* user, emm_stream stream, void (*function)(void*),
                                 void* argument);

  /* Virtual memory on this device. */
  emm_status (*mem_get_allocation_granularity)(void* user, uint64_t* granularity);
  emm_status (*mem_address_reserve)(void* user, uint64_t size, uint64_t alignment,
                                    emm_device_ptr wish, emm_device_ptr* ptr);
  emm_status (*mem_address_free)(void* user, emm_device_ptr ptr, uint64_t size);
  emm_status (*mem_create)(void* user, uint64_t size, emm_handle* physical);
  emm_status (*mem_release)(void* user, emm_handle physical);
  emm_status (*mem_map)(void* user, emm_device_ptr ptr, uint64_t size, uint64_t offset,
                        emm_handle physical);
  emm_status (*mem_unmap)(void* user, emm_device_ptr ptr, uint64_t size);
  emm_status (*mem_set_access)(void* user, emm_device_ptr ptr, uint64_t size,
                               uint32_t access); /* 0, 1, 3 */

  /* Stream-ordered memory. Attributes are CU_MEMPOOL_ATTR_*. */
  emm_status (*mem_pool_create)(void* user, uint64_t max_size, emm_handle* pool); /* 0: no limit */
  emm_status (*mem_pool_destroy)(void* user, emm_handle pool);
  emm_status (*device_get_default_mem_pool)(void* user, emm_handle* pool);
  emm_status (*mem_pool_trim_to)(void* user, emm_handle pool, uint64_t keep);
  emm_status (*mem_pool_set_attribute)(void* user, emm_handle pool, uint32_t attribute,
                                       uint64_t value);
  emm_status (*mem_pool_get_attribute)(void* user, emm_handle pool, uint32_t attribute,
                                       uint64_t* value);
  emm_status (*mem_alloc_async)(void* user, uint64_t size, emm_stream stream, emm_device_ptr* ptr);
  emm_status (*mem_alloc_from_pool_async)(void* user, uint64_t size, emm_handle pool,
                                          emm_stream stream, emm_device_ptr* ptr);
  emm_status (*mem_free_async)(void* user, emm_device_ptr ptr, emm_stream stream);

  /* Peers. */
  emm_status (*ctx_enable_peer_access)(void* user, emm_handle peer);
  emm_status (*ctx_disable_peer_access)(void* user, emm_handle peer);
  emm_status (*memcpy_peer)(void* user, emm_device_ptr to, emm_handle to_context,
                            emm_device_ptr from, emm_handle from_context, uint64_t size);
} emm_driver_v1;

/* What a manager may tell its host. Any slot may be NULL. Any thread. A caller must hold no lock
 * that a slot of the manager needs, since the host may call back. */
typedef struct emm_host_v1 {
  size_t struct_size;
  void* user;
  /* Returns the host's time in ns. On a simulated device the time is simulated. */
  uint64_t (*now_ns)(void* user);
  /* Reports that a free was deferred. `call` names the driver call that will make it: "mem_free",
   * "mem_free_host". `size` may be EMM_NOT_KNOWN. */
  void (*pending_added)(void* user, const char* call, uint64_t size);
  /* Reports that `count` deferred frees of `bytes` bytes in all were made. */
  void (*flushed)(void* user, uint64_t count, uint64_t bytes);
  /* Reports a failed free whose caller cannot receive an error. `words` may be NULL. */
  void (*free_failed)(void* user, emm_status status, const char* words);
} emm_host_v1;

/* The host only checks the options. It then calls no slot but destroy() and interface_version(). */
#define EMM_CREATE_PROBE 1u
/* The manager follows Numba's code where that differs from NBEP 7. */
#define EMM_CREATE_PROFILE_NUMBA 2u

/* What create() is given. The two tables stay valid until the manager is destroyed; this struct and
 * its text are valid during the call only. */
typedef struct emm_create_v1 {
  size_t struct_size;
  uint32_t flags;      /* EMM_CREATE_* */
  int32_t device;      /* The ordinal of the device. */
  const char* options; /* "key=value,key=value" as the user wrote it after the name; may be "". */
  const emm_driver_v1* driver; /* NULL: the plugin calls libcuda itself. */
  const emm_host_v1* host;     /* May be NULL. */
} emm_create_v1;

/* The plugin calls libcuda or libcudart itself. The host then makes the device's context current
 * around every slot. */
#define EMM_PLUGIN_CALLS_CUDA 1u

typedef struct emm_plugin_table_v1 {
  size_t struct_size;   /* sizeof(emm_plugin_table_v1) */
  uint32_t abi_version; /* EMM_PLUGIN_ABI_VERSION */
  uint32_t flags;       /* EMM_PLUGIN_* */
  const char* name;     /* The manager's name, for people. */
  const char* summary;  /* One line, or NULL. */
  const char* options;  /* The options that it knows, for people, or NULL. */

  /* Needed. Makes a manager, and makes no call of the device. Returns EMM_INVALID_VALUE for options
   * that it does not know. Any thread. */
  emm_status (*create)(const emm_create_v1* create, emm_manager** self);
  /* Needed. Ends a manager and frees what it still holds. The host calls it from one thread, while
   * no other slot runs, and calls no slot afterwards. */
  void (*destroy)(emm_manager* self);
  /* Describes the last call on this thread that failed. `self` is NULL after create(). Writes at
   * most `size` bytes, the NUL among them, and returns the length of the whole text without the
   * NUL. Any thread. */
  size_t (*last_error)(emm_manager* self, char* buffer, size_t size);

  /* The host calls it before the first allocation, and may call it again. NULL: there is nothing to
   * do. Any thread. */
  emm_status (*initialize)(emm_manager* self);
  /* Needed. Allocates device memory, aligned to 256 bytes as cuMemAlloc's. Where the manager knows
   * streams, the memory may be used by work put on `stream` from now on. What was freed serves
   * again, whatever else lives. A manager may limit the bytes that are alive, as they were
   * requested, not the number of blocks: a request beyond that limit is EMM_OUT_OF_MEMORY. It may
   * also limit the size of one block: every larger request is refused then, with EMM_OUT_OF_MEMORY,
   * EMM_INVALID_VALUE or EMM_NOT_SUPPORTED. Any thread. */
  emm_status (*memalloc)(emm_manager* self, uint64_t size, emm_stream stream, emm_memory* memory);
  /* Needed. Frees memory of any kind: the finalizer. Work on the memory may be pending on `stream`
   * and on the stream of the request. The host calls it once for each token, at any time, also
   * after reset(), which has ended the token: then it must do nothing. The host counts a status
   * other than 0 and cannot act on it. libemm.so returns EMM_INVALID_VALUE for a token that was
   * freed before or that it never handed out. Any thread. */
  emm_status (*free)(emm_manager* self, emm_token token, emm_stream stream);
  /* Allocates page-locked host memory, with a device pointer if EMM_HOST_MAPPED is given, else
   * without. Any thread. */
  emm_status (*memhostalloc)(emm_manager* self, uint64_t size, uint32_t flags, emm_memory* memory);
  /* Page-locks memory that the host owns and keeps until free() or reset(), which unpin it at once,
   * also inside a deferral. A device pointer comes with it if EMM_PIN_MAPPED is given, else none.
   * Any thread. */
  emm_status (*mempin)(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                       emm_memory* memory);
  /* Managed memory. Any thread. */
  emm_status (*memallocmanaged)(emm_manager* self, uint64_t size, uint32_t attach,
                                emm_memory* memory);
  /* Makes a handle to the memory that contains the `size` bytes at `pointer`. Any thread. */
  emm_status (*get_ipc_handle)(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                               emm_ipc_handle* handle);
  emm_status (*get_memory_info)(emm_manager* self, emm_memory_info* info); /* Any thread. */
  /* Ends all memory of this manager, but no deferral of cleanup. The host may call it before
   * initialize(), and again. NULL: the host frees every live token, oldest first. Any thread. */
  void (*reset)(emm_manager* self);
  /* From defer_cleanup() to its end_defer_cleanup() the manager makes no deferred free. The pairs
   * nest, and the two calls of one may come from different threads. NULL for both: the manager
   * never defers. Any thread. */
  void (*defer_cleanup)(emm_manager* self);
  void (*end_defer_cleanup)(emm_manager* self);
  /* Returns the version of NBEP 7's interface, which is 1. NULL: 1. Any thread, before any other
   * slot. */
  int32_t (*interface_version)(emm_manager* self);

  /* Makes every deferred free, unless cleanup is deferred. NULL, or EMM_NOT_SUPPORTED as the
   * answer: there are none. Any thread. */
  emm_status (*flush)(emm_manager* self);
  /* Fills in the state. Must be cheap. NULL: nothing is known. Any thread. */
  void (*state)(emm_manager* self, emm_state* state);
  /* Writes lines for a person at the end of a run, as last_error() writes. One thread. */
  size_t (*report)(emm_manager* self, char* buffer, size_t size);
  /* Releases idle memory to the device until no more than `keep` bytes of it are held. NULL, or
   * EMM_NOT_SUPPORTED as the answer: the manager keeps no idle memory. Any thread. */
  emm_status (*trim)(emm_manager* self, uint64_t keep);
  /* Writes at most `count` of the manager's statistics, and returns how many there are. NULL: the
   * manager has none. Any thread. */
  size_t (*statistics)(emm_manager* self, emm_statistic* statistics, size_t count);
} emm_plugin_table_v1;

/* The one function of a plugin. The table stays valid while the library is loaded. Any thread. */
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void);

/* Only libemm.so exports what follows. libemm.so is a plugin whose manager is the bundled one that
 * the option `name` names: "name=pool,max=8GiB". Without a driver table it opens the device that
 * the option `open` names: "open=cuda", the default, or "open=sim;capacity=8GiB". */

typedef struct emm_manager_info {
  size_t struct_size;
  const char* name;
  const char* summary;
  const char* options;
} emm_manager_info;

/* Describes the bundled manager number `index`, counted from 0. EMM_NOT_FOUND past the last. Any
 * thread. */
EMM_PLUGIN_EXPORT emm_status emm_bundled_manager(size_t index, emm_manager_info* info);

/* A trace file that is being written in emmctl's own format, one operation a line. */
typedef struct emm_trace emm_trace;

/* Creates the file `path`, or truncates it; ".gz" and ".zst" compress. `header` is the JSON of the
 * first line; NULL writes the shortest one that is valid. On failure `*trace` is NULL, and
 * emm_trace_error() describes the failure. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_open(const char* path, const char* header,
                                            emm_trace** trace);
/* Appends one operation, given as the JSON of its line. Returns EMM_INVALID_VALUE and writes
 * nothing if the format does not allow it, and after emm_trace_end() or emm_trace_close(). An
 * operation without "time_ns" gets the time of this call if the header's clock is CLOCK_MONOTONIC.
 * Any thread: operations are written in the order of the calls. */
EMM_PLUGIN_EXPORT emm_status emm_trace_append(emm_trace* trace, const char* operation);
/* Appends the operation `end`, the last one. It states how many operations there were, how many the
 * caller knows to be missing, and what is live. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_end(emm_trace* trace, uint64_t lost);
/* Writes all that was appended to the file before it returns. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_flush(emm_trace* trace);
/* Flushes and closes `trace`, even if it returns an error. A later call with it does nothing and
 * returns EMM_INVALID_VALUE, also in a forked child. NULL does nothing. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_close(emm_trace* trace);
/* Converts a recording of any format that `emmctl convert` knows into a trace. `to` is a path as
 * for emm_trace_open(). Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_convert(const char* from, const char* to);
/* Writes the words of the last failure on this thread, as last_error() writes. */
EMM_PLUGIN_EXPORT size_t emm_trace_error(char* buffer, size_t size);

/* Sets the options of the managers that the frameworks of one process share. Each device has one,
 * which is made and initialized at the first request for it. Options and flags are those of
 * emm_create_v1. Returns EMM_INVALID_VALUE if a manager with other ones is in use. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_shared_use(const char* options, uint32_t flags);
/* Gives the manager of a device, for every slot of the table but destroy(). On failure `*self` is
 * NULL. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_shared_manager(int32_t device, emm_manager** self);
/* Ends the manager of a device. Does nothing and returns EMM_NOT_READY while the manager has live
 * memory. One thread, while no other call for the device runs. */
EMM_PLUGIN_EXPORT emm_status emm_shared_end(int32_t device);
/* From here on the peaks among a manager's statistics are the highest since now, as after PyTorch's
 * reset_peak_memory_stats(). EMM_NOT_SUPPORTED in managers that cannot do so. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_shared_reset_peaks(int32_t device);
/* Forgets the manager of a device whose context was reset by other code. Its memory is gone, and
 * its tokens must not be used again. Threads as for emm_shared_end(). */
EMM_PLUGIN_EXPORT void emm_shared_abandon(int32_t device);
/* Writes the words of the last failure of these functions or of emm_cupy_malloc() on this thread,
 * as last_error() writes. */
EMM_PLUGIN_EXPORT size_t emm_shared_error(char* buffer, size_t size);
/* Returns the status of that failure. */
EMM_PLUGIN_EXPORT emm_status emm_shared_status(void);

/* From now on the calls of the functions below are appended to `trace`, with times since `start_ns`
 * of the monotonic clock. Rows for live memory come first. NULL ends the recording, and must come
 * before `trace` is closed. Any thread. */
EMM_PLUGIN_EXPORT void emm_shared_record(emm_trace* trace, uint64_t start_ns);

/* The functions of PyTorch's CUDAPluggableAllocator, with its names and types; `stream` is a
 * cudaStream_t. They allocate from the shared managers. If there is no memory they throw
 * std::bad_alloc, since PyTorch understands nothing else; what() ends with the manager's state. Any
 * other failure throws std::runtime_error. Any thread.
 *
 * A free does nothing if no live memory begins at the address. If the address was handed out again
 * in the meantime, the free frees the new memory. A free with a wrong size frees the memory. The
 * manager's statistics count wrong frees ("wrong_frees.not_alive", "wrong_frees.inside",
 * "wrong_frees.size"). emm_shared_error() describes the last one, and the first of each kind is
 * written to stderr. */
EMM_PLUGIN_EXPORT void* emm_torch_alloc(ptrdiff_t size, int device, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_free(void* ptr, ptrdiff_t size, int device, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_record_stream(void* ptr, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_reset(void); /* PyTorch's empty_cache() calls it. */
EMM_PLUGIN_EXPORT void* emm_torch_base_alloc(void* ptr, size_t* size);
EMM_PLUGIN_EXPORT void emm_torch_memory_fraction(double fraction, int device);
/* Called before and after the capture of a CUDA graph whose pool has the id (`first`, `second`).
 * Memory for the streams that `filter` accepts belongs to that pool alone, until the pool has been
 * released as often as it was begun. `filter` is the address of a std::function<bool(cudaStream_t)>
 * of libstdc++, which is copied. */
EMM_PLUGIN_EXPORT void emm_torch_begin_allocate_to_pool(int device, uint64_t first, uint64_t second,
                                                        const void* filter);
EMM_PLUGIN_EXPORT void emm_torch_end_allocate_to_pool(int device, uint64_t first, uint64_t second);
EMM_PLUGIN_EXPORT void emm_torch_release_pool(int device, uint64_t first, uint64_t second);

/* The functions of CuPy's CFunctionAllocator. `current_stream` is its parameter: NULL for the
 * default stream, or the address of an intptr_t(void) that returns the calling thread's stream.
 * Memory is freed in the order of the stream that it was allocated on. Returns NULL if there is no
 * memory. Any thread. */
EMM_PLUGIN_EXPORT void* emm_cupy_malloc(void* current_stream, size_t size, int device);
EMM_PLUGIN_EXPORT void emm_cupy_free(void* current_stream, void* ptr, int device);

#ifdef __cplusplus
}
#endif

#endif /* EMM_PLUGIN_H */
