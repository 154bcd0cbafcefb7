// Measures emmctl's managers, and what bookkeeping alone costs, in the harness of the peers.
//
//   pool_bench --export TRACE --to FILE.ops
//       writes the trace's requests, for every peer
//   pool_bench --generate KIND --streams N --to FILE.ops
//       writes those of 6,000 operations of a pattern of `emmctl generate`
//   pool_bench [--manager SPEC] [--device D] [the options of peer_main.hpp]
//       measures a manager on a device; both are named as `emmctl replay` takes them
//   pool_bench --door plugin|torch [--library LIBEMM] [--manager SPEC] [--device D] [...]
//       measures the same through libemm.so: its C table, or the functions for PyTorch. Without
//       --library it takes that of the build that this program is of
//   pool_bench --floor mimalloc|none [the options of peer_main.hpp]
//       measures mimalloc on sizes/1024, or the harness alone
#include <dlfcn.h>

#include <filesystem>
#include <map>

#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "tools/peers/doors.hpp"
#include "tools/peers/peer_main.hpp"
#include "tools/peers/platform_at_peak.hpp"
#include "tools/peers/requests_of.hpp"

namespace emm::peers {
namespace {

/// A manager on a device of its own context.
class Managed {
 public:
  using Memory = MemoryPointer;

  static std::unique_ptr<Managed> make(const std::string& device, const ManagerFactory& factory,
                                       std::uint32_t streams) {
    auto self = std::unique_ptr<Managed>(new Managed);
    if (!self->platform_.open(device, streams)) return nullptr;
    if (auto made = self->make_manager(factory); !made) {
      say(made.error());
      return nullptr;
    }
    return self;
  }

  // A call of its own would count as the manager's.
  [[gnu::always_inline]] bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    auto made = manager_->memalloc(size, platform_.stream(stream));
    if (!made) return false;
    memory = *std::move(made);
    return true;
  }
  void free(Memory& memory, std::uint16_t stream) { (void)memory.free(platform_.stream(stream)); }
  void synchronize() { platform_.synchronize(); }
  std::uint64_t reserved_peak() const { return platform_.reserved_peak(); }
  void restart_peak() { platform_.restart_peak(); }
  std::optional<std::uint64_t> device_free() { return platform_.device_free(); }
  void* handle(std::uint16_t stream) const { return platform_.handle(stream); }

 private:
  Managed() = default;

  Status make_manager(const ManagerFactory& factory) {
    auto manager = factory.make({.driver = &platform_.driver(),
                                 .runtime = platform_.runtime(),
                                 .clock = &platform_.clock()});
    if (!manager) return std::move(manager).error();
    manager_ = *std::move(manager);
    return manager_->initialize();
  }

  PlatformAtPeak platform_;
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

/// libemm.so of the build that this program is of.
std::string library_of_build() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  return (program.parent_path() / "../../lib/libemm.so").lexically_normal().string();
}

template <class Door>
int measure_door(const PeerArguments& arguments, const std::string& path, const std::string& device,
                 const std::string& manager) {
  const Library library(path.empty() ? library_of_build() : path);
  if (!library) return 1;
  return measure(arguments, [&](std::uint32_t streams) {
    return Door::make(library, device, manager, streams);
  });
}

int run(int argc, char** argv) {
  PeerArguments arguments;
  std::string manager = "pool", device = "auto", floor, trace, kind, streams_made = "1", to,
              door = "c++", library;
  const auto extra = [&](std::string_view key, const char* value) {
    const std::map<std::string_view, std::string*> known{
        {"--manager", &manager}, {"--device", &device},        {"--floor", &floor},
        {"--door", &door},       {"--library", &library},      {"--export", &trace},
        {"--generate", &kind},   {"--streams", &streams_made}, {"--to", &to}};
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
  if (arguments.passes.kernel_ns && !device.starts_with("cuda")) {
    std::fprintf(stderr, "pool_bench: --kernel with --device %s: expected a GPU\n", device.c_str());
    return 2;
  }
  if (auto platform = open_platform(device, {}); !platform) return say(platform.error(), kNotHere);
  if (door == "plugin") return measure_door<PluginDoor>(arguments, library, device, manager);
  if (door == "torch") return measure_door<TorchDoor>(arguments, library, device, manager);
  if (door != "c++") {
    std::fprintf(stderr, "pool_bench: --door %s: expected c++, plugin or torch\n", door.c_str());
    return 2;
  }
  const auto factory = find_manager(manager);
  if (!factory) return say(factory.error(), 2);
  return measure(arguments,
                 [&](std::uint32_t streams) { return Managed::make(device, *factory, streams); });
}

}  // namespace
}  // namespace emm::peers

int main(int argc, char** argv) { return emm::peers::run(argc, argv); }
