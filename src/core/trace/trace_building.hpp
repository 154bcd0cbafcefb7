#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "trace/id_table.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::trace {

/// Does the operation name memory that was made before? Event::flags may then have
/// event_flag::follows.
constexpr bool names_earlier_memory(Op op) noexcept {
  return op == Op::free || op == Op::get_ipc_handle || op == Op::open_ipc_handle ||
         op == Op::close_ipc_handle || op == Op::use || op == Op::record_stream ||
         op == Op::mem_map || op == Op::mem_unmap;
}

/// What a Trace needs while it is being made.
struct Trace::Building {
  IdTable contexts, threads, streams, processes, sites, handles, buffers, records, pools;
  std::vector<std::int32_t> context_of_name;  // -1: the name is not yet a context
  std::vector<bool> device_said;              // of each context
  std::unordered_map<std::uint32_t, ContextId> unnamed_contexts;  // by device
  std::optional<std::pair<std::uint32_t, ContextId>> last_unnamed_context;
  std::unordered_map<std::uint64_t, std::uint32_t> details;  // by hash of content
  std::optional<Id> default_context, default_thread;
  std::string default_context_text, default_thread_text;
  bool main_process_named = false;
  /// For each kind of operation, the event of the last one that named nothing but its id. The next
  /// operation with the same members becomes the same event except for a few numbers.
  struct Plain {
    Members members{};
    Event event{};
    bool known = false;
  };
  std::array<Plain, kOpCount> plain;

  // The order of the trace. No seq is stored while each operation has the next one.
  bool any_seq = false;
  bool sorted = true;
  std::optional<std::uint64_t> first_seq, last_seq;
  BlockVector<std::uint64_t> seqs;  // seq * 2 of each event; + 1 for an event without one
  bool seqs_kept = false;
};

}  // namespace emm::trace
