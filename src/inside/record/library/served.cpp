#include "record/library/served.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "record/library/address_table.hpp"
#include "record/library/cuda.hpp"
#include "record/library/manager_driver.hpp"
#include "record/library/real.hpp"

namespace emm::record {
namespace {

constexpr Code kInvalidValue = 1, kOutOfMemory = 2;  // CUresults
constexpr Handle kLegacy = 1, kPerThread = 2;        // CU_STREAM_LEGACY, CU_STREAM_PER_THREAD

constinit bool serves = false;
constinit bool waits_at_frees = true;
// Copies, since a program may change its environment.
constinit char manager_options[2048] = "";
constinit char library_path[4096] = "";

/// Loading libemm.so, once for the process.
enum Loading : int { kNone, kBusy, kLoaded, kFailed };
constinit std::atomic<int> loading{kNone};
constinit const emm_plugin_table_v1* managers = nullptr;

// clang-format off
#define EMM_SERVED_FUNCTIONS(each) \
  each(cuMemAlloc_v2) each(cuMemFree_v2) \
  each(cuMemAllocAsync) each(cuMemAllocAsync_ptsz) each(cuMemFreeAsync) each(cuMemFreeAsync_ptsz) \
  each(cuMemGetInfo_v2) each(cuMemGetAddressRange_v2) \
  each(cuPointerGetAttribute) each(cuPointerGetAttributes) \
  each(cuIpcGetMemHandle) each(cuMemRetainAllocationHandle) \
  each(cuStreamDestroy_v2) each(cuCtxEnablePeerAccess) \
  each(cuStreamBeginCapture_v2) each(cuStreamBeginCapture_v2_ptsz) \
  each(cuStreamBeginCaptureToGraph) each(cuStreamBeginCaptureToGraph_ptsz) \
  each(cuCtxDestroy) each(cuCtxDestroy_v2) \
  each(cuDevicePrimaryCtxReset) each(cuDevicePrimaryCtxReset_v2) \
  each(cuDevicePrimaryCtxRelease) each(cuDevicePrimaryCtxRelease_v2)
// clang-format on

enum ServedFunction : int {
#define EMM_NUMBERED(symbol) s_##symbol,
  EMM_SERVED_FUNCTIONS(EMM_NUMBERED)
#undef EMM_NUMBERED
      kServedFunctions
};
/// What lies behind each: the recorder's wrapper, or the driver's function.
constinit void* behind[kServedFunctions] = {};
/// Further functions of the driver that serving needs. Null where the driver lacks one.
struct Further {
  Code (*retain)(Handle*, int);
  Code (*release)(int);
  Code (*is_capturing)(Handle, int*);
  Code (*context_of_stream)(Handle, Handle*);
  Code (*stream_synchronize)(Handle);
};
constinit Further further{};
constinit int device_count = 0;

/// A context of the program's and its manager.
struct Served {
  enum State : int { kFree, kMaking, kReady, kRefused, kEnding };

  std::atomic<Handle> context{0};
  std::atomic<int> state{kFree};
  /// Tells one use of this place from the next.
  std::atomic<std::uint64_t> generation{1};
  std::atomic<std::uint32_t> inside{0};  ///< Threads that may call the manager.
  std::atomic<std::uint64_t> live{0};    ///< Requested bytes.
  std::atomic<std::uint64_t> reserved{0};
  std::atomic<bool> ordered{false};  ///< Memory was served in the order of streams.
  int device = 0;
  bool is_primary = false;
  emm_manager* manager = nullptr;
  ManagerDriver driver;
  emm_driver_v1 table{};
};
constexpr std::size_t kContexts = 128;  // a program has one for each device and few of its own
constinit Served all_served[kContexts];
constinit std::atomic<bool> finding{false};  // guards taking a place

struct Block {
  Address address;
  Size size;
  emm_token token;
  Served* owner;
  std::uint64_t generation;
};
// Each with its own lock, so that threads seldom wait for one another.
constexpr std::size_t kShards = 64;
struct alignas(64) Shard {
  AddressTable<Block> blocks;
};
constinit Shard shards[kShards];
/// All served memory lies between these, which spares most questions a look at the tables.
constinit std::atomic<Address> lowest{~Address{0}}, highest{0};
constinit std::atomic<std::uint64_t> live_in_all{0}, reserved_in_all{0};

AddressTable<Block>& blocks_of(Address ptr) noexcept {
  return shards[((ptr >> 9) * 0x9e3779b97f4a7c15u) >> 58].blocks;
}

void count(std::uint64_t RunReport::*what, std::uint64_t by = 1) noexcept {
  if (auto* const report = run_report())
    std::atomic_ref<std::uint64_t>(report->*what).fetch_add(by, std::memory_order_relaxed);
}
void raise(std::uint64_t RunReport::*what, std::uint64_t value) noexcept {
  auto* const report = run_report();
  if (report == nullptr) return;
  const std::atomic_ref<std::uint64_t> most(report->*what);
  auto before = most.load(std::memory_order_relaxed);
  while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed))
    continue;
}

