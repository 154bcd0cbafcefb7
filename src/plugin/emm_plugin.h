/* emm_plugin.h: a CUDA memory manager in a shared object, for emmctl and for whoever else loads it.
 *
 * A plugin exports one function, emm_plugin_v1(), which gives a table. The operations are those of
 * Numba's External Memory Management interface (NBEP 7), and have its names. C11 or later, or C++.
 *
 * True of all of it:
 * - Sizes are bytes. Answers are a CUresult: 0 is success, 2 out of memory, 801 not supported (see
 * below). A call that fails changes nothing.
 * - Memory is named by a token that the plugin chooses, any number but 0. To the host it is a
 * number and no address.
 * - Every struct begins with its size, as the side that fills it was compiled. Structs grow at
 * their end, and what lies beyond the other side's size is not there. Another first version would
 * be another function, emm_plugin_v2().
 * - A slot that is NULL is not offered; the host answers not_supported, or what is said at the
 * slot.
 * - "Any thread" means: also several at a time, also while other slots run. No exception may leave
 * a slot, and no slot may end the process.
 * - Text is UTF-8, ended by a NUL, and belongs to who gives it.
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

/* A CUresult. Those below are what a manager needs; any other is passed on. */
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
typedef uint64_t emm_token;  /* 0 names memory that owns nothing, and is never freed. */
typedef uint64_t emm_handle; /* An event, a library, a context, a pool, physical memory. */

/* One manager, which serves one context. The plugin's own: define struct emm_manager as you like.
 */
typedef struct emm_manager emm_manager;

/* A number that is not known, or a size that is not counted. */
#define EMM_NOT_KNOWN UINT64_MAX

/* flags of memhostalloc: CU_MEMHOSTALLOC_*; of mempin: CU_MEMHOSTREGISTER_* */
enum { EMM_HOST_PORTABLE = 1, EMM_HOST_MAPPED = 2, EMM_HOST_WRITE_COMBINED = 4 };
enum { EMM_PIN_PORTABLE = 1, EMM_PIN_MAPPED = 2, EMM_PIN_IO = 4, EMM_PIN_READ_ONLY = 8 };
/* attach of memallocmanaged: CU_MEM_ATTACH_* */
enum { EMM_ATTACH_GLOBAL = 1, EMM_ATTACH_HOST = 2 };

/* Memory that was handed out. The host sets struct_size, the plugin the rest. */
typedef struct emm_memory {
  size_t struct_size;
  emm_token token;
  emm_device_ptr device_pointer; /* 0 where the device does not see it. */
  void* host_pointer;            /* NULL where the host does not see it. */
} emm_memory;

typedef struct emm_memory_info {
  size_t struct_size;
  uint64_t free;
  uint64_t total;
} emm_memory_info;

/* Device memory as another process opens it: the driver's 64 bytes, and where the part is in what
 * they name. */
typedef struct emm_ipc_handle {
  size_t struct_size;
  unsigned char bytes[64];
  uint64_t offset; /* Of the exported part from the base of the driver's allocation. */
  int32_t pci_domain_id, pci_bus_id, pci_device_id; /* The device; -1: not known. */
} emm_ipc_handle;

/* What a manager says of itself. The host sets all to EMM_NOT_KNOWN, the plugin what it knows. */
typedef struct emm_state {
  size_t struct_size;
  uint64_t live_bytes;         /* Handed out, as requested. */
  uint64_t reserved_bytes;     /* Held from the device. */
  uint64_t largest_free_bytes; /* The largest block that could be handed out without the device. */
  uint64_t pending_count;      /* Frees asked for and not yet made. */
  uint64_t pending_bytes;
} emm_state;

/* A number that a manager counts, under the name that torch.cuda.memory_stats() has for it
 * ("allocated_bytes.all.peak"), or a name of its own. The name lives as long as the library. */
typedef struct emm_statistic {
  const char* name;
  uint64_t value;
} emm_statistic;

