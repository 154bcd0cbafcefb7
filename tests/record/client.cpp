// A CUDA program that tests record. It finds the driver as cudart does: dlopen, dlsym, and
// cuGetProcAddress for half of its functions. What it did is on its standard output.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Code = int;
using Address = std::uint64_t;
using Handle = std::uint64_t;

void* library() {
  // By its full path, as some programs do.
  const char* const full = std::getenv("CLIENT_LIBCUDA");
  static void* const opened = dlopen(full != nullptr ? full : "libcuda.so.1", RTLD_NOW);
  if (opened == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(99);
  }
  return opened;
}

/// A function by its symbol, or by cuGetProcAddress under its plain name.
template <class... Parameters>
class Function {
 public:
  explicit Function(const char* symbol) : symbol_(symbol) {}
  Function(const char* plain, int version) : symbol_(plain), version_(version) {}

  /// Inlined even without optimisation: a call stack begins with the function that asked.
  [[gnu::always_inline]] Code operator()(Parameters... arguments) {
    if (function_ == nullptr) find();
    return function_(arguments...);
  }

 private:
  void find() {
    void* found = nullptr;
    if (version_ == 0) {
      found = dlsym(library(), symbol_);
    } else {
      using Ask = Code (*)(const char*, void**, int, std::uint64_t, int*);
      reinterpret_cast<Ask>(dlsym(library(), "cuGetProcAddress_v2"))(symbol_, &found, version_, 0,
                                                                     nullptr);
    }
    if (found == nullptr) {
      std::fprintf(stderr, "no %s\n", symbol_);
      std::exit(98);
    }
    function_ = reinterpret_cast<Code (*)(Parameters...)>(found);
  }
  const char* symbol_;
  int version_ = 0;
  Code (*function_)(Parameters...) = nullptr;
};

Function<unsigned> init("cuInit");
Function<Handle*, int> retain("cuDevicePrimaryCtxRetain");
Function<int> release_context("cuDevicePrimaryCtxRelease_v2");
Function<Handle, unsigned> peer_enable("cuCtxEnablePeerAccess");
Function<Handle> peer_disable("cuCtxDisablePeerAccess");
Function<int> reset("cuDevicePrimaryCtxReset_v2");
Function<Handle> set_current("cuCtxSetCurrent");
Function<Handle> destroy_context("cuCtxDestroy_v2");
Function<Address*, std::size_t> alloc("cuMemAlloc_v2");
Function<Address> free_("cuMemFree_v2");
Function<Address*, std::size_t, unsigned> alloc_managed("cuMemAllocManaged", 12000);
Function<Address*, std::size_t, unsigned> host_alloc("cuMemHostAlloc", 12000);
Function<Address> free_host("cuMemFreeHost", 12000);
Function<void*, std::size_t, unsigned> host_register("cuMemHostRegister", 12000);
Function<void*> host_unregister("cuMemHostUnregister", 12000);
Function<Address*, std::size_t, Handle> alloc_async("cuMemAllocAsync", 12000);
Function<Address, Handle> free_async("cuMemFreeAsync", 12000);
Function<std::size_t*, std::size_t*> get_info("cuMemGetInfo", 12000);
Function<Handle*, unsigned> stream_create("cuStreamCreate", 12000);
Function<Handle> stream_destroy("cuStreamDestroy", 12000);
Function<Handle> stream_synchronize("cuStreamSynchronize", 12000);
Function<Handle, Handle, unsigned> stream_wait("cuStreamWaitEvent", 12000);
Function<Handle*, unsigned> event_create("cuEventCreate", 12000);
Function<Handle> event_destroy("cuEventDestroy", 12000);
Function<Handle, Handle> event_record("cuEventRecord", 12000);
Function<Handle> event_synchronize("cuEventSynchronize", 12000);
Function<Handle, void (*)(void*), void*> host_function("cuLaunchHostFunc", 12000);
Function<Handle, int> begin_capture("cuStreamBeginCapture", 12000);
Function<Handle, Handle*> end_capture("cuStreamEndCapture", 12000);
Function<Handle*, Handle, unsigned long long> instantiate("cuGraphInstantiateWithFlags");
Function<Handle, Handle> launch("cuGraphLaunch", 12000);
Function<Handle> destroy_graph("cuGraphDestroy");
Function<Handle> destroy_executable("cuGraphExecDestroy");
Function<> synchronize("cuCtxSynchronize", 12000);
Function<void*, Address> ipc_export("cuIpcGetMemHandle", 12000);
struct Location {
  int type = 1, id = 0;
};
struct PoolProperties {
  int type = 1, handles = 0;
  Location location;
  void* security = nullptr;
  std::size_t most = 0;
  unsigned char rest[56] = {};
};
struct AllocationProperties {
  int type = 1, handles = 0;
  Location location;
  void* rest[4] = {};
};
struct Access {
  Location location;
  int flags = 3;
};
Function<Handle*, const PoolProperties*> pool_create("cuMemPoolCreate");
Function<Handle> pool_destroy("cuMemPoolDestroy");
Function<Handle, std::size_t> pool_trim("cuMemPoolTrimTo");
Function<Address*, std::size_t, Handle, Handle> alloc_from("cuMemAllocFromPoolAsync");
Function<Address*, std::size_t, std::size_t, Address, unsigned long long> reserve(
    "cuMemAddressReserve");
Function<Address, std::size_t> unreserve("cuMemAddressFree");
Function<Handle*, std::size_t, const AllocationProperties*, unsigned long long> create(
    "cuMemCreate");
