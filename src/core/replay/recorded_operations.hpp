#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "replay/replay_core.hpp"

namespace emm::replay {

/// The events of a recording that are not executed: what the recorded manager did with its device,
/// operations of other processes, and operations that a replay skips. They are counted for the
/// notes of the summary.
class RecordedOperations {
 public:
  explicit RecordedOperations(ReplayCore& core) noexcept : core_(core) {}

  /// Counts an event of the recorded manager's backing layer, or a flush.
  void count_backing(const trace::Event& event);
  void count_gap() noexcept { ++gaps_; }
  void skip(const trace::Event& event);
  /// Skips an operation of another process. False if it must be executed anyway, because IPC needs
  /// it.
  bool skip_elsewhere(const trace::Event& event);
  std::uint64_t backing_events() const noexcept { return backing_events_; }
  /// Compares the recorded flushes with those of the replay, and writes the notes.
  void summarize(log::Summary& summary) const;
  void add_notes(std::vector<std::string>& notes) const;

 private:
  void add_flush(const trace::Event& event);

  ReplayCore& core_;
  std::vector<log::Flush> flushes_;
  std::map<std::uint32_t, std::uint64_t> backing_;  ///< Bytes by AllocId.
  std::uint64_t backing_bytes_ = 0, backing_peak_ = 0;
  std::uint64_t backing_events_ = 0, gaps_ = 0, elsewhere_ = 0;
  std::map<trace::Op, std::uint64_t> skipped_;
};

}  // namespace emm::replay
