// Measures emmctl's managers, and what bookkeeping alone costs, in the harness of the peers.
//
//   pool_bench --export TRACE --to FILE.ops
//       writes the trace's requests, for every peer
//   pool_bench --generate KIND --streams N --to FILE.ops
//       writes those of 6,000 operations of a pattern of `emmctl generate`
//   pool_bench [--manager SPEC] [--device D] [the options of peer_main.hpp]
//       measures a manager on a device; both are named as `emmctl replay` takes them
//   pool_bench --floor mimalloc|none [the options of peer_main.hpp]
//       measures mimalloc on sizes/1024, or the harness alone
#include <dlfcn.h>

#include <atomic>
#include <map>

#include "base/text.hpp"
#include "driver/call.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "tools/peers/peer_main.hpp"
#include "tools/peers/requests_of.hpp"

namespace emm::peers {
namespace {

int say(const Error& error, int code = 1) {
  std::fprintf(stderr, "pool_bench: %s\n", describe(error).c_str());
  return code;
}

/// Keeps the most bytes that the context held. It asks after each driver call that takes memory,
/// since only these can raise the number.
class PeakHook final : public CallHook {
 public:
  void watch(const Driver& driver) { driver_ = &driver; }
  void restart() { peak_ = driver_->held_bytes(); }
  std::uint64_t peak() const { return std::max<std::uint64_t>(peak_, driver_->held_bytes()); }

  void after(const CallEvent& event) override {
    switch (event.call) {
      case Call::mem_alloc:
      case Call::mem_alloc_managed:
      case Call::mem_create:
      case Call::runtime_malloc:
        break;
      default:
        return;
    }
    const auto held = driver_->held_bytes();
    auto peak = peak_.load(std::memory_order_relaxed);
    while (held > peak && !peak_.compare_exchange_weak(peak, held)) {
    }
  }

 private:
  const Driver* driver_ = nullptr;
  std::atomic<std::uint64_t> peak_{0};
};

/// A manager on a device of its own context.
class Managed {
 public:
  using Memory = MemoryPointer;

  static std::unique_ptr<Managed> make(const std::string& device, const ManagerFactory& factory,
                                       std::uint32_t streams) {
    auto self = std::unique_ptr<Managed>(new Managed);
    if (auto opened = self->open(device, factory, streams); !opened) {
      say(opened.error());
      return nullptr;
    }
    return self;
  }
  ~Managed() {
    manager_.reset();
    for (const auto stream : streams_) {
      if (stream.value != 0 && !opened_.driver->stream_destroy(stream)) break;
    }
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    auto made = manager_->memalloc(size, streams_[stream]);
    if (!made) return false;
    memory = *std::move(made);
    return true;
  }
  void free(Memory& memory, std::uint16_t stream) { (void)memory.free(streams_[stream]); }
  void synchronize() { (void)opened_.driver->ctx_synchronize(); }
  std::uint64_t reserved_peak() const { return peak_.peak(); }
  void restart_peak() { peak_.restart(); }
  std::optional<std::uint64_t> device_free() {
    const auto info = opened_.driver->mem_get_info();
    return info ? std::optional(info->free) : std::nullopt;
  }

 private:
  Managed() = default;

  Status open(const std::string& device, const ManagerFactory& factory, std::uint32_t streams) {
    auto platform = open_platform(device, {});
    if (!platform) return std::move(platform).error();
    platform_ = *std::move(platform);
    auto opened = platform_->open(0);
    if (!opened) return std::move(opened).error();
    opened_ = hooked(*std::move(opened), peak_);
    peak_.watch(*opened_.driver);
    auto manager = factory.make({.driver = opened_.driver.get(),
                                 .runtime = opened_.runtime.get(),
                                 .clock = &platform_->clock()});
    if (!manager) return std::move(manager).error();
    manager_ = *std::move(manager);
    streams_.emplace_back();
    while (streams_.size() < streams) {
      auto stream = opened_.driver->stream_create(StreamKind::non_blocking);
      if (!stream) return std::move(stream).error();
      streams_.push_back(*stream);
    }
    return manager_->initialize();
  }

