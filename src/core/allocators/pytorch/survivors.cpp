#include "allocators/pytorch/survivors.hpp"

#include <algorithm>

namespace emm::allocators::pytorch {
namespace {

using trace::Member;
using trace::Op;
using trace::Operation;

bool is_backing(const Operation& operation) {
  return operation.has(Member::layer) && operation.layer == trace::Layer::backing;
}

/// Does the operation make memory of a device, a block or a segment?
bool makes_memory(const Operation& operation) {
  if (operation.op != Op::memalloc) return false;
  if (operation.has(Member::result) && operation.result.outcome == trace::Outcome::oom)
    return false;
  return is_backing(operation) || !operation.has(Member::kind) ||
         operation.kind == trace::Kind::device;
}

}  // namespace

Status Survivors::on_header(const trace::Header& header) {
  return to_ == nullptr ? Status() : to_->on_header(header);
}

void Survivors::pass_to(trace::OperationSink& to) noexcept {
  to_ = &to;
  count_ = 0;
}

Survivors::Survivor* Survivors::find(const trace::Id& id) {
  if (id.is_number()) {
    const auto at = numbered_.find(id.number);
    return at == numbered_.end() ? nullptr : &at->second;
  }
  const auto at = named_.find(std::string(id.text));
  return at == named_.end() ? nullptr : &at->second;
}

Survivors::Survivor& Survivors::at(const trace::Id& id) {
  return id.is_number() ? numbered_[id.number] : named_[std::string(id.text)];
}

void Survivors::remove(const trace::Id& id) {
  if (id.is_number()) {
    numbered_.erase(id.number);
  } else {
    named_.erase(std::string(id.text));
  }
}

void Survivors::end_all(std::uint32_t device) {
  const auto ends = [&](const auto& each) {
    return !each.second.segment && each.second.device == device;
  };
  std::erase_if(numbered_, ends);
  std::erase_if(named_, ends);
}

void Survivors::collect(const Operation& operation) {
  if (operation.op == Op::reset) return end_all(operation.device);
  if (makes_memory(operation)) {
    at(operation.id) = {
        .number = count_++, .device = operation.device, .segment = is_backing(operation)};
    return;
  }
  if (operation.op != Op::free) return;
  // A block whose free was asked for is gone, unless a row at the end says that it still waits.
  remove(operation.id);
  if (is_backing(operation) && operation.has(Member::result))
    at(operation.id) = {.device = operation.device, .pending = true};
}

Status Survivors::on_operation(const Operation& operation) {
  if (to_ == nullptr) {
    collect(operation);
    return {};
  }
  if (makes_memory(operation)) {
    const auto* const found = find(operation.id);
    const auto number = count_++;
    if (found == nullptr || (found->number != number && !found->pending)) return {};
    are_sized_ = are_sized_ && (is_backing(operation) || operation.has(Member::granted));
    auto old = operation;
    old.preexisting = true;
    old.members.add(Member::preexisting);
    return to_->on_operation(old);
  }
  if (operation.op != Op::free) return {};
  const auto* const found = find(operation.id);
  return found != nullptr && found->pending ? to_->on_operation(operation) : Status();
}

}  // namespace emm::allocators::pytorch
