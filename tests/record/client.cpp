// A CUDA program that tests record. It finds the driver as cudart does: dlopen, dlsym, and
// cuGetProcAddress for half of its functions. What it did is on its standard output.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

  Code operator()(Parameters... arguments) {
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

/// ns a call of an allocation and a free in turns, the quickest of many rounds: each is shorter
/// than a turn of the scheduler, so that some have the processor for themselves.
int cost(int count, int calls) {
  const auto context = begin();
  double best = 1e18;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    std::vector<double> took(static_cast<std::size_t>(count));
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        MUST(set_current(context));
        Address fresh = 0;
        MUST(alloc_async(&fresh, 4096, 0));
        MUST(free_async(fresh, 0));
        ++ready;
        while (ready < count) std::this_thread::yield();
        timespec a{}, b{};
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < calls; i += 2) {
          MUST(alloc_async(&fresh, 4096, 0));
          MUST(free_async(fresh, 0));
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        took[static_cast<std::size_t>(t)] = (static_cast<double>(b.tv_sec - a.tv_sec) * 1e9 +
                                             static_cast<double>(b.tv_nsec - a.tv_nsec)) /
                                            calls;
      });
    }
    for (auto& thread : threads) thread.join();
    double sum = 0;
    for (const auto one : took) sum += one;
    best = std::min(best, sum / count);
  }
  std::printf("%.1f\n", best);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return argc > at ? std::atoi(argv[at]) : 0; };
  if (what == "every_kind") return every_kind();
  if (what == "graphs") return graphs();
  if (what == "race") return race();
  if (what == "sites") return sites();
  if (what == "leaks") return leaks();
  if (what == "serve") return serve(argc > 2 ? argv[2] : nullptr);
  if (what == "two_devices") return two_devices();
  if (what == "exchange") return exchange(number(2), number(3));
  if (what == "until_killed") return until_killed(argv[2], number(3));
  if (what == "cost") return cost(number(2), number(3));
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
