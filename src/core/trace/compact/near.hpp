#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// Reads the part of a compact file around an event. The index gives the last place before it that
/// lists what is live; if there is none, the reading starts at the beginning. Gives `sink` the
/// header and the operations that made what is live, calls begin() with the number of the next
/// event, and then gives operations until done() is true after one of them, at most up to the first
/// such place after the event. `sink` may report faults, as it does not know what ended before.
///
/// Returns false, having given nothing, if the file has no such places or is not a whole compact
/// file.
Result<bool> read_compact_near(const std::string& path, std::uint64_t event, OperationSink& sink,
                               const std::function<void(std::uint64_t event)>& begin,
                               const std::function<bool()>& done);

/// The number of operations of a compact file, by its index; nothing if it is not a whole compact
/// file.
std::optional<std::uint64_t> count_compact_operations(const std::string& path);

/// Fails if a compact file has more operations than a Trace can hold in `available` bytes; 0:
/// unknown.
Status expect_room(const std::string& path, std::uint64_t available);

}  // namespace emm::trace