Function<Handle> release("cuMemRelease");
Function<Handle*, Address> retain_handle("cuMemRetainAllocationHandle");
Function<Handle> stream_query("cuStreamQuery");
Function<Handle> event_query("cuEventQuery");
Function<Address, std::size_t, std::size_t, Handle, unsigned long long> map("cuMemMap");
Function<Address, std::size_t> unmap("cuMemUnmap");
Function<Address, std::size_t, const Access*, std::size_t> set_access("cuMemSetAccess");

void must(Code code, const char* what) {
  if (code == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, code);
  std::_Exit(97);
}
#define MUST(call) must(call, #call)

Handle begin() {
  MUST(init(0));
  Handle context = 0;
  MUST(retain(&context, 0));
  MUST(set_current(context));
  return context;
}

/// One call of each kind that a recording knows.
int every_kind() {
  begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Address a = 0, b = 0, managed = 0, host = 0;
  MUST(alloc(&a, 3 * kMiB));
  std::printf("refused %d\n", alloc(&b, std::size_t{1} << 50));
  MUST(alloc_managed(&managed, kMiB, 1));
  MUST(host_alloc(&host, kMiB, 3));
  void* const buffer = std::aligned_alloc(4096, kMiB);
  MUST(host_register(buffer, kMiB, 2));
  MUST(host_unregister(buffer));
  std::free(buffer);
  MUST(free_host(host));
  MUST(free_(managed));

  Handle one = 0, two = 0, event = 0;
  MUST(stream_create(&one, 1));
  MUST(stream_create(&two, 0));
  MUST(event_create(&event, 2));
  MUST(alloc_async(&b, 5 * kMiB, one));
  MUST(event_record(event, one));
  MUST(stream_wait(two, event, 0));
  MUST(free_async(b, two));
  MUST(event_record(event, two));
  MUST(event_synchronize(event));
  MUST(host_function(
      one, [](void*) {}, nullptr));
  MUST(stream_synchronize(one));
  Handle pool = 0;
  PoolProperties properties;
  MUST(pool_create(&pool, &properties));
  MUST(alloc_from(&b, 7 * kMiB, pool, one));
  MUST(free_async(b, one));
  MUST(stream_synchronize(one));
  MUST(pool_trim(pool, 0));
  MUST(pool_destroy(pool));
  MUST(event_destroy(event));
  MUST(stream_destroy(one));
  MUST(stream_destroy(two));

  Address range = 0;
  Handle physical = 0;
  AllocationProperties about;
  Access access;
  MUST(reserve(&range, 4 * kMiB, 0, 0, 0));
  MUST(create(&physical, 2 * kMiB, &about, 0));
  MUST(map(range, 2 * kMiB, 0, physical, 0));
  MUST(set_access(range, 2 * kMiB, &access, 1));
  MUST(release(physical));
  MUST(unmap(range, 2 * kMiB));
  MUST(unreserve(range, 4 * kMiB));

  unsigned char handle[64];
  MUST(ipc_export(handle, a));
  std::size_t free = 0, total = 0;
  MUST(get_info(&free, &total));
  std::printf("free_twice %d\n", (MUST(free_(a)), free_(a)));
  MUST(alloc(&a, kMiB));
  MUST(synchronize());
  MUST(reset(0));
  return 7;
}

/// A call by symbol, of whatever parameters. Its answer is nobody's concern.
template <class... Parameters>
void make(const char* symbol, Parameters... arguments) {
  (void)Function<Parameters...>(symbol)(arguments...);
}

