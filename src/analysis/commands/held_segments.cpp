#include "commands/held_segments.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "driver/call.hpp"
#include "replay/current_event.hpp"

namespace emm::cli {
namespace {

using Held = report::Replayed::Held;

/// The limit for a picture. A manager that calls the driver for each allocation exceeds it.
constexpr std::size_t kMost = 200'000;

}  // namespace

class HeldSegments::Device final : public CallHook {
 public:
  explicit Device(const ManagerContext& context)
      : ordinal_(static_cast<std::uint32_t>(context.shown_ordinal)),
        driver_(*context.driver, *this) {
    if (context.runtime != nullptr)
      runtime_ = std::make_unique<ForwardingRuntime>(*context.runtime, *this);
  }

  Driver* driver() noexcept { return &driver_; }
  Runtime* runtime() noexcept { return runtime_.get(); }

  void after(const CallEvent& event) override {
    if (event.native != 0) return;
    const std::lock_guard lock(mutex_);
    switch (event.call) {
      case Call::mem_alloc:
      case Call::runtime_malloc:
        return begin(event.result, event.size, 0);
      case Call::mem_map:
        return begin(event.pointer, event.size, event.other);
      case Call::mem_free:
      case Call::runtime_free:
        return end(event.pointer, 1);
      case Call::mem_unmap:
        return end(event.pointer, event.size);
      default:
        return;
    }
  }

  const std::vector<Held>& all() const noexcept { return all_; }

 private:
  static std::uint32_t now() noexcept {
    return replay::has_current_event() ? static_cast<std::uint32_t>(replay::current_event()) : 0;
  }
  void begin(std::uint64_t address, std::uint64_t size, std::uint64_t handle) {
    if (all_.size() > kMost) return;
    end(address, size);  // a segment that a reset of the context has ended
    live_[address] = all_.size();
    all_.push_back({.birth = now(),
                    .death = report::Replayed::kNever,
                    .address = address,
                    .size = size,
                    .device = ordinal_,
                    .handle = number_of(handle)});
  }
  /// Numbers handles from 1, in the order of their first use.
  std::uint64_t number_of(std::uint64_t handle) {
    return handle == 0 ? 0 : numbers_.try_emplace(handle, numbers_.size() + 1).first->second;
  }
  void end(std::uint64_t address, std::uint64_t size) {
    auto at = live_.lower_bound(address);
    while (at != live_.end() && at->first - address < size) {
      all_[at->second].death = now();
      at = live_.erase(at);
    }
  }

  std::mutex mutex_;
  std::uint32_t ordinal_;
  ForwardingDriver driver_;
  std::unique_ptr<ForwardingRuntime> runtime_;
  std::vector<Held> all_;
  std::map<std::uint64_t, std::size_t> live_;  // by address: the index in all_
  std::map<std::uint64_t, std::uint64_t> numbers_;
};

HeldSegments::HeldSegments() = default;
HeldSegments::~HeldSegments() = default;

ManagerFactory HeldSegments::watch(ManagerFactory manager) {
  if (!manager.make) return manager;
  manager.make = [this, make = std::move(manager.make)](
                     const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
    if (context.driver == nullptr) return make(context);
    auto watched = context;
    {
      const std::lock_guard lock(mutex_);
      auto& device = *devices_.emplace_back(std::make_unique<Device>(context));
      watched.driver = device.driver();
      watched.runtime = device.runtime();
    }
    return make(watched);
  };
  return manager;
}

std::string HeldSegments::to_text() const {
  std::vector<Held> all;
  for (const auto& device : devices_) {
    if (device->all().size() > kMost) return {};
    all.insert(all.end(), device->all().begin(), device->all().end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Held& a, const Held& b) { return a.birth < b.birth; });
  std::string out;
  for (const auto& each : all) {
    out += text::format("{} {} {} {} {} {}\n", each.birth, each.death, each.address, each.size,
                        each.device, each.handle);
  }
  return out;
}

std::vector<Held> HeldSegments::from_text(std::string_view text) {
  std::vector<Held> out;
  const auto next = [&](char until) {
    const auto end = text.find(until);
    const auto number = text::to_u64(text.substr(0, end)).value_or(0);
    text.remove_prefix(std::min(end, text.size() - 1) + 1);
    return number;
  };
  while (!text.empty()) {
    Held held;
    held.birth = static_cast<std::uint32_t>(next(' '));
    held.death = static_cast<std::uint32_t>(next(' '));
    held.address = next(' ');
    held.size = next(' ');
    held.device = static_cast<std::uint32_t>(next(' '));
    held.handle = next('\n');
    out.push_back(held);
  }
  return out;
}

}  // namespace emm::cli