  PeakHook peak_;
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  std::vector<StreamHandle> streams_;
  std::unique_ptr<MemoryManager> manager_;
};

/// Allocates nothing, and shows what the loop itself costs.
class Nothing {
 public:
  using Memory = void*;

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t) {
    memory = reinterpret_cast<void*>(size);
    return true;
  }
  void free(Memory& memory, std::uint16_t) { memory = nullptr; }
  void synchronize() {}
  std::uint64_t reserved_peak() const { return 0; }
  void restart_peak() {}
  std::optional<std::uint64_t> device_free() { return std::nullopt; }
};

/// A CPU allocator on sizes/1024. Its bookkeeping shows about what any allocator's must cost.
class Mimalloc {
 public:
  using Memory = void*;

  static std::unique_ptr<Mimalloc> make(std::uint32_t) {
    for (const char* name : {"libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"}) {
      auto* const library = dlopen(name, RTLD_NOW);
      if (library == nullptr) continue;
      auto self = std::make_unique<Mimalloc>();
      self->malloc_ = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc"));
      self->free_ = reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
      if (self->malloc_ != nullptr && self->free_ != nullptr) return self;
    }
    return nullptr;
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t) {
    constexpr std::uint64_t kScale = 1024;
    memory = malloc_(size < kScale ? 1 : size / kScale);
    return memory != nullptr;
  }
  void free(Memory& memory, std::uint16_t) {
    free_(memory);
    memory = nullptr;
  }
  void synchronize() {}
  std::uint64_t reserved_peak() const { return 0; }
  void restart_peak() {}
  std::optional<std::uint64_t> device_free() { return std::nullopt; }

 private:
  void* (*malloc_)(std::size_t) = nullptr;
  void (*free_)(void*) = nullptr;
};

int run(int argc, char** argv) {
  PeerArguments arguments;
  std::string manager = "pool", device = "auto", floor, trace, kind, streams_made = "1", to;
  const auto extra = [&](std::string_view key, const char* value) {
    const std::map<std::string_view, std::string*> known{{"--manager", &manager},
                                                         {"--device", &device},
                                                         {"--floor", &floor},
                                                         {"--export", &trace},
                                                         {"--generate", &kind},
                                                         {"--streams", &streams_made},
                                                         {"--to", &to}};
    const auto into = known.find(key);
    if (into != known.end()) *into->second = value;
    return into != known.end();
  };
  if (!arguments.parse(argc, argv, extra)) return 2;
  if (!trace.empty() || !kind.empty()) {
    constexpr std::uint64_t kEvents = 6'000;
    const auto written =
        kind.empty() ? write_requests(trace, to)
                     : generate_requests(kind, text::to_u64(streams_made).value_or(1), kEvents, to);
    return written ? 0 : say(written.error());
  }
  if (arguments.name.empty()) arguments.name = floor.empty() ? manager : floor;
  if (floor == "none") {
    return measure(arguments, [](std::uint32_t) { return std::make_unique<Nothing>(); });
  }
  if (floor == "mimalloc") {
    if (!Mimalloc::make(0)) {
      std::fprintf(stderr, "no libmimalloc.so\n");
      return kNotHere;
    }
    return measure(arguments, &Mimalloc::make);
  }
  if (auto platform = open_platform(device, {}); !platform) return say(platform.error(), kNotHere);
  const auto factory = find_manager(manager);
  if (!factory) return say(factory.error(), 2);
  return measure(arguments,
                 [&](std::uint32_t streams) { return Managed::make(device, *factory, streams); });
}

}  // namespace
}  // namespace emm::peers

int main(int argc, char** argv) { return emm::peers::run(argc, argv); }