/// Calls that the simulated device does not answer, before a driver that answers all of them.
int rare_kinds() {
  const auto context = begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  struct Bytes {
    unsigned char all[64] = {1};
  } bytes;
  struct Array {
    std::size_t width = 64, height = 32;
    int format = 0x20;
    unsigned channels = 4;
  } flat;
  struct Solid {
    std::size_t width = 64, height = 32, depth = 2;
    int format = 1;
    unsigned channels = 1, flags = 0;
  } solid;
  Location location;
  Access access;
  const Handle stream = 0;

  Address pitched = 0;
  std::size_t pitch = 0;
  Handle array = 0, block = 0, mipmap = 0;
  make("cuMemAllocPitch_v2", &pitched, &pitch, std::size_t{1000}, std::size_t{10}, 4u);
  make("cuArrayCreate_v2", &array, &flat);
  make("cuArray3DCreate_v2", &block, &solid);
  make("cuMipmappedArrayCreate", &mipmap, &solid, 1u);
  make("cuMemFree_v2", pitched);
  make("cuArrayDestroy", array);
  make("cuArrayDestroy", block);

  Handle event = 0, opened = 0;
  make("cuEventCreate", &event, 6u);
  make("cuIpcGetEventHandle", &bytes, event);
  make("cuIpcOpenEventHandle", &opened, bytes);
  make("cuStreamWaitEvent", stream, opened, 0u);
  make("cuEventDestroy_v2", opened);
  make("cuEventDestroy_v2", event);

  Handle usual = 0, current = 0, pool = 0, imported = 0;
  PoolProperties properties;
  const std::uint64_t threshold = 64 * kMiB;
  make("cuMemGetDefaultMemPool", &usual, &location, 1);
  make("cuMemGetMemPool", &current, &location, 1);
  make("cuMemPoolSetAttribute", usual, 4, &threshold);
  make("cuMemPoolTrimTo", usual, kMiB);
  make("cuMemPoolCreate", &pool, &properties);
  make("cuMemPoolSetAccess", pool, &access, std::size_t{1});
  make("cuMemSetMemPool", &location, 1, pool);
  Address made = 0, theirs = 0;
  make("cuMemAllocAsync", &made, kMiB, stream);  // of the pool that was set
  make("cuMemPoolExportToShareableHandle", &bytes, pool, 1, 0ull);
  make("cuMemPoolImportFromShareableHandle", &imported, &bytes, 1, 0ull);
  make("cuMemPoolExportPointer", &bytes, made);
  make("cuMemPoolImportPointer", &theirs, imported, &bytes);
  make("cuMemFreeAsync", theirs, stream);
  make("cuMemFreeAsync", made, stream);
  make("cuDeviceSetMemPool", 0, usual);
  make("cuMemPoolDestroy", pool);

  Address range = 0;
  Handle physical = 0, from = 0, multicast = 0;
  AllocationProperties about;
  make("cuMemAddressReserve", &range, 4 * kMiB, std::size_t{0}, Address{0}, 0ull);
  make("cuMemCreate", &physical, 2 * kMiB, &about, 0ull);
  make("cuMemExportToShareableHandle", &bytes, physical, 1, 0ull);
  make("cuMemImportFromShareableHandle", &from, &bytes, 1);
  make("cuMemMap", range, 2 * kMiB, std::size_t{0}, from, 0ull);
  make("cuMemSetAccess", range, 2 * kMiB, &access, std::size_t{1});
  make("cuMemGetHandleForAddressRange", &bytes, range, 2 * kMiB, 1, 0ull);
  make("cuMemUnmap", range, 2 * kMiB);
  make("cuMemRelease", from);
  struct Multicast {
    unsigned devices = 1;
    std::size_t size = std::size_t{2} << 20;
    unsigned long long kinds = 0, flags = 0;
  } team;
  make("cuMulticastCreate", &multicast, &team);
  make("cuMulticastAddDevice", multicast, 0);
  make("cuMulticastBindMem", multicast, std::size_t{0}, physical, std::size_t{0}, kMiB, 0ull);
  make("cuMulticastBindAddr", multicast, kMiB, range, kMiB, 0ull);
  make("cuMemMap", range, 2 * kMiB, std::size_t{0}, multicast, 0ull);
  make("cuMemUnmap", range, 2 * kMiB);
  make("cuMulticastUnbind", multicast, 0, std::size_t{0}, 2 * kMiB);
  make("cuMemRelease", multicast);
  struct Part {
    int resource = 1, pad = 0;
    Handle array = 0;
    unsigned char rest[40] = {};
    int operation = 1, kind = 0;
    Handle memory = 0;
    unsigned char end[24] = {};
  } part;
  part.array = mipmap;
  part.memory = physical;
  make("cuMemMapArrayAsync", &part, 1u, stream);
  make("cuMipmappedArrayDestroy", mipmap);
  make("cuMemRelease", physical);
  make("cuMemAddressFree", range, 4 * kMiB);

  struct External {
    int type = 1;
    void* handle[2] = {};
    unsigned long long size = 0;
    unsigned rest[18] = {};
  } outside;
  outside.size = 8 * kMiB;
  struct Buffer {
    unsigned long long offset = 0, size = 0;
    unsigned rest[18] = {};
  } buffer;
  buffer.size = 2 * kMiB;
  struct Levels {
    unsigned long long offset = 0;
    Solid array;
    unsigned levels = 1, rest[17] = {};
  } levels;
  Handle external = 0;
  make("cuImportExternalMemory", &external, &outside);
  make("cuExternalMemoryGetMappedBuffer", &theirs, external, &buffer);
  make("cuExternalMemoryGetMappedMipmappedArray", &mipmap, external, &levels);
  make("cuMemFree_v2", theirs);
  make("cuMipmappedArrayDestroy", mipmap);
  make("cuDestroyExternalMemory", external);

  Handle green = 0, side = 0, graph = 0x800000, node = 0;
  make("cuGreenCtxCreate", &green, Handle{0}, 0, 1u);
  make("cuGreenCtxStreamCreate", &side, green, 1u, 0);
  make("cuStreamWaitValue32_v2", side, range, 7u, 0u);
  make("cuStreamWaitValue64_v2", side, range, 8ull, 1u);
  make("cuStreamBeginCaptureToGraph", side, graph, &node, &bytes, std::size_t{0}, 0);
  make("cuStreamEndCapture", side, &graph);
  struct Node {
    int type = 10, reserved[3] = {};
    PoolProperties pool;
    void* access = nullptr;
    std::size_t count = 0, size = 0;
    Address address = 0;
    unsigned char rest[120] = {};
  } take;
  take.size = 3 * kMiB;
  take.address = 0x700000;
  struct Free {
    int type = 11, reserved[3] = {};
    Address address = 0x700000;
    unsigned char rest[232] = {};
  } give;
  make("cuGraphAddNode", &node, graph, &node, std::size_t{0}, &take);
  make("cuGraphAddNode_v2", &node, graph, &node, &bytes, std::size_t{0}, &give);
  take.type = 0;  // a kernel's: no memory
  make("cuGraphAddNode", &node, graph, &node, std::size_t{0}, &take);
  make("cuDeviceGraphMemTrim", 0);
  make("cuStreamDestroy_v2", side);
  make("cuGreenCtxDestroy", green);

  Handle loaded = 0, module = 0, second = 0;
  void* const none = nullptr;
  make("cuLibraryLoadFromFile", &loaded, "kernels.cubin", none, none, 0u, none, none, 0u);
  make("cuLibraryUnload", loaded);
  make("cuModuleLoadData", &module, "image");
  make("cuModuleUnload", module);
  make("cuCtxCreate_v2", &second, 0u, 0);
  make("cuCtxDetach", second);
  make("cuCtxSynchronize_v2", context);
  return 0;
}

