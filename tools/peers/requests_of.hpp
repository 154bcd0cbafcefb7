#pragma once

#include <string>

#include "base/result.hpp"

namespace emm::peers {

/// Writes what a trace's program asks of a manager as read_requests() takes it: device and managed
/// memory of the first device that the program uses, in the trace's order. Slots are used again,
/// the last freed first, so that there are as many as allocations live at once. A reset frees what
/// it ends. Memory is freed on the stream of its allocation, where PyTorch puts it whatever a
/// program says. Order between streams is left out, since the peers have no call for it. Errors are
/// those of reading and writing.
Status write_requests(const std::string& trace, const std::string& to);

/// The same of a pattern of `emmctl generate` with `streams` streams and `events` operations:
/// seed 1.
Status generate_requests(const std::string& kind, std::uint64_t streams, std::uint64_t events,
                         const std::string& to);

}  // namespace emm::peers
