#pragma once

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
  /// Calls what ends all memory of the context of `event`.
  template <class Call>
  void end_all(const trace::Event& event, Call call);

  ReplayCore& core_;
};

}  // namespace emm::replay