/// Says once why something is not served, and counts it.
void refuse(const char* what, const char* why) noexcept {
  static constinit std::atomic<bool> said{false};
  count(&RunReport::unserved);
  if (said.exchange(true)) return;
  char words[1024];
  const int size = std::snprintf(
      words, sizeof words, "emmctl run: %s: %s; the driver's memory serves instead\n", what, why);
  if (size <= 0) return;
  const auto shown =
      static_cast<Size>(size) < sizeof words ? static_cast<Size>(size) : sizeof words - 1;
  if (::write(STDERR_FILENO, words, shown) < 0) return;
}

bool load() noexcept {
  int none = kNone;
  if (!loading.compare_exchange_strong(none, kBusy)) {
    while (loading.load(std::memory_order_acquire) == kBusy) sched_yield();
    return loading.load(std::memory_order_acquire) == kLoaded;
  }
  const char* why = nullptr;
  void* const library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  const emm_plugin_table_v1* found = nullptr;
  if (library != nullptr) {
    const auto give =
        reinterpret_cast<const emm_plugin_table_v1* (*)()>(dlsym(library, "emm_plugin_v1"));
    found = give != nullptr ? give() : nullptr;
    why = "it has no emm_plugin_v1";
  } else {
    why = dlerror();
  }
  (void)real().device_get_count(&device_count);
  const char* missing = nullptr;
  if (found != nullptr && !ManagerDriver::find_functions(&missing)) {
    refuse("the driver lacks a function that managers need", missing);
    found = nullptr;
  } else if (found == nullptr) {
    refuse("the managers of emmctl cannot be loaded", why != nullptr ? why : "");
  }
  managers = found;
  loading.store(found != nullptr ? kLoaded : kFailed, std::memory_order_release);
  return found != nullptr;
}

/// Is this context, which is current, the primary one of its device?
bool is_primary(Handle context, int device) noexcept {
  unsigned flags = 0;
  int active = 0;
  if (real().primary_ctx_get_state(device, &flags, &active) != 0 || active == 0) return false;
  Handle primary = 0;
  if (further.retain == nullptr || further.release == nullptr ||
      further.retain(&primary, device) != 0)
    return false;
  (void)further.release(device);
  return primary == context;
}

/// Does the code tell that the context, and not the manager, is at fault?
bool is_of_context(Code code) noexcept {
  // CUresults: the driver or the context is not there.
  constexpr Code kNotInitialized = 3, kDeinitialized = 4, kInvalidContext = 201, kEnded = 709;
  return code == kNotInitialized || code == kDeinitialized || code == kInvalidContext ||
         code == kEnded;
}

/// Returns the state of the context's place: free, where the context works no longer.
int make(Served& served, Handle context) noexcept {
  constexpr int kUnknown = 255;  // as context_device() answers
  const auto device = static_cast<int>(context_device(context));
  if (device == kUnknown) return Served::kFree;
  if (!load()) return Served::kRefused;
  served.device = device;
  served.is_primary = is_primary(context, device);
  served.live = served.reserved = 0;
  served.ordered = false;
  served.driver.begin(context, device);
  served.table = served.driver.table();
  served.manager = nullptr;
  emm_create_v1 create{};
  create.struct_size = sizeof create;
  create.device = device;
  create.options = manager_options;
  create.driver = &served.table;
  auto code = managers->create(&create, &served.manager);
  emm_manager* const asked = code == 0 ? served.manager : nullptr;
  if (code == 0) code = managers->initialize != nullptr ? managers->initialize(served.manager) : 0;
  if (code == 0 && waits_at_frees) code = served.driver.make_quiet_stream();
  if (code == 0) return Served::kReady;
  if (!is_of_context(code)) {
    char words[512] = "";
    (void)managers->last_error(asked, words, sizeof words);
    if (words[0] == '\0') std::snprintf(words, sizeof words, "the driver answered %d", code);
    refuse("the manager cannot be made", words);
  }
  if (asked != nullptr) managers->destroy(asked);
  return is_of_context(code) ? Served::kFree : Served::kRefused;
}

