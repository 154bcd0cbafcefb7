#pragma once

#include "replay/context_operations.hpp"
#include "replay/host_operations.hpp"
#include "replay/ipc_operations.hpp"
#include "replay/recorded_operations.hpp"
#include "replay/replay_core.hpp"
#include "replay/stream_operations.hpp"

namespace emm::replay {

/// Executes all operations except allocations and frees of device memory (execute.hpp). One thread
/// at a time.
struct Operations {
  Operations(ReplayCore& core, Stack& stack)
      : contexts(core), host(core), ipc(core, stack), streams(core), recorded(core), core_(core) {}

  ContextOperations contexts;
  HostOperations host;
  IpcOperations ipc;
  StreamOperations streams;
  RecordedOperations recorded;

  void execute(const trace::Event& event);
  /// Frees host memory or an opened handle, or skips memory that was never made.
  void free_other(const trace::Event& event);

 private:
  ReplayCore& core_;
};

}  // namespace emm::replay
