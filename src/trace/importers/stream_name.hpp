#pragma once

#include <cstdint>
#include <string>

#include "base/text.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// A recorded stream handle as a trace names it: the two built-in ones by name, others by their hex digits.
/// The default stream, 0, is not named: an operation on it has no `stream`.
class StreamName {
 public:
  /// Sets `operation.stream`, whose text lives until the next call.
  void put(Operation& operation, std::uint64_t handle) {
    if (handle == 0) return;
    name_ = handle == 1 ? "legacy" : handle == 2 ? "per_thread" : text::hex(handle);
    operation.stream = Id{.text = name_};
    operation.members.add(Member::stream);
  }

 private:
  std::string name_;
};

}  // namespace emm::trace