Served* known_place_of(Handle context) noexcept {
  for (auto& served : all_served) {
    if (served.context.load(std::memory_order_acquire) == context) return &served;
  }
  return nullptr;
}

/// Finds the place of `context`, or takes one for it. Null if all are taken.
Served* place_of(Handle context) noexcept {
  if (auto* const found = known_place_of(context)) return found;
  while (finding.exchange(true, std::memory_order_acquire)) sched_yield();
  auto* found = known_place_of(context);
  for (auto& served : all_served) {
    if (found != nullptr) break;
    int none = Served::kFree;
    if (!served.state.compare_exchange_strong(none, Served::kMaking)) continue;
    served.context.store(context, std::memory_order_release);
    found = &served;
    finding.store(false, std::memory_order_release);
    const int made = make(served, context);
    if (made == Served::kFree) served.context.store(0, std::memory_order_release);
    served.state.store(made, std::memory_order_release);
    return found;
  }
  finding.store(false, std::memory_order_release);
  return found;
}

/// Lets this thread call the manager of a context while it lives.
class Use {
 public:
  Use() = default;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (served_ != nullptr) served_->inside.fetch_sub(1, std::memory_order_release);
  }
  /// That of `context`; makes it. False if the context has none.
  bool begin(Handle context) noexcept { return context != 0 && begin(place_of(context), context); }
  /// The same without making it.
  bool begin_known(Handle context) noexcept {
    return context != 0 && begin(known_place_of(context), context);
  }
  /// That of a block, unless its context has ended.
  bool begin(const Block& block) noexcept {
    return enter(*block.owner) && block.owner->generation.load() == block.generation;
  }
  Served* operator->() const noexcept { return served_; }
  Served& operator*() const noexcept { return *served_; }

 private:
  bool begin(Served* served, Handle context) noexcept {
    if (served == nullptr) return false;
    while (served->state.load(std::memory_order_acquire) == Served::kMaking) sched_yield();
    return enter(*served) && served->context.load() == context;
  }
  bool enter(Served& served) noexcept {
    served.inside.fetch_add(1);
    served_ = &served;
    return served.state.load() == Served::kReady;
  }
  Served* served_ = nullptr;
};

Handle current_context() noexcept {
  Handle context = 0;
  return real().ctx_get_current(&context) == 0 ? context : 0;
}

/// What the manager has reserved. Asked after it has called the driver, since it takes time.
void note_reserved(Served& served) noexcept {
  if (managers->statistics == nullptr) return;
  emm_statistic all[160];
  auto found = managers->statistics(served.manager, all, std::size(all));
  if (found > std::size(all)) found = std::size(all);
  for (std::size_t i = 0; i < found; ++i) {
    if (std::strcmp(all[i].name, "reserved_bytes.all.current") != 0) continue;
    const auto before = served.reserved.exchange(all[i].value);
    const auto in_all = reserved_in_all.fetch_add(all[i].value - before) + all[i].value - before;
    raise(&RunReport::peak_reserved, in_all);
  }
}

/// A request that fails because the manager limits its blocks is one without memory.
Code as_the_driver_says(Code code) noexcept {
  // CUresults: what a manager says of a block that it never gives.
  constexpr Code kNotSupported = 801, kUnknown = 999;
  return code == kInvalidValue || code == kNotSupported || code == kUnknown ? kOutOfMemory : code;
}