/// What a program tells its pools, the default one among them.
int pools() {
  begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Handle usual = 0, pool = 0;
  PoolProperties properties;
  std::uint64_t threshold = 64 * kMiB;
  Address memory = 0;
  Function<Handle*, int> default_pool("cuDeviceGetDefaultMemPool");
  Function<Handle, int, const void*> set_attribute("cuMemPoolSetAttribute");
  MUST(default_pool(&usual, 0));
  MUST(set_attribute(usual, 4, &threshold));
  MUST(alloc_async(&memory, 8 * kMiB, 0));
  MUST(free_async(memory, 0));
  MUST(synchronize());
  MUST(pool_trim(usual, kMiB));
  MUST(pool_create(&pool, &properties));
  threshold = ~std::uint64_t{0};
  MUST(set_attribute(pool, 4, &threshold));
  MUST(alloc_from(&memory, 7 * kMiB, pool, 0));
  MUST(free_async(memory, 0));
  MUST(synchronize());
  MUST(pool_trim(pool, 2 * kMiB));
  MUST(pool_destroy(pool));
  return 0;
}

/// A pool of host memory. Waits for a line on standard input where it holds memory of it, if told.
int host_pools(bool waits) {
  begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Handle pool = 0;
  Address early = 0, late = 0, on_device = 0;
  PoolProperties properties;
  properties.location.type = 2;  // CU_MEM_LOCATION_TYPE_HOST
  MUST(pool_create(&pool, &properties));
  MUST(alloc_from(&early, 64 * kMiB, pool, 0));
  if (waits) {
    std::puts("ready");
    std::fflush(stdout);
    (void)std::getchar();
  }
  MUST(alloc_from(&late, 64 * kMiB, pool, 0));
  MUST(free_async(early, 0));
  MUST(free_async(late, 0));
  MUST(pool_trim(pool, 0));
  MUST(pool_destroy(pool));
  MUST(alloc_async(&on_device, 5 * kMiB, 0));
  if (waits) {
    std::puts("done");
    std::fflush(stdout);
    (void)std::getchar();
  }
  return 0;
}

/// A graph that is captured on two streams and launched three times, with memory of its own; a
/// capture that fails; host functions; memory that goes from stream to stream in order.
int graphs() {
  begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  static std::atomic<int> ran{0};
  Handle one = 0, two = 0, event = 0, back = 0, graph = 0, executable = 0;
  MUST(stream_create(&one, 1));
  MUST(stream_create(&two, 1));
  MUST(event_create(&event, 2));
  MUST(event_create(&back, 2));
  Address outside = 0, inside = 0;
  MUST(alloc_async(&outside, 4 * kMiB, one));
  MUST(begin_capture(one, 0));
  MUST(alloc_async(&inside, 3 * kMiB, one));
  MUST(event_record(event, one));
  MUST(stream_wait(two, event, 0));
  MUST(host_function(
      two, [](void*) { ++ran; }, nullptr));
  MUST(event_record(back, two));
  MUST(stream_wait(one, back, 0));
  MUST(free_async(inside, one));
  MUST(end_capture(one, &graph));
  MUST(instantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) MUST(launch(executable, one));
  MUST(stream_synchronize(one));
  std::printf("ran %d\n", ran.load());
  MUST(destroy_executable(executable));
  MUST(destroy_graph(graph));

  MUST(begin_capture(two, 0));
  std::printf("refused %d\n", stream_synchronize(two));
  std::printf("ended %d\n", end_capture(two, &graph));

  // What stream one freed goes to stream two behind an event.
  MUST(event_record(event, one));
  MUST(stream_wait(two, event, 0));
  MUST(free_async(outside, two));
  MUST(alloc_async(&outside, 4 * kMiB, two));
  MUST(free_async(outside, two));
  MUST(synchronize());
  MUST(event_destroy(event));
  MUST(event_destroy(back));
  MUST(stream_destroy(one));
  MUST(stream_destroy(two));
  return 0;
}

/// Memory that is freed on a stream that nothing orders behind its own.
int race() {
  begin();
  Handle one = 0, two = 0;
  MUST(stream_create(&one, 1));
  MUST(stream_create(&two, 1));
  Address memory = 0;
  MUST(alloc_async(&memory, 1u << 20, one));
  MUST(free_async(memory, two));
  MUST(alloc_async(&memory, 1u << 20, two));
  MUST(free_async(memory, two));
  MUST(synchronize());
  return 0;
}

/// Memory on two devices, of which one may reach the other's.
int two_devices() {
  const auto first = begin();
  Handle second = 0;
  MUST(retain(&second, 1));
  Address a = 0, b = 0;
  MUST(alloc(&a, 1u << 20));
  MUST(set_current(second));
  MUST(alloc(&b, 2u << 20));
  MUST(peer_enable(first, 0));
  MUST(peer_disable(first));
  MUST(free_(b));
  MUST(set_current(first));
  MUST(free_(a));
  MUST(set_current(second));
  MUST(alloc(&b, 3u << 20));
  MUST(release_context(1));
  return 0;
}

/// Threads that free each other's memory: what one allocates, any other frees.
int exchange(int count, int calls) {
  const auto context = begin();
  std::vector<std::atomic<Address>> slots(64);
  std::vector<std::thread> threads;
  std::atomic<long> made{0};
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      MUST(set_current(context));
      std::uint32_t random = static_cast<std::uint32_t>(t) * 2654435761u + 1;
      long mine = 0;
      for (int i = 0; i < calls; ++i) {
        random = random * 1664525u + 1013904223u;
        Address fresh = 0;
        MUST(alloc(&fresh, 512u << (random >> 29)));
        ++mine;
        const auto old = slots[(random >> 8) % slots.size()].exchange(fresh);
        if (old != 0) {
          MUST(free_(old));
          ++mine;
        }
      }
      made += mine;
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& slot : slots) {
    if (slot != 0) {
      MUST(free_(slot));
      ++made;
    }
  }
  std::printf("%ld\n", made.load());
  return 0;
}