/* The host's device, for a plugin that makes its driver calls through this table: it then runs on a
 * simulated device too. Every function takes `user` first and may be called from any thread, not
 * from inside another; the context is made current around it. They do what the functions of the
 * driver of these names do. */
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

  /* Of the device. These cost nothing and cannot fail. */
  emm_handle (*context_handle)(void* user);
  void (*device_identity)(void* user, int32_t pci[3]); /* domain, bus, device */
  const char* (*device_name)(void* user);
  int32_t (*device_ordinal)(void* user);
  int32_t (*can_map_host_memory)(void* user);
  uint64_t (*held_bytes)(void* user); /* What the context holds of the device. */
  uint64_t (*largest_free_bytes)(
      void* user); /* The largest mem_alloc that can succeed; 0: not known. */
  uint64_t (*log_address)(void* user, const void* host); /* What a log shows for a host address. */

  /* cudart's door to the same device. NULL where there is no cudart. */
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

  /* Virtual memory, of this device. */
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

/* What a manager may tell its host. Any slot may be NULL. Any thread; must not be called with a
 * lock held that a slot of the manager needs. */
typedef struct emm_host_v1 {
  size_t struct_size;
  void* user;
  /* The host's time: simulated on a simulated device. */
  uint64_t (*now_ns)(void* user);
  /* A free was put off. `call` is the driver's: "mem_free", "mem_free_host"; `size` may be
   * EMM_NOT_KNOWN. */
  void (*pending_added)(void* user, const char* call, uint64_t size);
  /* So many frees that had been put off were made, of so many bytes. */
  void (*flushed)(void* user, uint64_t count, uint64_t bytes);
  /* A free failed where nobody waits for its answer. `words` may be NULL. */
  void (*free_failed)(void* user, emm_status status, const char* words);
} emm_host_v1;

/* Only a look at the options: destroy() is the only call that follows, or interface_version(). */
#define EMM_CREATE_PROBE 1u
/* Where NBEP 7 and Numba's code differ, do as Numba does. */
#define EMM_CREATE_PROFILE_NUMBA 2u

/* What a manager is made of. All of it but the text outlives the manager. */
typedef struct emm_create_v1 {
  size_t struct_size;
  uint32_t flags; /* EMM_CREATE_* */
  int32_t device; /* The ordinal of the device. */
  const char*
      options; /* What follows the plugin's name: "key=value,key=value"; "" where nothing does. */
  const emm_driver_v1* driver; /* NULL: call libcuda yourself. */
  const emm_host_v1* host;     /* May be NULL. */
} emm_create_v1;

/* This plugin calls libcuda or libcudart itself: the host makes the device's context current around
 * every slot. */
#define EMM_PLUGIN_CALLS_CUDA 1u

