#pragma once

#include "trace/operation_sink.hpp"

namespace emm::cli {

/// Passes a trace on to two sinks. Both must outlive it; `second` may be null.
class TeeSink final : public trace::OperationSink {
 public:
  TeeSink(trace::OperationSink& first, trace::OperationSink* second)
      : first_(first), second_(second) {}

  Status on_header(const trace::Header& header) override {
    auto given = first_.on_header(header);
    return !given || second_ == nullptr ? given : second_->on_header(header);
  }
  Status on_operation(const trace::Operation& operation) override {
    auto given = first_.on_operation(operation);
    return !given || second_ == nullptr ? given : second_->on_operation(operation);
  }
  Status finish() override {
    auto done = first_.finish();
    return !done || second_ == nullptr ? done : second_->finish();
  }

 private:
  trace::OperationSink& first_;
  trace::OperationSink* second_;
};

}  // namespace emm::cli
