#include "replay/operations.hpp"

namespace emm::replay {

using trace::Op;

void Operations::free_other(const trace::Event& event) {
  if (host.free(event)) return;
  if (core_.held.imports.contains(static_cast<std::uint32_t>(event.id))) {
    return ipc.close_handle(event);
  }
  core_.judge.skip_unmade(event);
}

void Operations::execute(const trace::Event& event) {
  if (event.has(trace::event_flag::backing)) return recorded.count_backing(event);
  const bool elsewhere = event.detail != 0 && core_.state.trace.detail(event).process != 0;
  if (elsewhere && recorded.skip_elsewhere(event)) return;
  switch (event.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
      return;  // execute.hpp executes these
    case Op::free:
      return free_other(event);
    case Op::memhostalloc:
      return host.memhostalloc(event);
    case Op::mempin:
      return host.mempin(event);
    case Op::initialize:
      return contexts.initialize(event);
    case Op::get_ipc_handle:
      return ipc.get_handle(event);
    case Op::open_ipc_handle:
      return ipc.open_handle(event);
    case Op::close_ipc_handle:
      return ipc.close_handle(event);
    case Op::get_memory_info:
      return contexts.get_memory_info(event);
    case Op::defer_cleanup:
      return contexts.defer_cleanup(event);
    case Op::end_defer_cleanup:
      return contexts.end_defer_cleanup(event);
    case Op::reset:
      return contexts.reset(event);
    case Op::context_create:
      return contexts.create(event);
    case Op::context_destroy:
      return contexts.destroy(event);
    case Op::stream_create:
      return streams.create(event);
    case Op::stream_destroy:
      return streams.destroy(event);
    case Op::flush:
      return recorded.count_backing(event);
    case Op::gap:
      return recorded.count_gap();
    case Op::device_sync:
      return streams.synchronize_device(event);
    case Op::stream_sync:
      return streams.synchronize(event);
    case Op::event_record:
      return streams.record_event(event);
    case Op::stream_wait:
      return streams.wait_for_event(event);
    case Op::event_sync:
      return streams.synchronize_event(event);
    case Op::use:
      return streams.use(event);
    case Op::record_stream:
      return streams.record_stream(event);
    case Op::pool_destroy:
    case Op::pool_trim:
      // The manager stands for the trace's only pool. It cannot trim one of several pools.
      if (core_.state.trace.pool_count() == 1) return contexts.trim(event);
      [[fallthrough]];
    case Op::pool_create:
    case Op::graph_begin:
    case Op::graph_end:
    case Op::graph_launch:
    case Op::host_function:
    case Op::address_reserve:
    case Op::address_free:
    case Op::mem_map:
    case Op::mem_unmap:
    case Op::peer_enable:
    case Op::peer_disable:
      return recorded.skip(event);
    case Op::thread_begin:
    case Op::thread_end:
    case Op::define:
    case Op::mark:
    case Op::end:
    case Op::extension:
      return;  // about the trace, not the manager
  }
}

}  // namespace emm::replay