/// Serves a request: in the order of `stream` if it is `ordered`, else for any stream. Returns
/// false if the request is the driver's.
bool serve(Handle context, Size size, Handle stream, bool ordered, Address* out,
           Code& code) noexcept {
  Use use;
  if (!use.begin(context)) return false;
  if (!ordered && waits_at_frees) stream = use->driver.quiet_stream();
  const auto calls = use->driver.memory_calls();
  emm_memory memory{};
  memory.struct_size = sizeof memory;
  code = managers->memalloc(use->manager, size, stream, &memory);
  if (code == 0 && !ordered && waits_at_frees) {
    code = use->driver.wait_for_quiet();
    if (code != 0) (void)managers->free(use->manager, memory.token, 0);
  }
  if (use->driver.memory_calls() != calls) note_reserved(*use);
  if (code != 0) {
    code = as_the_driver_says(code);
    count(&RunReport::refused);
    return true;
  }
  const Block block{memory.device_pointer, size, memory.token, &*use, use->generation.load()};
  if (!blocks_of(block.address).put(block)) {  // no memory of the host's
    (void)managers->free(use->manager, memory.token, 0);
    code = kOutOfMemory;
    return true;
  }
  if (ordered && !use->ordered.load(std::memory_order_relaxed)) use->ordered = true;
  auto least = lowest.load(std::memory_order_relaxed);
  while (block.address < least && !lowest.compare_exchange_weak(least, block.address)) continue;
  auto most = highest.load(std::memory_order_relaxed);
  while (block.address + size > most && !highest.compare_exchange_weak(most, block.address + size))
    continue;
  use->live.fetch_add(size, std::memory_order_relaxed);
  const auto live = live_in_all.fetch_add(size, std::memory_order_relaxed) + size;
  count(&RunReport::served);
  raise(&RunReport::peak_live, live);
  *out = block.address;
  return true;
}

bool is_in_reach(Address ptr) noexcept {
  return ptr >= lowest.load(std::memory_order_relaxed) &&
         ptr < highest.load(std::memory_order_relaxed);
}

/// Frees served memory. Returns false if the address is the driver's affair. `waits`: once all work
/// of the context is done, whatever its stream.
bool serve_free(Address ptr, Handle stream, bool waits, Code& code) noexcept {
  if (ptr == 0 || !is_in_reach(ptr)) return false;
  Block block{};
  if (!blocks_of(ptr).take(ptr, block)) {
    // The manager's own allocations are none of the program's.
    code = kInvalidValue;
    return ManagerDriver::owns(ptr);
  }
  Use use;
  if (!use.begin(block)) return false;  // its context has ended
  code = waits ? use->driver.synchronize() : 0;
  if (code != 0) {
    (void)blocks_of(ptr).put(block);  // there was room a moment ago
    return true;
  }
  if (waits) count(&RunReport::waits);
  use->live.fetch_sub(block.size, std::memory_order_relaxed);
  live_in_all.fetch_sub(block.size, std::memory_order_relaxed);
  (void)managers->free(use->manager, block.token, stream);
  return true;
}

/// The live block that holds `ptr`.
bool find_block(Address ptr, Block& block) noexcept {
  if (!is_in_reach(ptr)) return false;
  if (blocks_of(ptr).get(ptr, block)) return true;
  for (auto& shard : shards) {
    if (shard.blocks.search([&](const Block& one) { return ptr - one.address < one.size; }, block))
      return true;
  }
  return false;
}

template <class IsIt>
void end_contexts(IsIt is_it) noexcept {
  for (auto& served : all_served) {
    int ready = Served::kReady;
    if (served.context.load() == 0 || !is_it(served)) continue;
    if (!served.state.compare_exchange_strong(ready, Served::kEnding)) {
      if (ready != Served::kRefused) continue;
    } else {
      while (served.inside.load() != 0) sched_yield();
      served.driver.context_ended();
      for (auto& shard : shards)
        shard.blocks.remove_if([&](const Block& block) { return block.owner == &served; });
      live_in_all.fetch_sub(served.live.exchange(0));
      reserved_in_all.fetch_sub(served.reserved.exchange(0));
      managers->destroy(served.manager);
    }
    served.generation.fetch_add(1);
    served.context.store(0);
    served.state.store(Served::kFree, std::memory_order_release);
  }
}

/// The streams of this process that are being captured are the driver's.
bool is_capturing(Handle stream) noexcept {
  if (!ManagerDriver::has_captured()) return false;
  int status = 0;
  return further.is_capturing != nullptr &&
         (further.is_capturing(stream, &status) != 0 || status != 0);
}

/// The context of a stream, which need not be the current one.
Handle context_of(Handle stream) noexcept {
  Handle context = 0;
  if (stream > kPerThread && device_count > 1 && further.context_of_stream != nullptr &&
      further.context_of_stream(stream, &context) == 0)
    return context;
  return current_context();
}

