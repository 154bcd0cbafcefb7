#include "report/recorded.hpp"

#include "base/text.hpp"

namespace emm::report {

Status Recorded::on_operation(const trace::Operation& operation) {
  const auto before = recording_.trace().size();
  if (auto taken = recording_.on_operation(operation); !taken) return taken;
  if (recording_.trace().size() == before || !operation.has(trace::Member::pool) ||
      !operation.has(trace::Member::id) || operation.op == trace::Op::free) {
    return {};
  }
  auto name = operation.pool.is_number() ? text::format("{}", operation.pool.number)
                                         : std::string(operation.pool.text);
  const auto [found, added] =
      numbers_.try_emplace(std::move(name), static_cast<std::uint32_t>(pools_.size()));
  if (added) pools_.push_back(found->first);
  const auto id = index(recording_.trace()[before].id);
  if (pool_of_.size() <= id) pool_of_.resize(id + 1);
  pool_of_[id] = found->second;
  return {};
}

}  // namespace emm::report
