#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>

#include "trace/trace.hpp"

namespace emm::replay {

/// A trace, an operation a call. Lines are counted from 2, as in JSON Lines. Ids are numbers.
class TraceBuilder {
 public:
  using Op = trace::Op;
  using Member = trace::Member;
  using Outcome = trace::Outcome;

  TraceBuilder() {
    trace_.set_source("test.jsonl");
    trace::Header header;
    header.devices.push_back({.id = 0,
                              .name = "toy",
                              .uuid = {},
                              .capacity = 8 << 20,
                              .free_at_start = 0,
                              .granularity = 0,
                              .alignment = 0});
    EXPECT_TRUE(trace_.on_header(header));
  }

  /// Everything after this call is in that context, or thread, or of that stream.
  TraceBuilder& in_context(std::uint64_t id, std::uint32_t device = 0) {
    context_ = id, device_ = device;
    return *this;
  }
  TraceBuilder& on_thread(std::uint64_t id) {
    thread_ = id;
    return *this;
  }
  TraceBuilder& on_stream(std::uint64_t id) {
    stream_ = id;
    return *this;
  }
  TraceBuilder& on_per_thread() {
    per_thread_ = true;
    return *this;
  }

  TraceBuilder& alloc(std::uint64_t id, std::uint64_t size) {
    return add(sized(Op::memalloc, id, size));
  }
  TraceBuilder& managed(std::uint64_t id, std::uint64_t size) {
    return add(sized(Op::memallocmanaged, id, size));
  }
  TraceBuilder& host(std::uint64_t id, std::uint64_t size, bool mapped = false) {
    auto op = sized(Op::memhostalloc, id, size);
    op.members.add(Member::mapped);
    op.mapped = mapped;
    return add(op);
  }
  TraceBuilder& free(std::uint64_t id) { return add(of(Op::free, id)); }
  TraceBuilder& op(Op op) {
    trace::Operation operation;
    operation.op = op;
    return add(operation);
  }
  TraceBuilder& use(std::uint64_t id) {
    trace::Operation operation;
    operation.op = Op::use;
    operation.members = trace::Members(Member::ids);
    const auto used = trace::Id::of(id);
    operation.ids = {&used, 1};
    return add(operation);
  }
  TraceBuilder& flush(std::uint64_t count, std::uint64_t bytes) {
    trace::Operation operation;
    operation.op = Op::flush;
    operation.layer = trace::Layer::backing;
    operation.members = trace::Members(Member::layer, Member::count, Member::bytes);
    operation.count = count;
    operation.bytes = bytes;
    return add(operation);
  }
  TraceBuilder& export_(std::uint64_t id, std::uint64_t handle) {
    auto operation = of(Op::get_ipc_handle, id);
    operation.members.add(Member::handle);
    operation.handle = trace::Id::of(handle);
    return add(operation);
  }
  TraceBuilder& open(std::uint64_t id, std::uint64_t handle, std::string_view process,
                     std::optional<std::uint64_t> same_as = {}) {
    auto operation = of(Op::open_ipc_handle, id);
    operation.members.add(Member::handle);
    operation.handle = trace::Id::of(handle);
    if (!process.empty()) {
      operation.members.add(Member::process);
      operation.process = trace::Id::of(process);
    }
    if (same_as) {
      operation.members.add(Member::expect);
      operation.expect.same_as = trace::Id::of(*same_as);
      operation.expect.has_same_as = true;
    }
    return add(operation);
  }
  TraceBuilder& close(std::uint64_t id, std::string_view process) {
    auto operation = of(Op::close_ipc_handle, id);
    operation.members.add(Member::process);
    operation.process = trace::Id::of(process);
    return add(operation);
  }

  static trace::Operation of(Op op, std::uint64_t id) {
    trace::Operation operation;
    operation.op = op;
    operation.members = trace::Members(Member::id);
    operation.id = trace::Id::of(id);
    return operation;
  }
  static trace::Operation sized(Op op, std::uint64_t id, std::uint64_t size) {
    auto operation = of(op, id);
    operation.members.add(Member::size);
    operation.size = size;
    return operation;
  }
  static trace::Operation expecting(trace::Operation operation, Outcome outcome) {
    operation.members.add(Member::expect);
    operation.expect.outcome = outcome;
    return operation;
  }
  static trace::Operation recorded(trace::Operation operation, Outcome outcome) {
    operation.members.add(Member::result);
    operation.result.outcome = outcome;
    return operation;
  }

  TraceBuilder& add(trace::Operation operation) {
    operation.line = ++line_;
    if (context_ != kUnset) {
      operation.members.add(Member::context);
      operation.context = trace::Id::of(context_);
      operation.members.add(Member::device);
      operation.device = device_;
    }
    if (thread_ != kUnset) {
      operation.members.add(Member::thread);
      operation.thread = trace::Id::of(thread_);
    }
    const bool streamed =
        operation.op == Op::memalloc || operation.op == Op::free || operation.op == Op::use;
    if (per_thread_ && streamed) {
      operation.members.add(Member::stream);
      operation.stream = trace::Id::of("per_thread");
    }
    if (stream_ != kUnset && streamed) {
      operation.members.add(Member::stream);
      operation.stream = trace::Id::of(stream_);
    }
    const auto added = trace_.on_operation(operation);
    EXPECT_TRUE(added) << describe(added.error());
    return *this;
  }

  trace::Trace done() {
    const auto finished = trace_.finish();
    EXPECT_TRUE(finished) << describe(finished.error());
    return std::move(trace_);
  }

 private:
  static constexpr std::uint64_t kUnset = ~std::uint64_t{0};

  trace::Trace trace_;
  std::uint32_t line_ = 1;
  std::uint64_t context_ = kUnset, thread_ = kUnset, stream_ = kUnset;
  std::uint32_t device_ = 0;
  bool per_thread_ = false;
};

}  // namespace emm::replay
