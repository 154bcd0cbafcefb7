#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_sum.hpp"
#include "inspect/walk.hpp"

namespace emm::inspect {

/// Goes over a trace once, as its operations come. It holds only what is live, the call sites, and
/// the names of threads, streams and contexts.
///
/// The operations must be in the order of their seq, no free may complete later than its request,
/// and what existed before the recording must be named at its beginning. Otherwise reading ends
/// with an error, and needs_memory() is true.
class LiveWalk final : public Walk, public trace::OperationSink {
 public:
  /// The visitors must outlive it.
  LiveWalk(std::string source, std::vector<Visitor*> visitors);

  Status on_header(const trace::Header& header) override { return read_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// Called before the header, to begin in the middle of a trace. The first operations are then
  /// those that made what is live, and an unknown id is no fault. go_on_at() says which event comes
  /// next.
  void begin_in_the_middle();
  void go_on_at(std::uint32_t event) noexcept { events_ = event; }

  /// What is known of the trace so far is in trace(), which has only the last event that was
  /// passed.
  bool needs_memory() const noexcept { return needs_memory_ || read_.needs_memory(); }

  bool has_row() const override;
  std::optional<std::uint64_t> device_free() const override;
  void each_live(const std::function<void(const LiveMemory&)>& each) const override;
  std::optional<AddressSpace> space(
      std::uint32_t event, std::optional<std::uint32_t> device = std::nullopt) const override;
  void note_place(std::uint32_t event, const trace::Trace::Place& place) override {
    read_.note_place(event, place);
  }

 private:
  void begin(const trace::Operation& operation, const trace::Event& event);
  void end(LiveMemory& memory);
  void begin_recording();
  Status add_up(const trace::Event& event, std::uint64_t bytes);

  std::vector<Visitor*> visitors_, listeners_;
  trace::Trace read_;
  const trace::Operation* operation_ = nullptr;  // that is passed now
  std::vector<LiveMemory> all_;                  // by AllocId
  ByteSum sum_;
  bool needs_memory_ = false, has_seqs_ = false, in_the_middle_ = false;
};

}  // namespace emm::inspect
