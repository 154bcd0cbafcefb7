#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/decorate/forwarding_driver.hpp"
#include "driver/device_entry.hpp"

namespace emm::peers {

inline int say(const Error& error, int code = 1) {
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

/// An opened device with streams, whose most bytes are kept. Whoever holds memory of it ends
/// before.
class PlatformAtPeak {
 public:
  PlatformAtPeak() = default;
  PlatformAtPeak(const PlatformAtPeak&) = delete;
  PlatformAtPeak& operator=(const PlatformAtPeak&) = delete;
  ~PlatformAtPeak() {
    for (const auto stream : streams_) {
      if (stream.value != 0 && !opened_.driver->stream_destroy(stream)) break;
    }
    if (is_current_) (void)opened_.driver->ctx_pop_current();
  }

  /// Stream 0 is the default stream. Prints the reason on stderr where it returns false.
  bool open(const std::string& device, std::uint32_t streams) {
    const auto done = try_open(device, streams);
    return done || say(done.error()) == 0;
  }
  Driver& driver() { return *opened_.driver; }
  Runtime* runtime() { return opened_.runtime.get(); }
  Clock& clock() { return platform_->clock(); }
  StreamHandle stream(std::uint16_t number) const { return streams_[number]; }
  /// The stream as CUDA's functions take it.
  void* handle(std::uint16_t number) const {
    return reinterpret_cast<void*>(streams_[number].value);
  }
  void synchronize() { (void)opened_.driver->ctx_synchronize(); }
  std::uint64_t reserved_peak() const { return peak_.peak(); }
  void restart_peak() { peak_.restart(); }
  std::optional<std::uint64_t> device_free() {
    const auto info = opened_.driver->mem_get_info();
    return info ? std::optional(info->free) : std::nullopt;
  }

 private:
  Status try_open(const std::string& device, std::uint32_t streams) {
    auto platform = open_platform(device, {});
    if (!platform) return std::move(platform).error();
    platform_ = *std::move(platform);
    auto opened = platform_->open(0);
    if (!opened) return std::move(opened).error();
    opened_ = hooked(*std::move(opened), peak_);
    peak_.watch(*opened_.driver);
    // As in a program that uses CUDA: kernels are launched in it.
    if (auto pushed = opened_.driver->ctx_push_current(); !pushed) return pushed;
    is_current_ = true;
    streams_.emplace_back();
    while (streams_.size() < streams) {
      auto stream = opened_.driver->stream_create(StreamKind::non_blocking);
      if (!stream) return std::move(stream).error();
      streams_.push_back(*stream);
    }
    return {};
  }

  PeakHook peak_;
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  bool is_current_ = false;
  std::vector<StreamHandle> streams_;
};

}  // namespace emm::peers
