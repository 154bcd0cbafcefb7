#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/byte_sum.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// What lives in a trace, as its operations come: each allocation that the program holds. Memory of
/// the layer beneath and refused requests do not count, and the end of a context ends its memory.
class LiveBytes {
 public:
  void take(const Operation& operation);

  std::uint64_t count() const noexcept { return live_.size(); }
  const ByteSum& bytes() const noexcept { return bytes_; }

 private:
  struct Memory {
    std::uint64_t size = 0;
    std::string context;
  };
  std::unordered_map<std::string, Memory> live_;
  ByteSum bytes_;
};

/// Passes a trace on, and ends it where it has no `end` of its own: its program was killed.
class EndingSink final : public OperationSink {
 public:
  explicit EndingSink(OperationSink& to, std::uint64_t lost = 0) : to_(to), lost_(lost) {}

  Status on_header(const Header& header) override { return to_.on_header(header); }
  Status on_operation(const Operation& operation) override;
  Status finish() override;

 private:
  OperationSink& to_;
  LiveBytes live_;
  std::uint64_t lost_, events_ = 0;
  bool ended_ = false;
};

}  // namespace emm::trace
