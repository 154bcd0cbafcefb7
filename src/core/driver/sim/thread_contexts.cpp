#include "driver/sim/thread_contexts.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace emm::sim::thread_contexts {
namespace {

struct PushedContext {
  std::uint64_t platform;
  ContextHandle context;
};
thread_local std::vector<PushedContext> stack;

}  // namespace

void push(std::uint64_t platform, ContextHandle context) { stack.push_back({platform, context}); }

std::optional<ContextHandle> pop(std::uint64_t platform) {
  const auto top = std::find_if(stack.rbegin(), stack.rend(),
                                [&](const PushedContext& e) { return e.platform == platform; });
  if (top == stack.rend()) return std::nullopt;
  const auto context = top->context;
  stack.erase(std::next(top).base());
  return context;
}

std::uint64_t number_for_platform() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace emm::sim::thread_contexts
