#include "allocators/pytorch/survivors.hpp"

#include <algorithm>

#include "trace/header.hpp"
#include "trace/operation.hpp"

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

void Survivors::end_all(std::uint32_t device) {
  survivors_.erase_if([&](const Survivor& each) { return !each.segment && each.device == device; });
}

void Survivors::collect(const Operation& operation) {
  if (operation.op == Op::reset) return end_all(operation.device);
  if (makes_memory(operation)) {
    survivors_[operation.id] = {
        .number = count_++, .device = operation.device, .segment = is_backing(operation)};
    return;
  }
  if (operation.op != Op::free) return;
  // A block whose free was asked for is gone, unless a row at the end says that it still waits.
  survivors_.erase(operation.id);
  if (is_backing(operation) && operation.has(Member::result))
    survivors_[operation.id] = {.device = operation.device, .pending = true};
}

Status Survivors::on_operation(const Operation& operation) {
  if (to_ == nullptr) {
    collect(operation);
    return {};
  }
  if (makes_memory(operation)) {
    const auto* const found = survivors_.find(operation.id);
    const auto number = count_++;
    if (found == nullptr || (found->number != number && !found->pending)) return {};
    are_sized_ = are_sized_ && (is_backing(operation) || operation.has(Member::granted));
    auto old = operation;
    old.preexisting = true;
    old.members.add(Member::preexisting);
    return to_->on_operation(old);
  }
  if (operation.op != Op::free) return {};
  const auto* const found = survivors_.find(operation.id);
  return found != nullptr && found->pending ? to_->on_operation(operation) : Status();
}

}  // namespace emm::allocators::pytorch
