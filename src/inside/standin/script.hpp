#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "driver/decorate/call_hook.hpp"

namespace emm::standin {

/// Fails the calls that a test chooses. Keeps the text of the calls that change memory or ask for
/// its size. Any thread may call.
class Script final : public CallHook {
 public:
  /// From now on, bit k of `mask` makes the k-th such call fail, with `first` if k is 0, else with
  /// `later`.
  void fail(std::uint64_t mask, std::int32_t first, std::int32_t later);
  /// Returns the text that was kept since the last call, one line for each driver call.
  std::string take();

  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  std::mutex mutex_;
  std::string kept_;
  std::uint64_t mask_ = 0;
  std::int32_t first_ = 0;
  std::int32_t later_ = 0;
  unsigned made_ = 0;
};

}  // namespace emm::standin
