#include "report/recorded.hpp"

#include "base/text_format.hpp"
#include "trace/operation.hpp"

namespace emm::report {
namespace {

/// The pool of an operation, from the trace's member or from PyTorch's snapshots
/// ("x-pool_id":[1,0]).
std::string pool_of(const trace::Operation& operation) {
  if (operation.has(trace::Member::pool)) {
    return operation.pool.is_number() ? text::format("{}", operation.pool.number)
                                      : std::string(operation.pool.text);
  }
  constexpr std::string_view kTorch = "\"x-pool_id\":[";
  if (!operation.has(trace::Member::extension)) return {};
  const auto found = operation.extension.find(kTorch);
  if (found == std::string_view::npos) return {};
  const auto rest = operation.extension.substr(found + kTorch.size());
  return text::format("({})", rest.substr(0, rest.find(']')));
}

}  // namespace

Status Recorded::on_operation(const trace::Operation& operation) {
  const auto before = recording_.trace().size();
  if (auto taken = recording_.on_operation(operation); !taken) return taken;
  if (recording_.trace().size() == before || !operation.has(trace::Member::id) ||
      operation.op == trace::Op::free) {
    return {};
  }
  auto name = pool_of(operation);
  if (name.empty()) return {};
  const auto [found, added] =
      numbers_.try_emplace(std::move(name), static_cast<std::uint32_t>(pools_.size()));
  if (added) pools_.push_back(found->first);
  const auto id = index(recording_.trace()[before].id);
  if (pool_of_.size() <= id) pool_of_.resize(id + 1);
  pool_of_[id] = found->second;
  return {};
}

}  // namespace emm::report