typedef struct emm_plugin_table_v1 {
  size_t struct_size;   /* sizeof(emm_plugin_table_v1) */
  uint32_t abi_version; /* EMM_PLUGIN_ABI_VERSION */
  uint32_t flags;       /* EMM_PLUGIN_* */
  const char* name;     /* Of the manager, for people. */
  const char* summary;  /* One line, or NULL. */
  const char* options;  /* The options it knows, for people, or NULL. */

  /* Needed. Makes a manager; touches no device. Options that it does not know are
   * EMM_INVALID_VALUE. Any thread. */
  emm_status (*create)(const emm_create_v1* create, emm_manager** self);
  /* Needed. Ends a manager and what it still holds. One thread, when no other slot runs, and none
   * after it. */
  void (*destroy)(emm_manager* self);
  /* Words for the last call on this thread that failed; of create() with self NULL. Writes at most
   * `size` bytes with the NUL, and returns how long the text is without it. Any thread. */
  size_t (*last_error)(emm_manager* self, char* buffer, size_t size);

  /* Before the first allocation, and again any number of times. NULL: nothing to do. Any thread. */
  emm_status (*initialize)(emm_manager* self);
  /* Needed. Device memory, ordered after the work on `stream` where the manager knows streams. Any
   * thread. */
  emm_status (*memalloc)(emm_manager* self, uint64_t size, emm_stream stream, emm_memory* memory);
  /* Needed. Ends any memory of this manager: the finalizer. Once for each token, at any time, also
   * late: a token that reset() has ended does nothing. An answer other than 0 is counted, and
   * cannot be acted on. libemm.so answers EMM_INVALID_VALUE to a token that was freed before or
   * that it never handed out. Any thread. */
  emm_status (*free)(emm_manager* self, emm_token token, emm_stream stream);
  /* Page-locked host memory; with a device pointer where EMM_HOST_MAPPED is asked for. Any thread.
   */
  emm_status (*memhostalloc)(emm_manager* self, uint64_t size, uint32_t flags, emm_memory* memory);
  /* Page-locks memory of the host's own, which lives until free(). Any thread. */
  emm_status (*mempin)(emm_manager* self, void* pointer, uint64_t size, uint32_t flags,
                       emm_memory* memory);
  /* Managed memory. Any thread. */
  emm_status (*memallocmanaged)(emm_manager* self, uint64_t size, uint32_t attach,
                                emm_memory* memory);
  /* A handle to the memory that the `size` bytes at `pointer` lie in. Any thread. */
  emm_status (*get_ipc_handle)(emm_manager* self, emm_device_ptr pointer, uint64_t size,
                               emm_ipc_handle* handle);
  emm_status (*get_memory_info)(emm_manager* self, emm_memory_info* info); /* Any thread. */
  /* Ends all memory of this manager. May come before initialize(), and again. NULL: the host frees
   * every token that is alive, oldest first. Any thread. */
  void (*reset)(emm_manager* self);
  /* From here to its end_defer_cleanup() cleanup is deferred; they nest. NULL, both or none:
   * nothing is ever deferred. Any thread, and the end may be on another. */
  void (*defer_cleanup)(emm_manager* self);
  void (*end_defer_cleanup)(emm_manager* self);
  /* The version of NBEP 7's interface, which is 1. NULL: 1. Any thread, before anything else. */
  int32_t (*interface_version)(emm_manager* self);

  /* Makes every free that was put off, unless cleanup is deferred. NULL: there are none. Any
   * thread. */
  emm_status (*flush)(emm_manager* self);
  /* NULL: nothing is known. Any thread; must be cheap. */
  void (*state)(emm_manager* self, emm_state* state);
  /* Lines for a person at the end of a run, written as last_error() writes. One thread. */
  size_t (*report)(emm_manager* self, char* buffer, size_t size);
  /* Gives idle memory back to the device until no more than `keep` bytes of it are held. NULL: none
   * is kept. Any thread. */
  emm_status (*trim)(emm_manager* self, uint64_t keep);
  /* What it counts: writes at most `count` of its numbers, and returns how many there are. NULL: it
   * does not count. Any thread. */
  size_t (*statistics)(emm_manager* self, emm_statistic* statistics, size_t count);
} emm_plugin_table_v1;

/* The one function of a plugin. The table lives as long as the library. Any thread. */
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void);

/* What follows is libemm.so's alone. libemm.so is a plugin: its manager is the bundled one that the
 * option `name` names, "name=pool,max=8GiB". Made without a driver table it opens the device
 * itself: "open=cuda", which is what holds where the option is not given, or
 * "open=sim;capacity=8GiB". */

typedef struct emm_manager_info {
  size_t struct_size;
  const char* name;
  const char* summary;
  const char* options;
} emm_manager_info;

/* The bundled manager number `index`, from 0; EMM_NOT_FOUND behind the last. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_bundled_manager(size_t index, emm_manager_info* info);

/* A trace file that is being written, in emmctl's own format, one operation a line. */
typedef struct emm_trace emm_trace;

/* `path` is truncated; ".gz" and ".zst" pack. `header` is the JSON of the first line, or NULL for
 * the least one. On failure `*trace` is NULL and the words are emm_trace_error()'s. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_open(const char* path, const char* header,
                                            emm_trace** trace);
/* One operation, as the JSON of its line. EMM_INVALID_VALUE and nothing written where the format
 * does not know it so, and after emm_trace_end() and emm_trace_close(). One without "time_ns" is
 * given that of the call, where the header's clock is CLOCK_MONOTONIC. Any thread: operations are
 * written in the order of the calls. */
EMM_PLUGIN_EXPORT emm_status emm_trace_append(emm_trace* trace, const char* operation);
/* The operation `end`, the last one: how many there were, how many the caller knows to be missing,
 * and what is alive. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_end(emm_trace* trace, uint64_t lost);
/* What was appended is in the file when this returns. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_flush(emm_trace* trace);
/* Flushes, and ends `trace` whatever it answers: a later call with it, also in a child that fork()
 * made of the process, does nothing and is EMM_INVALID_VALUE. NULL does nothing. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_close(emm_trace* trace);
/* A recording of any format that `emmctl convert` knows, as a trace. `to` is as of
 * emm_trace_open(). Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_trace_convert(const char* from, const char* to);
/* The words of the last failure on this thread, written as last_error() writes. */
EMM_PLUGIN_EXPORT size_t emm_trace_error(char* buffer, size_t size);

