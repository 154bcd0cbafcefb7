#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "log/record.hpp"

namespace emm::replay {

/// Keeps the records of threads until they can be written in one order, in which no address is ever
/// live twice.
///
/// A thread takes the place of an allocation after the manager has given the memory, and the place
/// of a free before the manager gets it back. So if memory goes from one thread to another, the
/// free takes its place before the allocation does, whichever thread writes its record first. The
/// counter needs only relaxed order: the manager orders two places of one address, because it
/// cannot hand memory out before it was freed.
///
/// Each thread has a Buffer of its own and takes no lock. on_record() is for events that are
/// executed under a lock or while all threads are stopped; one caller at a time.
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
    std::size_t next = 0;    ///< Index of the first record that write() has not written.
  };

  RecordOrder(log::RecordSink& log, std::size_t threads) : log_(log), buffers_(threads + 1) {}

  Buffer& buffer(std::size_t thread) noexcept { return buffers_[thread]; }
  /// The next place in the order.
  std::uint64_t place() noexcept { return places_.fetch_add(1, std::memory_order_relaxed); }
  /// REQUIRES: `place` is above all in the buffer. One thread at a time.
  static void add(Buffer& buffer, std::uint64_t place, const log::Record& record,
                  const log::Gauges& gauges) {
    buffer.kept.push_back({place, record, gauges});
  }
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    add(buffers_.back(), place(), record, gauges);
  }
  /// Writes the records to the log, in the order of their places. REQUIRES: no thread is between
  /// place() and add().
  void write();

 private:
  void write(Buffer::Kept& kept);

  log::RecordSink& log_;
  std::vector<Buffer> buffers_;  ///< By thread; the last one is for on_record().
  std::uint64_t live_bytes_ = 0, live_count_ = 0;
  alignas(128) std::atomic<std::uint64_t> places_{0};
};

}  // namespace emm::replay
