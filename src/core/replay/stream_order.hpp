#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replay/context_set.hpp"
#include "replay/holdings.hpp"
#include "replay/judge.hpp"
#include "replay/replay_clock.hpp"
#include "replay/replay_state.hpp"
#include "stream_order/checker.hpp"

namespace emm::replay {

/// The number of the stream "per_thread", if the trace has it. It is another stream on each thread.
std::optional<StreamId> find_per_thread(const trace::Trace& trace);

/// A checker of stream order for the trace; null if all its work is on one stream.
std::unique_ptr<stream_order::Checker> make_order_checker(const trace::Trace& trace,
                                                          const ReplayOptions& options);

/// Tells the checker what the trace does with memory on streams, and reports the hazards. Before
/// each free it adds the ordering that the recorded program must have had. One thread at a time.
class StreamOrder {
 public:
  /// A stream of the trace.
  struct Stream {
    StreamId id{};
    ThreadId thread{};  ///< 0 except for "per_thread".
    bool operator==(const Stream&) const = default;
  };

  /// `checker` may be null; then only the functions of the first group may be called.
  StreamOrder(ReplayState& state, ReplayClock& clock, Accounts& accounts, ContextSet& contexts,
              Holdings& held, Judge& judge, stream_order::Checker* checker)
      : state_(state),
        clock_(clock),
        accounts_(accounts),
        contexts_(contexts),
        held_(held),
        judge_(judge),
        checker_(checker),
        per_thread_(find_per_thread(state.trace)) {}

  bool is_checked() const noexcept { return checker_ != nullptr; }
  stream_order::Checker& checker() noexcept { return *checker_; }
  Stream stream_of(const trace::Event& event) const noexcept {
    return {event.stream, event.stream == per_thread_ ? event.thread : ThreadId{}};
  }
  Stream stream_of(const Live& live) const noexcept {
    return {live.stream, live.stream == per_thread_ ? live.made_on : ThreadId{}};
  }
  /// Notes that `stream`, which is not the memory's own, uses it (`use` or record_stream).
  void add_user(AllocId id, const Stream& stream);
  void forget_users() noexcept { users_.clear(); }
  /// Counts a stream or event operation that the device does not support.
  void count_refused() noexcept { ++refused_; }
  std::uint64_t refused() const noexcept { return refused_; }

  bool has_hazards() const noexcept { return checker_->any_found(); }
  void report_hazards();
  /// Called before the manager frees the memory on `freed_on`. A manager knows only one stream of
  /// an allocation, so this makes that stream wait for all others that use the memory. A correct
  /// program must do the same.
  void order_before_free(const Live& live, StreamHandle freed_on);
  /// Called before `event` destroys a stream. Makes the owners of memory that the stream uses wait
  /// for it, which is impossible later.
  void order_before_destroy(const trace::Event& event);
  /// Waits for all work, since the program ends only after its work.
  void finish_all_work();

 private:
  bool is_of_other_thread(const Stream& stream) const noexcept;
  void make_wait(ContextState& context, StreamHandle stream, StreamHandle other);
  void make_owner_wait(const Live& live, StreamHandle stream);
  std::string describe(const stream_order::Hazard& hazard) const;

  ReplayState& state_;
  ReplayClock& clock_;
  Accounts& accounts_;
  ContextSet& contexts_;
  Holdings& held_;
  Judge& judge_;
  stream_order::Checker* const checker_;
  const std::optional<StreamId> per_thread_;
  std::map<AllocId, std::vector<Stream>> users_;
  std::uint64_t refused_ = 0;
};

}  // namespace emm::replay