/* The managers that the frameworks of one process share: one for each device, made when it is first
 * asked for and initialized. Options and flags as of emm_create_v1; EMM_INVALID_VALUE where others
 * are in use. Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_shared_use(const char* options, uint32_t flags);
/* The manager of a device, for the slots of the table but destroy(). On failure `*self` is NULL.
 * Any thread. */
EMM_PLUGIN_EXPORT emm_status emm_shared_manager(int32_t device, emm_manager** self);
/* Ends the manager of a device. EMM_NOT_READY, and nothing done, while memory of it lives. One
 * thread, when no other call for the device runs. */
EMM_PLUGIN_EXPORT emm_status emm_shared_end(int32_t device);
/* Forgets the manager of a device whose context somebody else has reset: what it handed out is
 * gone. Its tokens must not be used again. As emm_shared_end(). */
EMM_PLUGIN_EXPORT void emm_shared_abandon(int32_t device);
/* The words of the last failure on this thread of these and of emm_cupy_malloc(), written as
 * last_error() writes. */
EMM_PLUGIN_EXPORT size_t emm_shared_error(char* buffer, size_t size);
/* The status of that failure. */
EMM_PLUGIN_EXPORT emm_status emm_shared_status(void);

/* What the functions below are asked is appended to `trace`, with times since `start_ns` of the
 * monotonic clock, after rows for what is alive; NULL ends it, and must come before `trace` is
 * closed. Any thread. */
EMM_PLUGIN_EXPORT void emm_shared_record(emm_trace* trace, uint64_t start_ns);

/* For PyTorch's CUDAPluggableAllocator, with its names and types; `stream` is a cudaStream_t. They
 * draw on the shared managers. No memory is an exception, std::bad_alloc, since PyTorch knows no
 * other word for it; what() ends with the manager's state then. Another failure is a
 * std::runtime_error. Any thread.
 *
 * A free of an address where no memory begins that is alive does nothing, one of an address that
 * was handed out again since frees that memory, and one with another size than was asked for frees.
 * What is wrong with a free is among the manager's statistics ("wrong_frees.not_alive",
 * "...inside",
 * "...size"), in emm_shared_error(), and, the first of each kind, on stderr. */
EMM_PLUGIN_EXPORT void* emm_torch_alloc(ptrdiff_t size, int device, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_free(void* ptr, ptrdiff_t size, int device, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_record_stream(void* ptr, void* stream);
EMM_PLUGIN_EXPORT void emm_torch_reset(void); /* What PyTorch's empty_cache() asks for. */
EMM_PLUGIN_EXPORT void* emm_torch_base_alloc(void* ptr, size_t* size);
EMM_PLUGIN_EXPORT void emm_torch_memory_fraction(double fraction, int device);
/* Around the capture of a CUDA graph, whose pool has the id (`first`, `second`): memory for the
 * streams that `filter` takes is nobody else's until the pool is released as often as it was begun.
 * `filter` is the address of a std::function<bool(cudaStream_t)> of libstdc++, copied here. */
EMM_PLUGIN_EXPORT void emm_torch_begin_allocate_to_pool(int device, uint64_t first, uint64_t second,
                                                        const void* filter);
EMM_PLUGIN_EXPORT void emm_torch_end_allocate_to_pool(int device, uint64_t first, uint64_t second);
EMM_PLUGIN_EXPORT void emm_torch_release_pool(int device, uint64_t first, uint64_t second);

/* For CuPy's CFunctionAllocator. `current_stream` is its parameter: NULL for the default stream, or
 * the address of an intptr_t(void) that gives the calling thread's. Memory is freed in the order of
 * the stream it was made on. No memory is NULL. Any thread. */
EMM_PLUGIN_EXPORT void* emm_cupy_malloc(void* current_stream, size_t size, int device);
EMM_PLUGIN_EXPORT void emm_cupy_free(void* current_stream, void* ptr, int device);

#ifdef __cplusplus
}
#endif

#endif /* EMM_PLUGIN_H */