/// Allocates and frees until it is killed, and counts in `path` what has returned.
int until_killed(const char* path, int count) {
  alarm(60);  // whatever becomes of who should kill it
  const auto context = begin();
  const int file = ::open(path, O_RDWR);
  auto* const returned = static_cast<std::atomic<std::uint64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      MUST(set_current(context));
      auto& mine = returned[t * 8];
      for (;;) {
        Address fresh = 0;
        MUST(alloc(&fresh, 4096));
        mine.fetch_add(1);
        MUST(free_(fresh));
        mine.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

constexpr Handle kNoStream = 0xdead0000;

/// Frees of 8 MiB, and of a page for small memory, that the driver refuses. Prints what of 10 MiB
/// is left then, and what after frees that it makes.
int refused_frees() {
  begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Address small = 0, large = 0, more = 0;
  MUST(alloc(&small, kMiB));
  MUST(alloc_async(&large, 8 * kMiB, 0));
  const bool refused = free_async(small, kNoStream) != 0 && free_async(large, kNoStream) != 0;
  std::size_t free = 0, total = 0;
  MUST(get_info(&free, &total));
  std::printf("%d %zu %d ", refused, free, alloc_async(&more, kMiB, 0));
  MUST(free_(small));
  MUST(free_(large));
  MUST(get_info(&free, &total));
  std::printf("%zu\n", free / kMiB);
  return 0;
}

/// Registers memory that is registered: from within, from below, and the same. Prints the answers.
int registrations() {
  begin();
  constexpr std::size_t kPage = 4096;
  auto* const buffer = static_cast<char*>(std::aligned_alloc(kPage, 8 * kPage));
  MUST(host_register(buffer + 2 * kPage, 4 * kPage, 0));
  std::printf("%d %d %d\n", host_register(buffer + 3 * kPage, 4 * kPage, 0),
              host_register(buffer, 4 * kPage, 0), host_register(buffer + 2 * kPage, kPage, 0));
  MUST(host_unregister(buffer + 2 * kPage));
  MUST(host_register(buffer, 8 * kPage, 0));
  MUST(host_unregister(buffer));
  std::free(buffer);
  return 0;
}

/// A service: it holds memory, says so, and allocates and frees until its standard input ends.
/// Counts in `path`, where one is given, what it did.
int serve(const char* path) {
  begin();
  std::atomic<std::uint64_t> nowhere{0};
  auto* done = &nowhere;
  if (const int file = path != nullptr ? ::open(path, O_RDWR) : -1; file >= 0) {
    done = static_cast<std::atomic<std::uint64_t>*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  }
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Address held[3] = {}, range = 0;
  for (auto& one : held) MUST(alloc(&one, 3 * kMiB));
  Handle physical = 0;
  AllocationProperties about;
  MUST(reserve(&range, 4 * kMiB, 0, 0, 0));
  MUST(create(&physical, 2 * kMiB, &about, 0));
  MUST(map(range, 2 * kMiB, 0, physical, 0));
  MUST(release(physical));
  MUST(free_(held[0]));  // nobody records it
  Address kept = 0;
  MUST(alloc(&kept, kMiB));
  if (free_async(kept, kNoStream) == 0) return 94;
  std::printf("ready\n");
  std::fflush(stdout);
  pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
  for (std::size_t i = 0; poll(&input, 1, 1) == 0; ++i) {
    auto& one = held[1 + i % 2];
    MUST(free_(one));
    MUST(alloc(&one, kMiB * (1 + i % 3)));
    done->fetch_add(1);
  }
  MUST(unmap(range, 2 * kMiB));
  MUST(unreserve(range, 4 * kMiB));
  return 6;
}

}  // namespace

[[gnu::noinline, gnu::visibility("default")]] void load_table(std::size_t size) {
  Address made = 0;
  MUST(alloc(&made, size));
  asm volatile("");  // so that the call above is no jump
}

namespace {

/// Loads a table each time, frees what else it takes, and forgets the tables.
int leaks() {
  begin();
  for (int i = 0; i < 4; ++i) {
    Address work = 0;
    MUST(alloc(&work, std::size_t{24} << 20));
    load_table(std::size_t{2} << 20);
    MUST(free_(work));
  }
  return 0;
}

}  // namespace

// Call stacks name functions that the program exports.
[[gnu::noinline, gnu::visibility("default")]] Address taken_here(std::size_t size) {
  Address made = 0;
  MUST(alloc(&made, size));
  return made;
}
[[gnu::noinline, gnu::visibility("default")]] Address taken_there(std::size_t size) {
  const auto made = taken_here(size);
  asm volatile("");  // so that the call above is no jump
  return made;
}

namespace {

/// Calls from three places.
int sites() {
  begin();
  for (int i = 0; i < 100; ++i) {
    const auto a = taken_here(1024), b = taken_there(2048);
    MUST(free_(a));
    MUST(free_(b));
  }
  return 0;
}

void some_calls(int count, int apart_us = 0) {
  for (int i = 0; i < count; ++i) {
    Address fresh = 0;
    MUST(alloc(&fresh, 1024));
    if (apart_us != 0) usleep(static_cast<useconds_t>(apart_us));
    MUST(free_(fresh));
    if (apart_us != 0) usleep(static_cast<useconds_t>(apart_us));
  }
}

/// Threads that live at the same time make a call each, again and again; then one makes many.
/// Prints how many mappings of the recording the process has, and how many blocks the file.
int bursts(int count, int calls) {
  const auto context = begin();
  for (int round = 0; round < 4; ++round) {
    std::atomic<int> made{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        MUST(set_current(context));
        some_calls(1);
        ++made;
        while (made != count) std::this_thread::yield();
      });
    }
    for (auto& thread : threads) thread.join();
  }
  some_calls(calls);
  long mappings = 0;
  std::string path;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(".emmraw") == line.npos) continue;
    ++mappings;
    path = line.substr(line.find('/'));
  }
  struct stat about {};
  stat(path.c_str(), &about);
  std::printf("%ld %lld\n", mappings, static_cast<long long>(about.st_size >> 17));
  return 0;
}

