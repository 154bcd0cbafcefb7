#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Reads a compact file from the last place before the event that tells what is live there, by its
/// index, or from its beginning: gives `sink` the header and the operations that made what is live,
/// then calls begin with the number of the event that comes next, and gives all operations from
/// there on, until done() is true after one of them. `sink` may find faults: what has ended is not
/// known to it.
///
/// False, where nothing was given, if the file has no such places or is no whole compact file.
Result<bool> read_compact_near(const std::string& path, std::uint64_t event, OperationSink& sink,
                               const std::function<void(std::uint64_t event)>& begin,
                               const std::function<bool()>& done);

/// How many operations a compact file has, by its index; nothing of what is no whole compact file.
std::optional<std::uint64_t> count_compact_operations(const std::string& path);

/// An error where a compact file has more operations than a Trace can hold in `available` bytes; 0
/// is not known.
Status expect_room(const std::string& path, std::uint64_t available);

}  // namespace emm::trace
