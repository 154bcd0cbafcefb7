#pragma once

#include "driver/call.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// The operations on a context and its manager that name no memory.
class ContextOperations {
 public:
  explicit ContextOperations(ReplayCore& core) noexcept : core_(core) {}

  void initialize(const trace::Event& event);
  void get_memory_info(const trace::Event& event);
  void defer_cleanup(const trace::Event& event);
  void end_defer_cleanup(const trace::Event& event);
  void trim(const trace::Event& event);
  void reset(const trace::Event& event);
  void create(const trace::Event& event);
  void destroy(const trace::Event& event);

 private:
  /// Runs `call`, which ends all memory of the event's context, and accounts for that memory.
  template <class Call>
  void end_all(const trace::Event& event, Call call);

  ReplayCore& core_;
};

}  // namespace emm::replay