/// The program takes every low number of a descriptor for a file of its own, and goes on. Prints
/// how large its file is, and whether a child finds the descriptors as they were.
int own_files(const char* path) {
  begin();
  some_calls(2000);
  const int journal = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
  constexpr int kNumbers = 1000;
  for (int number = 3; number < kNumbers; ++number) dup2(journal, number);
  some_calls(20000);
  const auto child = fork();
  if (child == 0) {
    int open_ones = 0;
    for (int number = 3; number < kNumbers; ++number) open_ones += fcntl(number, F_GETFD) >= 0;
    std::_Exit(open_ones == kNumbers - 3 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("%lld %d\n", static_cast<long long>(lseek(journal, 0, SEEK_END)),
              WEXITSTATUS(status));
  return 0;
}

double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The driver itself, where the library that was found only forwards to it; else null.
void* forwarded_to() {
  Dl_info found{};
  dladdr(dlsym(library(), "cuInit"), &found);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == std::string::npos) continue;
    const auto file = line.substr(path);
    if (file.find("/libcuda.so") == std::string::npos || file == found.dli_fname) continue;
    if (void* const driver = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD)) return driver;
  }
  return nullptr;
}

/// Threads allocate and free in turns. A line for each round: ns a call through the library that
/// was found and, where that forwards, of calls to the driver itself, which is asked by turns. A
/// round is shorter than a turn of the scheduler, so that some have the processors for themselves.
/// A thread spends `pause_ns` between two calls, which are taken off.
int cost(int count, int calls, int pause_ns) {
  constexpr int kRounds = 60;
  const auto context = begin();
  const auto pause = [pause_ns] {
    if (pause_ns == 0) return;
    const auto until = now_ns() + pause_ns;
    while (now_ns() < until) {
    }
  };
  using Allocate = Code (*)(Address*, std::size_t, Handle);
  using Free = Code (*)(Address, Handle);
  const auto round = [&](void* from) {
    const auto allocate = reinterpret_cast<Allocate>(dlsym(from, "cuMemAllocAsync"));
    const auto free = reinterpret_cast<Free>(dlsym(from, "cuMemFreeAsync"));
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    std::vector<double> took(static_cast<std::size_t>(count));
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        MUST(set_current(context));
        Address fresh = 0;
        MUST(allocate(&fresh, 4096, 0));
        MUST(free(fresh, 0));
        ++ready;
        while (ready < count) std::this_thread::yield();
        const auto begun = now_ns();
        for (int i = 0; i < calls; i += 2) {
          MUST(allocate(&fresh, 4096, 0));
          pause();
          MUST(free(fresh, 0));
          pause();
        }
        took[static_cast<std::size_t>(t)] = (now_ns() - begun) / calls - pause_ns;
      });
    }
    for (auto& thread : threads) thread.join();
    double sum = 0;
    for (const auto one : took) sum += one;
    return sum / count;
  };
  void* const driver = forwarded_to();
  for (int i = 0; i < kRounds; ++i) {
    double through = 0, bare = 0;
    if (driver == nullptr || i % 2 == 0) through = round(library());
    if (driver != nullptr) bare = round(driver);
    if (driver != nullptr && i % 2 != 0) through = round(library());
    std::printf("%.1f", through);
    if (driver != nullptr) std::printf(" %.1f", bare);
    std::printf("\n");
  }
  return 0;
}

/// Pitched memory of which the driver makes more than was asked for: how many fit.
int pitches() {
  begin();
  Function<Address*, std::size_t*, std::size_t, std::size_t, unsigned> pitched(
      "cuMemAllocPitch_v2");
  Address fresh = 0;
  std::size_t pitch = 0;
  int count = 0;
  Code code = 0;
  while (count < 100 && (code = pitched(&fresh, &pitch, 1, 12000, 4)) == 0) ++count;
  std::printf("%d %d\n", count, code);
  return 0;
}

/// A function of the driver that is younger than the recorder.
int younger() {
  begin();
  Function<Handle*> create_context("cuCtxCreate", 14000);
  Handle context = 0;
  MUST(create_context(&context));
  Address fresh = 0;
  MUST(alloc(&fresh, 4096));
  MUST(free_(fresh));
  return 0;
}

/// One context after the other, `count` of them `at_once`, on two devices by turns where one lives
/// alone. Each ends with 1 MiB of memory. `version` is that of the functions.
int many_contexts(int count, int at_once, const std::string& version) {
  MUST(init(0));
  const auto create_name = "cuCtxCreate" + version, destroy_name = "cuCtxDestroy" + version;
  Function<Handle*, unsigned, int> create_context(create_name.c_str());
  Function<Handle> end_context(destroy_name.c_str());
  for (int made = 0; made < count; made += at_once) {
    std::vector<Handle> contexts(static_cast<std::size_t>(at_once));
    for (auto& context : contexts) {
      Address fresh = 0;
      MUST(create_context(&context, 0, at_once == 1 ? made % 2 : 0));
      MUST(alloc(&fresh, std::size_t{1} << 20));
    }
    for (const auto context : contexts) MUST(end_context(context));
  }
  return 0;
}