/// A stream as managers name it at a request, where 0 is the default stream, and at a free, where
/// 0 would say nothing.
Handle at_request(Handle stream, bool own) noexcept {
  const auto named = on_stream(stream, own);
  return named == kLegacy ? 0 : named;
}
Handle at_free(Handle stream, bool own) noexcept {
  const auto named = on_stream(stream, own);
  return named == 0 ? kLegacy : named;
}

#define BEHIND(symbol, parameters) \
  const auto driver_does = reinterpret_cast<Code(*) parameters>(behind[s_##symbol])

/// Counts a request that the driver has served.
Code left(Code code) noexcept {
  if (code == 0) count(&RunReport::left);
  return code;
}

Code serve_cuMemAlloc_v2(Address* out, Size size) {
  BEHIND(cuMemAlloc_v2, (Address*, Size));
  if (out == nullptr || size == 0 || self.inside) return driver_does(out, size);
  Code code = 0;
  if (serve(current_context(), size, 0, false, out, code)) return code;
  return left(driver_does(out, size));
}
Code serve_cuMemFree_v2(Address ptr) {
  BEHIND(cuMemFree_v2, (Address));
  Code code = 0;
  // Without the wait a free is in the order of the default stream.
  if (!self.inside && serve_free(ptr, waits_at_frees ? 0 : kLegacy, waits_at_frees, code))
    return code;
  return driver_does(ptr);
}

Code alloc_async(Code (*driver_does)(Address*, Size, Handle), bool own, Address* out, Size size,
                 Handle stream) noexcept {
  if (out == nullptr || size == 0 || self.inside) return driver_does(out, size, stream);
  Code code = 0;
  if (!is_capturing(on_stream(stream, own)) &&
      serve(context_of(stream), size, at_request(stream, own), true, out, code))
    return code;
  return left(driver_does(out, size, stream));
}
Code free_async(Code (*driver_does)(Address, Handle), bool own, Address ptr,
                Handle stream) noexcept {
  Code code = 0;
  if (!self.inside && !is_capturing(on_stream(stream, own)) &&
      serve_free(ptr, at_free(stream, own), false, code))
    return code;
  return driver_does(ptr, stream);
}
#define EMM_SERVE_ORDERED(suffix, own)                                         \
  Code serve_cuMemAllocAsync##suffix(Address* out, Size size, Handle stream) { \
    BEHIND(cuMemAllocAsync##suffix, (Address*, Size, Handle));                 \
    return alloc_async(driver_does, own, out, size, stream);                   \
  }                                                                            \
  Code serve_cuMemFreeAsync##suffix(Address ptr, Handle stream) {              \
    BEHIND(cuMemFreeAsync##suffix, (Address, Handle));                         \
    return free_async(driver_does, own, ptr, stream);                          \
  }
EMM_SERVE_ORDERED(, false)
EMM_SERVE_ORDERED(_ptsz, true)

Code serve_cuMemGetInfo_v2(Size* free, Size* total) {
  BEHIND(cuMemGetInfo_v2, (Size*, Size*));
  const auto code = driver_does(free, total);
  if (code != 0 || free == nullptr || self.inside) return code;
  Use use;
  if (!use.begin_known(current_context())) return code;
  note_reserved(*use);
  const auto reserved = use->reserved.load(), live = use->live.load();
  if (reserved > live) *free += reserved - live;
  if (total != nullptr && *free > *total) *free = *total;
  return code;
}

Code serve_cuMemGetAddressRange_v2(Address* base, Size* size, Address ptr) {
  BEHIND(cuMemGetAddressRange_v2, (Address*, Size*, Address));
  Block block{};
  if (self.inside || !find_block(ptr, block)) return driver_does(base, size, ptr);
  if (base != nullptr) *base = block.address;
  if (size != nullptr) *size = block.size;
  return 0;
}

/// Answers what differs from the driver's answer for memory of its own. Returns false if nothing
/// does.
bool answer_attribute(const Block& block, int attribute, void* to) noexcept {
  constexpr int kContext = 1, kRangeStart = 11, kRangeSize = 12;  // CU_POINTER_ATTRIBUTE_*
  const auto put = [&](std::uint64_t value) {
    if (to != nullptr) std::memcpy(to, &value, sizeof value);
    return to != nullptr;
  };
  switch (attribute) {
    case kContext:
      return put(block.owner->context.load());
    case kRangeStart:
      return put(block.address);
    case kRangeSize:
      return put(block.size);
    default:
      return false;
  }
}
Code serve_cuPointerGetAttribute(void* to, int attribute, Address ptr) {
  BEHIND(cuPointerGetAttribute, (void*, int, Address));
  Block block{};
  if (!self.inside && find_block(ptr, block) && answer_attribute(block, attribute, to)) return 0;
  return driver_does(to, attribute, ptr);
}
Code serve_cuPointerGetAttributes(unsigned many, int* attributes, void** to, Address ptr) {
  BEHIND(cuPointerGetAttributes, (unsigned, int*, void**, Address));
  const auto code = driver_does(many, attributes, to, ptr);
  Block block{};
  if (code != 0 || self.inside || !find_block(ptr, block)) return code;
  for (unsigned i = 0; i < many; ++i) (void)answer_attribute(block, attributes[i], to[i]);
  return code;
}

/// The handle leads another process to the base of what the driver gave, so memory that does not
/// begin there cannot be given away.
Code serve_cuIpcGetMemHandle(IpcHandle* out, Address ptr) {
  BEHIND(cuIpcGetMemHandle, (IpcHandle*, Address));
  Block block{};
  Use use;
  if (self.inside || !find_block(ptr, block) || !use.begin(block)) return driver_does(out, ptr);
  if (out == nullptr) return kInvalidValue;
  emm_ipc_handle made{};
  made.struct_size = sizeof made;
  const auto code = managers->get_ipc_handle != nullptr
                        ? managers->get_ipc_handle(use->manager, block.address, block.size, &made)
                        : kInvalidValue;
  if (code == 0 && made.offset == 0) {
    std::memcpy(out->bytes, made.bytes, sizeof out->bytes);
    return 0;
  }
  static constinit std::atomic<bool> said{false};
  count(&RunReport::unshared);
  constexpr char kWords[] =
      "emmctl run: cuIpcGetMemHandle was refused: the manager's memory has no handle that leads to "
      "its beginning (docs/run-manager.md says what helps)\n";
  if (!said.exchange(true) && ::write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0)
    return kInvalidValue;
  return kInvalidValue;  // as the driver answers for memory that cannot be shared
}
/// Refuses memory of the manager, as the driver refuses all memory of cuMemAlloc.
Code serve_cuMemRetainAllocationHandle(Handle* out, Address ptr) {
  BEHIND(cuMemRetainAllocationHandle, (Handle*, Address));
  Block block{};
  if (!self.inside && find_block(ptr, block)) return kInvalidValue;
  return driver_does(out, ptr);
}

// The work of a stream goes on after its end, and the next stream may get its handle.
Code serve_cuStreamDestroy_v2(Handle stream) {
  BEHIND(cuStreamDestroy_v2, (Handle));
  Use use;
  if (!self.inside && use.begin_known(current_context()) && use->ordered.load() &&
      !is_capturing(stream)) {
    if (further.stream_synchronize != nullptr) (void)further.stream_synchronize(stream);
  }
  return driver_does(stream);
}

Code serve_cuCtxEnablePeerAccess(Handle peer, unsigned flags) {
  BEHIND(cuCtxEnablePeerAccess, (Handle, unsigned));
  const auto code = driver_does(peer, flags);
  if (code == 0) ManagerDriver::note_peers();
  return code;
}

#define EMM_SERVE_CAPTURE(symbol, parameters, arguments) \
  Code serve_##symbol parameters {                       \
    BEHIND(symbol, parameters);                          \
    ManagerDriver::note_capture();                       \
    return driver_does arguments;                        \
  }
#define EMM_SERVE_CAPTURES(symbol, parameters, arguments) \
  EMM_SERVE_CAPTURE(symbol, parameters, arguments)        \
  EMM_SERVE_CAPTURE(symbol##_ptsz, parameters, arguments)
EMM_SERVE_CAPTURES(cuStreamBeginCapture_v2, (Handle stream, int mode), (stream, mode))
EMM_SERVE_CAPTURES(cuStreamBeginCaptureToGraph,
                   (Handle stream, Handle graph, const Handle* after, const void* edges, Size many,
                    int mode),
                   (stream, graph, after, edges, many, mode))

#define EMM_SERVE_END(symbol, parameter, is_it)                               \
  Code serve_##symbol(parameter given) {                                      \
    BEHIND(symbol, (parameter));                                              \
    const auto code = driver_does(given);                                     \
    if (code == 0) end_contexts([&](const Served& served) { return is_it; }); \
    return code;                                                              \
  }
EMM_SERVE_END(cuCtxDestroy, Handle, served.context.load() == given)
EMM_SERVE_END(cuCtxDestroy_v2, Handle, served.context.load() == given)
EMM_SERVE_END(cuDevicePrimaryCtxReset, int, served.is_primary&& served.device == given)
EMM_SERVE_END(cuDevicePrimaryCtxReset_v2, int, served.is_primary&& served.device == given)
/// The driver is asked, since libraries may have retained the context in ways that are not seen.
bool has_ended(int device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return real().primary_ctx_get_state(device, &flags, &active) == 0 && active == 0;
}
EMM_SERVE_END(cuDevicePrimaryCtxRelease, int,
              served.is_primary&& served.device == given && has_ended(given))
EMM_SERVE_END(cuDevicePrimaryCtxRelease_v2, int,
              served.is_primary&& served.device == given && has_ended(given))

struct Serving {
  const char* symbol;
  void* function;
};
const Serving kServing[kServedFunctions] = {
#define EMM_SERVING(symbol) {#symbol, reinterpret_cast<void*>(&serve_##symbol)},
    EMM_SERVED_FUNCTIONS(EMM_SERVING)
#undef EMM_SERVING
};

/// CUDA does not work in the child of a process that has used it, so nothing of the parent's is
/// called. One that has not used it begins anew.
void reset_in_child() noexcept {
  for (auto& shard : shards) shard.blocks.reset();
  ManagerDriver::reset_in_child();
  for (auto& served : all_served) {
    served.context.store(0);
    served.state.store(Served::kFree);
    served.inside.store(0);
    served.generation.fetch_add(1);
  }
  finding.store(false);
  lowest = ~Address{0};
  highest = 0;
  live_in_all = reserved_in_all = 0;
  if (loading.load() == kBusy) loading.store(kFailed);
}

}  // namespace

