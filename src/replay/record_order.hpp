#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "log/record.hpp"

namespace emm::replay {

/// Keeps the records of threads until there is an order for them: that in which memory began and
/// ended to be theirs, so that an address is never live twice in a log.
///
/// Each thread has a Buffer of its own, and takes no lock. on_record() is for what is served under
/// a lock or while the threads stand still: one caller at a time.
class RecordOrder final : public log::RecordSink {
 public:
  class alignas(128) Buffer {
    friend class RecordOrder;
    struct Kept {
      std::uint64_t place;
      log::Record record;
      log::Gauges gauges;
    };
    std::vector<Kept> kept;  ///< By place.
    std::size_t next = 0;    ///< Of those, while they are passed on.
  };

  RecordOrder(log::RecordSink& log, std::size_t threads) : log_(log), buffers_(threads + 1) {}

  Buffer& buffer(std::size_t thread) noexcept { return buffers_[thread]; }
  /// A place in the order: of what gives memory after it was given, of what ends it before.
  std::uint64_t place() noexcept { return places_.fetch_add(1, std::memory_order_relaxed); }
  /// Places rise in each buffer. One thread at a time.
  static void add(Buffer& buffer, std::uint64_t place, const log::Record& record,
                  const log::Gauges& gauges) {
    buffer.kept.push_back({place, record, gauges});
  }
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    add(buffers_.back(), place(), record, gauges);
  }
  /// Passes on what there is, in its order. REQUIRES: no thread is between place() and add().
  void pass_on();

 private:
  void give(Buffer::Kept& kept);

  log::RecordSink& log_;
  std::vector<Buffer> buffers_;  ///< By thread; the last is of on_record().
  std::uint64_t live_bytes_ = 0, live_count_ = 0;
  alignas(128) std::atomic<std::uint64_t> places_{0};
};

}  // namespace emm::replay
