#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/text.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Names a recorded stream handle for a trace: the two built-in streams by their names, others by
/// hex digits. The default stream, 0, has no name, and an operation on it has no `stream`.
class StreamName {
 public:
  /// Sets `operation.stream`. Its text lives until the next call.
  void put(Operation& operation, std::uint64_t handle) {
    if (handle == 0) return;
    auto& kept = names_[handle >> 4 & (names_.size() - 1)];  // rows alternate between few streams
    if (kept.handle != handle) {
      kept.handle = handle;
      kept.name = handle == 1 ? "legacy" : handle == 2 ? "per_thread" : text::hex(handle);
    }
    operation.stream = Id{.text = kept.name};
    operation.members.add(Member::stream);
  }

 private:
  struct Kept {
    std::uint64_t handle = 0;
    std::string name;
  };
  std::array<Kept, 16> names_;
};

}  // namespace emm::trace
