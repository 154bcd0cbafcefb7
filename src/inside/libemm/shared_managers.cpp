#include "libemm/shared_managers.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "emm/memory_manager.hpp"
#include "libemm/forks.hpp"

namespace emm::libemm {

SharedManagers& SharedManagers::make_of_process() {
  [[maybe_unused]] static const bool made = [] {
    auto* const first = new SharedManagers;
    pthread_atfork(nullptr, nullptr, [] {
      // The parent's are left as they are: a thread that the child lacks may hold their locks.
      auto& of_parent = *all_.load(std::memory_order_acquire);
      all_.store(new SharedManagers(of_parent), std::memory_order_release);
    });
    all_.store(first, std::memory_order_release);
    return true;
  }();
  return *all_.load(std::memory_order_acquire);
}

SharedManagers::SharedManagers(SharedManagers& of_parent) {
  // Who holds the lock may be in the driver, and is not in this process.
  const std::unique_lock lock(of_parent.mutex_, std::try_to_lock);
  is_past_fork_ = !lock || of_parent.is_past_fork_ || !of_parent.devices_.empty() ||
                  !of_parent.abandoned_.empty();
  if (!lock) return;
  options_ = of_parent.options_;
  flags_ = of_parent.flags_;
  limits_ = of_parent.limits_;
}

Status SharedManagers::use(const std::string& options, std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  if (options == options_ && flags == flags_) return {};
  if (!devices_.empty()) {
    return Error{.code = Errc::usage,
                 .message = text::format(
                     "the manager of this process is '{}', in use: it cannot become '{}'", options_,
                     options)};
  }
  const emm_create_v1 probe{.struct_size = sizeof(emm_create_v1),
                            .flags = flags | EMM_CREATE_PROBE,
                            .device = 0,
                            .options = options.c_str(),
                            .driver = nullptr,
                            .host = nullptr};
  if (auto looked = ExportedManager::create(probe); !looked) return std::move(looked).error();
  options_ = options;
  flags_ = flags;
  return {};
}

Result<SharedDevice*> SharedManagers::device(int ordinal) {
  if (auto* there = known(ordinal)) return there;
  if (is_past_fork_) return made_before_the_fork();
  const std::lock_guard lock(mutex_);
  auto& found = devices_[ordinal];
  if (found) return found.get();
  const emm_create_v1 create{.struct_size = sizeof(emm_create_v1),
                             .flags = flags_,
                             .device = ordinal,
                             .options = options_.c_str(),
                             .driver = nullptr,
                             .host = nullptr};
  auto made = ExportedManager::create(create);
  auto ready = made ? (*made)->manager().initialize() : Status(made.error());
  if (!ready) {
    devices_.erase(ordinal);
    return std::move(ready).error();
  }
  found = std::make_unique<SharedDevice>(*std::move(made), ordinal);
  if (const auto limit = limits_.find(ordinal); limit != limits_.end())
    found->addressed.set_limit(limit->second);
  make_known(ordinal, found.get());
  return found.get();
}

void SharedManagers::make_known(int ordinal, SharedDevice* device) noexcept {
  if (ordinal >= 0 && ordinal < kQuick)
    quick_[static_cast<std::size_t>(ordinal)].store(device, std::memory_order_release);
}

SharedDevice* SharedManagers::known_slowly(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(ordinal);
  return found != devices_.end() ? found->second.get() : nullptr;
}

SharedDevice* SharedManagers::holder_of(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  for (auto& [ordinal, device] : devices_) {
    if (device->addressed.holds(ptr)) return device.get();
  }
  return nullptr;
}

bool SharedManagers::end(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(ordinal);
  if (found == devices_.end()) return true;
  found->second->addressed.wait();
  if (!found->second->manager->is_idle() || !found->second->addressed.is_idle()) return false;
  make_known(ordinal, nullptr);
  devices_.erase(found);
  return true;
}

void SharedManagers::abandon(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(ordinal);
  if (found == devices_.end()) return;
  make_known(ordinal, nullptr);
  abandoned_.emplace_back(ordinal, std::move(found->second));
  devices_.erase(found);
}

void SharedManagers::set_limit(int ordinal, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limits_[ordinal] = bytes;
  const auto found = devices_.find(ordinal);
  if (found != devices_.end()) found->second->addressed.set_limit(bytes);
}

bool SharedManagers::was_abandoned(int ordinal, DevicePtr ptr) {
  if (is_past_fork_) return true;
  const std::lock_guard lock(mutex_);
  return std::any_of(abandoned_.begin(), abandoned_.end(), [&](const auto& one) {
    return one.first == ordinal && one.second->addressed.holds(ptr);
  });
}

void SharedManagers::record_alive() {
  const std::lock_guard lock(mutex_);
  for (auto& [ordinal, device] : devices_) device->addressed.record_alive();
}

void SharedManagers::trim() {
  const std::lock_guard lock(mutex_);
  for (auto& [ordinal, device] : devices_) {
    device->addressed.wait();
    static_cast<void>(device->manager->manager().trim(0));
  }
}

}  // namespace emm::libemm