/// Physical memory that a second handle holds.
int second_handle() {
  begin();
  constexpr std::size_t kPiece = std::size_t{10} << 20;
  AllocationProperties about;
  Address range = 0;
  Handle first = 0, second = 0, other = 0;
  MUST(reserve(&range, kPiece, 0, 0, 0));
  MUST(create(&first, kPiece, &about, 0));
  MUST(map(range, kPiece, 0, first, 0));
  MUST(retain_handle(&second, range));
  MUST(release(first));
  MUST(unmap(range, kPiece));
  const auto held = create(&other, kPiece, &about, 0);
  MUST(release(second));
  std::printf("%d %d\n", held, create(&other, kPiece, &about, 0));
  return 0;
}

/// Virtual memory whose handles are released at once, side by side and in holes.
int virtual_memory() {
  begin();
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  AllocationProperties about;
  Address range = 0;
  MUST(reserve(&range, 16 * kPiece, 0, 0, 0));
  const auto fill = [&](std::size_t apart) {
    std::size_t count = 0;
    Handle physical = 0;
    for (; count < 8 && create(&physical, kPiece, &about, 0) == 0; ++count) {
      MUST(map(range + count * apart * kPiece, kPiece, 0, physical, 0));
      MUST(release(physical));
    }
    std::size_t free = 0, total = 0;
    MUST(get_info(&free, &total));
    std::printf("%zu %zu\n", count, free >> 20);
    return count;
  };
  auto count = fill(1);
  std::printf("inside %d\n", unmap(range, count * kPiece - (std::size_t{2} << 20)) != 0);
  Handle physical = 0;
  std::printf("none %d\n", create(&physical, kPiece, &about, 0));
  MUST(unmap(range, count * kPiece));  // several at once
  count = fill(2);
  MUST(unmap(range, 2 * count * kPiece));  // with holes
  (void)fill(1);
  return 0;
}

/// Memory that ends with the primary context, three times.
int contexts() {
  for (int i = 0; i < 3; ++i) {
    begin();
    Handle again = 0;
    MUST(retain(&again, 0));
    Address made = 0;
    const auto large = alloc(&made, std::size_t{9} << 20), small = alloc(&made, 512);
    MUST(release_context(0));
    const auto other = alloc(&made, std::size_t{4} << 20);
    std::printf("%d %d %d %d\n", large, small, other, alloc(&made, std::size_t{4} << 20));
    if (i == 1) MUST(reset(0));
    MUST(release_context(0));
  }
  return 0;
}

/// Ends a context. Physical memory is the device's, and lives on.
int destroyed_context() {
  const auto context = begin();
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  AllocationProperties about;
  Address made = 0;
  Handle physical = 0;
  MUST(create(&physical, 4 * kMiB, &about, 0));
  MUST(alloc(&made, 10 * kMiB));
  const auto beyond = alloc(&made, 10 * kMiB);
  MUST(destroy_context(context));
  const auto after = alloc(&made, 10 * kMiB);
  std::printf("%d %d %d\n", beyond, after, alloc(&made, 4 * kMiB));
  return 0;
}

/// Ends its primary context and begins it again, holding memory of each kind, until its standard
/// input ends. It waits for a line before each turn, and says how it went.
int context_service() {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  begin();
  Handle again = 0;
  std::printf("ready\n");
  std::fflush(stdout);
  for (int turn = 0; std::getchar() != EOF; ++turn) {
    Address made = 0;
    MUST(retain(&again, 0));
    MUST(alloc(&made, 3 * kMiB));
    MUST(alloc_managed(&made, kMiB, 1));
    MUST(host_alloc(&made, kMiB, 0));
    MUST(release_context(0));
    if (turn == 1) MUST(reset(0));
    if (turn != 1) MUST(release_context(0));
    begin();
    if (turn == 1) MUST(release_context(0));  // once is left
    MUST(alloc(&made, 5 * kMiB));
    MUST(free_(made));
    std::printf("turn\n");
    std::fflush(stdout);
  }
  return 0;
}

