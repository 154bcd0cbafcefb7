// A CUDA program for `emmctl run --manager`: threads that allocate, free each other's memory while
// work on it is pending, and hold what they wrote to it against what they read.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Code = int;
using Address = std::uint64_t;
using Handle = std::uint64_t;

/// A function of the driver's, as cudart finds it: by cuGetProcAddress under its plain name.
template <class... Parameters>
Code call(const char* symbol, Parameters... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  using Ask = Code (*)(const char*, void**, int, std::uint64_t, int*);
  static const auto ask = reinterpret_cast<Ask>(dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  if (ask(symbol, &found, 12000, 0, nullptr) != 0 || found == nullptr) std::exit(98);
  return reinterpret_cast<Code (*)(Parameters...)>(found)(arguments...);
}

void must(Code code, const char* what) {
  if (code == 0) return;
  std::printf("%s: %d\n", what, code);
  std::fflush(stdout);
  std::_Exit(97);
}

struct Block {
  std::size_t size;
  std::uint64_t mark;
  bool ordered;
};
std::mutex mutex;
std::map<Address, Block> live;

/// Notes a block, which may overlap no other.
void note(Address at, const Block& block) {
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = live.emplace(at, block);
  const auto next = std::next(place);
  const bool overlaps =
      !is_new || (next != live.end() && at + block.size > next->first) ||
      (place != live.begin() && std::prev(place)->first + std::prev(place)->second.size > at);
  if (!overlaps) return;
  std::printf("memory that is live was handed out again\n");
  std::_Exit(96);
}

/// Takes a block of any thread's, so that its free comes from another one.
bool take(std::mt19937& random, Address& at, Block& block) {
  const std::lock_guard lock(mutex);
  if (live.empty()) return false;
  auto place = live.begin();
  std::advance(place, random() % live.size());
  at = place->first;
  block = place->second;
  live.erase(place);
  return true;
}

void work(unsigned number, int rounds, Handle context, bool on_default) {
  must(call("cuCtxSetCurrent", context), "set");
  Handle stream = 0;
  if (!on_default) must(call("cuStreamCreate", &stream, 1u), "stream");
  std::mt19937 random(number);
  for (int i = 0; i < rounds; ++i) {
    const auto size = std::size_t{1} + random() % (random() % 8 == 0 ? 3u << 20 : 5000u);
    const Block made{size < 8 ? 8 : size, random(), random() % 2 == 0};
    Address at = 0;
    must(made.ordered ? call("cuMemAllocAsync", &at, made.size, stream)
                      : call("cuMemAlloc", &at, made.size),
         "request");
    if (made.ordered) must(call("cuStreamSynchronize", stream), "wait");
    must(call("cuMemcpyHtoD", at, static_cast<const void*>(&made.mark), std::size_t{8}), "write");
    note(at, made);
    Block other{};
    if (i % 3 == 0 || !take(random, at, other)) continue;
    std::uint64_t mark = 0;
    must(call("cuMemcpyDtoH", static_cast<void*>(&mark), at, std::size_t{8}), "read");
    if (mark != other.mark) {
      std::printf("memory has changed\n");
      std::_Exit(95);
    }
    // Work on the block is pending when it is freed: who gets it next must not see it.
    must(call("cuMemsetD8Async", at, static_cast<unsigned char>(0xee), other.size, stream), "fill");
    must(random() % 2 == 0 ? call("cuMemFreeAsync", at, stream) : call("cuMemFree", at), "free");
  }
  must(call("cuStreamSynchronize", stream), "wait");
  if (!on_default) must(call("cuStreamDestroy", stream), "destroy");
}

}  // namespace

/// served_client THREADS ROUNDS [fork|default]; default: all work is on the default stream.
int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 4, rounds = argc > 2 ? std::atoi(argv[2]) : 500;
  const std::string how = argc > 3 ? argv[3] : "";
  Handle context = 0;
  must(call("cuInit", 0u), "init");
  must(call("cuDevicePrimaryCtxRetain", &context, 0), "retain");
  must(call("cuCtxSetCurrent", context), "set");
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back(work, static_cast<unsigned>(i), rounds, context, how == "default");
  // Children of a process that uses CUDA get an answer, whatever its threads are doing.
  for (int i = 0; how == "fork" && i < 20; ++i) {
    const auto child = fork();
    if (child == 0) {
      Address never = 0;
      const auto given = call("cuMemAlloc", &never, std::size_t{4096});
      const auto ordered = call("cuMemAllocAsync", &never, std::size_t{4096}, Handle{0});
      std::_Exit(given != 0 && ordered != 0 && call("cuMemFree", Address{4096}) != 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
      std::printf("a child: %d\n", status);
      std::_Exit(94);
    }
  }
  for (auto& thread : threads) thread.join();
  for (const auto& [at, block] : live) must(call("cuMemFree", at), "last free");
  std::printf("sound\n");
  return 0;
}
