#include "trace/live_bytes.hpp"

#include "trace/operation.hpp"

namespace emm::trace {
namespace {

std::string name_of(const Id& id) {
  return id.is_number() ? std::to_string(id.number) : std::string(id.text);
}

}  // namespace

void LiveBytes::take(const Operation& operation) {
  if (operation.has(Member::layer) && operation.layer == Layer::backing) return;
  const auto outcome = operation.has(Member::result) ? operation.result.outcome : Outcome::none;
  if (outcome != Outcome::none && outcome != Outcome::ok) return;
  const auto context = [&] {
    return operation.has(Member::context) ? name_of(operation.context) : std::string();
  };
  switch (operation.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin: {
      auto& memory = live_[name_of(operation.id)];
      bytes_.subtract(memory.size);
      memory = {operation.size, context()};
      bytes_.add(memory.size);
      break;
    }
    case Op::free:
      if (const auto found = live_.find(name_of(operation.id)); found != live_.end()) {
        bytes_.subtract(found->second.size);
        live_.erase(found);
      }
      break;
    case Op::reset:
    case Op::context_destroy:
      std::erase_if(live_, [&, ended = context()](const auto& entry) {
        if (entry.second.context != ended) return false;
        bytes_.subtract(entry.second.size);
        return true;
      });
      break;
    default:
      break;
  }
}

Status EndingSink::on_operation(const Operation& operation) {
  ended_ = ended_ || operation.op == Op::end;
  ++events_;
  live_.take(operation);
  return to_.on_operation(operation);
}

Status EndingSink::finish() {
  if (!ended_) {
    Operation end{
        .op = Op::end,
        .members = Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
    end.events = events_;
    end.lost = lost_;
    end.live = live_.count();
    end.live_bytes = live_.bytes().value();
    if (auto given = to_.on_operation(end); !given) return given;
  }
  return to_.finish();
}

}  // namespace emm::trace
