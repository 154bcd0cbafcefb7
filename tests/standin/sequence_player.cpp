// Plays sequences of tests/standin/sequences.py on a bundled manager, on the simulated device:
//
//   sequence_player MANAGER < sequences
//
// and prints for each step its outcome and the driver calls that it made. A line "=" begins a
// sequence on a fresh device.
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/options.hpp"
#include "base/text.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "driver/device_entry.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "standin/script.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kRegionBytes = 1 << 16;

class Player {
 public:
  explicit Player(const ManagerFactory& factory) : factory_(factory) {
    for (auto& region : regions_) region.resize(kRegionBytes + 4096);
  }

  void begin() {
    end();
    platform_ = *open_platform("sim:capacity=64MiB", {});
    device_ = hooked(*platform_->open(0), script_);
    manager_ = *factory_.make({.driver = device_.driver.get(),
                               .runtime = device_.runtime.get(),
                               .clock = &platform_->clock(),
                               .observer = nullptr,
                               .profile = Profile::numba});
  }

  void end() {
    if (!manager_) return;
    while (!guards_.empty()) guards_.pop_back();
    while (!slots_.empty()) slots_.erase(slots_.begin());
    if (!manager_->flush()) say("the last flush fails");
    tell("end");
    manager_.reset();
    device_ = {};
    script_.take();
  }

  void step(const std::vector<std::string_view>& words) {
    const auto number = [&](std::size_t at) { return *text::to_u64(words.at(at)); };
    const auto kind = words.at(0).at(0);
    if (kind == 'X') {
      script_.fail(number(1), static_cast<std::int32_t>(number(2)),
                   static_cast<std::int32_t>(number(3)));
      return;
    }
    tell(perform(kind, number));
    script_.fail(0, 0, 0);
  }

 private:
  using Memory = std::variant<std::monostate, OwnedPointer, PinnedMemory, MappedMemory>;

  static std::string outcome(const Error& error) {
    return text::format("error {}",
                        error.native != 0 ? error.native : -static_cast<std::int32_t>(error.code));
  }

  template <class Number>
  std::string perform(char kind, Number number) {
    switch (kind) {
      case 'I': {
        const auto done = manager_->initialize();
        return done ? "ok" : outcome(done.error());
      }
      case 'A': {
        auto made = manager_->memalloc(number(2));
        if (!made) return outcome(made.error());
        slots_[number(1)] = own(*std::move(made));
        return "ok";
      }
      case 'M': {
        auto made = manager_->memallocmanaged(
            number(2), number(3) == 1 ? AttachFlags::global : AttachFlags::host);
        if (!made) return outcome(made.error());
        slots_[number(1)] = own(std::move(made->memory()));
        return "ok";
      }
      case 'H': {
        const auto bits = number(3);
        return keep(number(1), manager_->memhostalloc(number(2), {.mapped = (bits & 2) != 0,
                                                                  .portable = (bits & 1) != 0,
                                                                  .wc = (bits & 4) != 0}));
      }
      case 'P':
        return keep(number(1), manager_->mempin({.pointer = region(number(2)), .size = number(3)},
                                                {.mapped = number(4) == 1}));
      case 'V':
        if (const auto* of = std::get_if<OwnedPointer>(&slots_[number(2)])) {
          if (auto view = of->view(number(3), number(4))) slots_[number(1)] = *view;
        }
        return "ok";
      case 'O':
        if (const auto* of = std::get_if<OwnedPointer>(&slots_[number(2)]))
          slots_[number(1)] = OwnedPointer(*of);
        return "ok";
      case 'D':
        slots_.erase(number(1));
        return "ok";
      case 'F':
        free(slots_[number(1)]);
        return "ok";
      case 'C':
        if (!manager_->flush()) return "ok";  // Numba tells of the free, emmctl of the flush
        return "ok";
      case '(':
        guards_.push_back(manager_->defer_cleanup());
        return "ok";
      case ')':
        if (!guards_.empty()) guards_.pop_back();
        return "ok";
      case 'R':
        manager_->reset();
        return "ok";
      case 'G': {
        const auto info = manager_->get_memory_info();
        return info ? text::format("{} of {}", info->free, info->total) : outcome(info.error());
      }
      default:
        return "no such step";
    }
  }

  std::string keep(std::uint64_t slot, Result<HostMemory> made) {
    if (!made) return outcome(made.error());
    std::visit([&](auto& memory) { slots_[slot] = std::move(memory); }, *made);
    return "ok";
  }

  static void free(Memory& memory) {
    if (auto* owned = std::get_if<OwnedPointer>(&memory)) {
      if (!owned->free()) return;  // it was dead
    } else if (auto* mapped = std::get_if<MappedMemory>(&memory)) {
      if (!mapped->free()) return;
    }  // Numba's pinned memory has no free()
  }

  HostPtr region(std::uint64_t number) {
    const auto at = reinterpret_cast<std::uintptr_t>(regions_[number].data());
    return regions_[number].data() + (4096 - at % 4096) % 4096;
  }

  static void say(std::string_view words) { std::fwrite(words.data(), 1, words.size(), stdout); }
  void tell(std::string_view outcome) {
    say(text::format("{}\n", outcome));
    say(script_.take());
  }

  const ManagerFactory& factory_;
  standin::Script script_;
  std::unique_ptr<Platform> platform_;
  OpenedDevice device_;
  std::unique_ptr<MemoryManager> manager_;
  std::map<std::uint64_t, Memory> slots_;
  std::vector<DeferCleanup> guards_;
  std::vector<std::byte> regions_[4];
};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const auto space = line.find(' ');
    words.push_back(line.substr(0, space));
    line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  }
  return words;
}

int play(const char* spec) {
  const auto factory = find_manager(spec);
  if (!factory) {
    std::fprintf(stderr, "%s\n", describe(factory.error()).c_str());
    return 2;
  }
  Player player(*factory);
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::string_view step(line);
    step.remove_suffix(1);
    if (step == "=") {
      player.begin();
      std::fputs("=\n", stdout);
    } else {
      player.step(words_of(step));
    }
  }
  player.end();
  return 0;
}

}  // namespace
}  // namespace emm

int main(int argc, char** argv) { return argc == 2 ? emm::play(argv[1]) : 2; }
