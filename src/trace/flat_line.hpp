#pragma once

#include <array>
#include <string_view>

#include "trace/operation.hpp"

namespace emm::trace {

/// Reads the lines that most traces are made of: one flat object on one line without spaces outside
/// its strings, whose members are known, allowed and said once, whose strings have no escapes.
/// Whatever else a line is, right or wrong, is declined, and is for the OperationReader, which
/// words what is wrong. What is accepted reads as that reads it.
class FlatLineReader {
 public:
  /// False: declined, and `out` means nothing. At least 64 bytes after `line` may be read. Views of
  /// `out` are into `line`. `out` must have come from here before, or be fresh.
  bool read(std::string_view line, Operation& out) noexcept;

 private:
  // For each operation, the member that last followed each member: most likely it does in the next
  // line too.
  std::array<std::array<Member, kMemberCount>, kOpCount> followers_{};
};

}  // namespace emm::trace