/// Codes of calls of which two kinds are recorded as one.
int alike() {
  begin();
  Address made = 0;
  Handle pool = 0, event = 0;
  const PoolProperties properties;
  MUST(pool_create(&pool, &properties));
  MUST(event_create(&event, 2));
  MUST(event_record(event, 0));
  const int codes[] = {alloc_async(&made, 4096, 0),
                       alloc_from(&made, 4096, pool, 0),
                       stream_query(0),
                       stream_synchronize(0),
                       event_query(event),
                       event_synchronize(event)};
  for (const auto code : codes) std::printf("%d ", code == 600 ? 0 : code);  // not ready
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return argc > at ? std::atoi(argv[at]) : 0; };
  if (what == "every_kind") return every_kind();
  if (what == "rare_kinds") return rare_kinds();
  if (what == "pools") return pools();
  if (what == "host_pools") return host_pools(argc > 2);
  if (what == "graphs") return graphs();
  if (what == "race") return race();
  if (what == "sites") return sites();
  if (what == "leaks") return leaks();
  if (what == "serve") return serve(argc > 2 ? argv[2] : nullptr);
  if (what == "two_devices") return two_devices();
  if (what == "exchange") return exchange(number(2), number(3));
  if (what == "until_killed") return until_killed(argv[2], number(3));
  if (what == "virtual_memory") return virtual_memory();
  if (what == "pitches") return pitches();
  if (what == "younger") return younger();
  if (what == "second_handle") return second_handle();
  if (what == "contexts") return contexts();
  if (what == "many_contexts") return many_contexts(number(2), number(3), argc > 4 ? argv[4] : "");
  if (what == "refused_frees") return refused_frees();
  if (what == "registrations") return registrations();
  if (what == "destroyed_context") return destroyed_context();
  if (what == "context_service") return context_service();
  if (what == "alike") return alike();
  if (what == "many") {  // live at once
    begin();
    std::vector<Address> made(static_cast<std::size_t>(number(2)));
    for (auto& one : made) MUST(alloc(&one, 512));
    for (const auto one : made) MUST(free_(one));
    std::size_t free = 0, total = 0;
    MUST(get_info(&free, &total));
    std::printf("%zu\n", total - free);
    return 0;
  }
  if (what == "managed") {
    begin();
    Address made = 0;
    std::size_t free = 0, total = 0;
    const auto code = alloc_managed(&made, std::size_t{64} << 20, 1);
    MUST(get_info(&free, &total));
    std::printf("%d %zu\n", code, total - free);
    return 0;
  }
  if (what == "cost") return cost(number(2), number(3), number(4));
  if (what == "nulls") {  // a driver refuses them
    begin();
    Handle handle = 0;
    const void* const none = nullptr;
    make("cuArrayCreate_v2", &handle, none);
    make("cuMemPoolCreate", &handle, none);
    make("cuMemCreate", &handle, std::size_t{2} << 20, none, 0ull);
    make("cuMemSetAccess", Address{4096}, std::size_t{2} << 20, none, std::size_t{1});
    return 0;
  }
  if (what == "own_files") return own_files(argv[2]);
  if (what == "bursts") return bursts(number(2), number(3));
  if (what == "idle") {  // as the helpers of profilers
    MUST(init(0));
    return 0;
  }
  if (what == "some") {
    begin();
    some_calls(number(2), number(3));
    return 0;
  }
  if (what == "fork") {  // both go on: the parent with CUDA, the child with its own
    begin();
    some_calls(10);
    const auto child = fork();
    if (child == 0) {
      // Nothing of the parent's recording is the child's.
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find(".emmraw") != line.npos) std::_Exit(95);
      }
      Address never = 0;
      std::_Exit(alloc(&never, 16) == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    some_calls(10);
    std::printf("%d\n", WEXITSTATUS(status));
    return 0;
  }
  if (what ==
      "fork_first") {  // as multiprocessing does: children that call CUDA, a parent that does not
    for (int i = 0; i < 3; ++i) {
      if (fork() == 0) {
        begin();
        some_calls(20 + i);
        std::_Exit(0);
      }
    }
    while (wait(nullptr) > 0) continue;
    return 0;
  }
  if (what == "exec") {
    begin();
    some_calls(10);
    execl("/proc/self/exe", argv[0], "some", "20", nullptr);
    return 96;
  }
  if (what == "unload") {  // a thread ends, and a child begins, after the driver was unloaded
    using Init = Code (*)(unsigned);
    using Retain = Code (*)(Handle*, int);
    using Set = Code (*)(Handle);
    using Alloc = Code (*)(Address*, std::size_t);
    for (int i = 0; i < 3; ++i) {
      std::thread([] {
        void* const loaded = dlopen("libcuda.so.1", RTLD_NOW);
        Handle context = 0;
        Address made = 0;
        MUST(reinterpret_cast<Init>(dlsym(loaded, "cuInit"))(0));
        MUST(reinterpret_cast<Retain>(dlsym(loaded, "cuDevicePrimaryCtxRetain"))(&context, 0));
        MUST(reinterpret_cast<Set>(dlsym(loaded, "cuCtxSetCurrent"))(context));
        MUST(reinterpret_cast<Alloc>(dlsym(loaded, "cuMemAlloc_v2"))(&made, 4096));
        dlclose(loaded);
      }).join();
      if (fork() == 0) std::_Exit(0);
      wait(nullptr);
    }
    return 0;
  }
  if (what == "abort") {
    begin();
    some_calls(10);
    std::abort();
  }
  if (what == "_exit") {
    begin();
    some_calls(10);
    _exit(5);
  }
  if (what == "vanish") {  // the folder of the recording goes while it runs
    begin();
    some_calls(10);
    const std::string folder = std::getenv("EMM_RECORD_FOLDER") != nullptr
                                   ? std::getenv("EMM_RECORD_FOLDER")
                                   : "/nonexistent";
    if (std::system(("rm -rf '" + folder + "'").c_str()) != 0) return 95;
    some_calls(10000);
    return 0;
  }
  if (what == "info") {
    begin();
    std::size_t free = 0, total = 0;
    MUST(get_info(&free, &total));
    std::printf("%zu %zu\n", free, total);
    std::vector<Address> held;
    Address fresh = 0;
    Code code = 0;
    while ((code = alloc(&fresh, std::size_t{1} << 20)) == 0 && held.size() < 100)
      held.push_back(fresh);
    MUST(get_info(&free, &total));
    std::printf("%zu %d %zu\n", held.size(), code, free);
    for (const auto one : held) MUST(free_(one));
    MUST(get_info(&free, &total));
    std::printf("%zu\n", free);
    return 0;
  }
  if (what == "pages") {  // small ones share a page, 3 MiB have two: how many fit
    begin();
    std::vector<Address> held;
    Address fresh = 0;
    Code code = 0;
    for (const std::size_t size : {std::size_t{700} << 10, std::size_t{3} << 20}) {
      while (held.size() < 100 && (code = alloc(&fresh, size)) == 0) held.push_back(fresh);
      std::printf("%zu %d\n", held.size(), code);
      for (const auto one : held) MUST(free_(one));
      held.clear();
    }
    return 0;
  }
  if (what == "no_cuda") return 3;
  std::fprintf(stderr, "what?\n");
  return 2;
}
