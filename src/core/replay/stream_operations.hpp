#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "replay/replay_core.hpp"

namespace emm::replay {

/// The operations on streams and events. They are the program's work, not the manager's, so their
/// time is excluded. A failure for lack of support is only counted.
class StreamOperations {
 public:
  explicit StreamOperations(ReplayCore& core) noexcept : core_(core) {}

  void create(const trace::Event& event);
  void destroy(const trace::Event& event);
  void synchronize(const trace::Event& event);
  void synchronize_device(const trace::Event& event);
  void record_event(const trace::Event& event);
  void wait_for_event(const trace::Event& event);
  void synchronize_event(const trace::Event& event);
  /// Copies from one half of the memory to the other, which does not change the pattern of
  /// `verify`.
  void use(const trace::Event& event);
  void record_stream(const trace::Event& event);
  /// Destroys the device's events at the end of a pass.
  void destroy_events();

 private:
  /// An event_record of the trace, until its last mention.
  struct Recorded {
    EventHandle event;
    ContextState* context = nullptr;
  };

  StreamHandle handle_of(const trace::Event& event, ContextState& context) const;
  void judge(const trace::Event& event, const Status& done);
  void forget_after_last_mention(std::uint32_t record);
  void find_last_mentions();
  void destroy_event(const Recorded& recorded);

  ReplayCore& core_;
  std::map<std::uint32_t, Recorded> recorded_;  ///< By record.
  std::vector<std::uint64_t> last_mention_;     ///< Index of the event, by record.
};

}  // namespace emm::replay