bool is_serving() noexcept { return serves; }

void* serving_function(const char* symbol) noexcept {
  if (!serves) return nullptr;
  for (int i = 0; i < kServedFunctions; ++i) {
    if (behind[i] != nullptr && std::strcmp(kServing[i].symbol, symbol) == 0)
      return kServing[i].function;
  }
  return nullptr;
}

void* serving_function_before(const void* function) noexcept {
  if (!serves || function == nullptr) return nullptr;
  for (int i = 0; i < kServedFunctions; ++i) {
    if (behind[i] == function) return kServing[i].function;
  }
  return nullptr;
}

void* serving_function_named(const char* symbol, void* function) noexcept {
  if (!serves) return nullptr;
  const auto size = std::strlen(symbol);
  for (int i = 0; i < kServedFunctions; ++i) {
    const char* const known = kServing[i].symbol;
    if (std::strncmp(known, symbol, size) != 0) continue;
    if (known[size] != '\0' && std::strcmp(known + size, "_v2") != 0) continue;
    behind[i] = function;
    return kServing[i].function;
  }
  return nullptr;
}

void find_served() noexcept {
  if (!serves) return;
  for (int i = 0; i < kServedFunctions; ++i) behind[i] = function_behind(kServing[i].symbol);
  const auto find = [](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver_function(symbol));
  };
  find(further.retain, "cuDevicePrimaryCtxRetain");
  find(further.release, "cuDevicePrimaryCtxRelease_v2");
  find(further.is_capturing, "cuStreamIsCapturing");
  find(further.context_of_stream, "cuStreamGetCtx");
  find(further.stream_synchronize, "cuStreamSynchronize");
}

void begin_serving() noexcept {
  const char* const options = setting("EMM_RUN_MANAGER");
  const char* const library = setting("EMM_RUN_MANAGER_LIBRARY");
  if (options == nullptr || library == nullptr) return;
  std::snprintf(manager_options, sizeof manager_options, "%s", options);
  std::snprintf(library_path, sizeof library_path, "%s", library);
  const char* const waits = setting("EMM_RUN_IMPLIED_WAIT");
  waits_at_frees = waits == nullptr || std::strcmp(waits, "off") != 0;
  pthread_atfork(nullptr, nullptr, reset_in_child);
  serves = true;
}

}  // namespace emm::record
