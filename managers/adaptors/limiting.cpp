#include <algorithm>
#include <limits>

#include "managers/adaptors/adaptor.hpp"

namespace emm {
namespace {

/// Refuses a request as out of memory if live device and managed memory would exceed `max`.
class LimitingAdaptor final : public Adaptor {
 public:
  LimitingAdaptor(std::unique_ptr<MemoryManager> upstream, std::uint64_t max)
      : Adaptor(std::move(upstream)), max_(max) {}

  ManagerState state() const override {
    auto state = Adaptor::state();
    const std::lock_guard lock(mutex_);
    state.live_bytes = live_;
    if (state.largest_free_bytes)
      state.largest_free_bytes = std::min(*state.largest_free_bytes, max_ - live_);
    return state;
  }

 protected:
  Status admit(const Request& request) override {
    if (!is_on_device(request.kind)) return {};
    const std::lock_guard lock(mutex_);
    if (request.size > max_ - live_) return Error{.code = Errc::out_of_memory, .native = 2};
    live_ += request.size;
    return {};
  }
  void failed(const Request& request, const Error&) override { release(request); }
  void ending(const Allocation& allocation, StreamHandle) noexcept override {
    release(allocation.request);
  }

 private:
  void release(const Request& request) noexcept {
    if (!is_on_device(request.kind)) return;
    const std::lock_guard lock(mutex_);
    live_ -= request.size;
  }

  const std::uint64_t max_;
  mutable std::mutex mutex_;
  std::uint64_t live_ = 0;
};

Result<std::unique_ptr<MemoryManager>> make_limiting(const ManagerContext&,
                                                     std::unique_ptr<MemoryManager> upstream,
                                                     Options options) {
  const auto max = options.bytes("max", std::numeric_limits<std::uint64_t>::max());
  if (auto done = options.finish("adaptor limiting"); !done) return std::move(done).error();
  return std::make_unique<LimitingAdaptor>(std::move(upstream), max);
}

}  // namespace

extern constinit const AdaptorEntry adaptors_limiting_adaptor{
    .name = "limiting",
    .summary = "Out of memory where live device memory would pass max",
    .options = "max=<no limit>",
    .make = make_limiting,
};

}  // namespace emm
