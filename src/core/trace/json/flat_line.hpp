#pragma once

#include <array>
#include <string_view>

#include "trace/operation.hpp"

namespace emm::trace {

/// Reads the lines that make up most traces: one flat object on one line, with at most one space
/// between its tokens, with known and allowed members in any order that occur once, and strings
/// without escapes. Any other line, right or wrong, is declined; the OperationReader then reads it
/// and words its faults. An accepted line gives the same Operation as the OperationReader.
class FlatLineReader {
 public:
  /// Returns false if it declines; `out` then means nothing. At least 64 bytes after `line` must be
  /// readable. The views in `out` point into `line`. `out` must be fresh or filled by this
  /// function.
  bool read(std::string_view line, Operation& out) noexcept;

 private:
  // For each operation and member, the member that last followed it. The next line most likely has
  // the same order. The last row is for the members that stand before `op`.
  std::array<std::array<Member, kMemberCount>, kOpCount + 1> followers_{};
};

}  // namespace emm::trace
