#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/decorate/call_hook.hpp"
#include "driver/driver.hpp"
#include "standin/process_report.hpp"

namespace emm::standin {

/// This process's report to `emmctl run --device sim`. Any thread may call.
class Report {
 public:
  /// Null unless the environment names a folder of reports, and a file can be made there.
  static Report* of_this_process() noexcept;
  /// A forked child calls it, because the parent's report is not its own.
  static void forget() noexcept;

  /// A hook that notes in the report what the calls of device `ordinal` came to. `driver` is that
  /// device's, below the hook.
  std::unique_ptr<CallHook> hook_for(int ordinal, Driver& driver);

  /// Is what libraries take of this device known?
  void set_counts_libraries(int ordinal, bool yes) noexcept;
  /// Libraries have `bytes` of the device now, a part of the `held` ones.
  void note_libraries(int ordinal, std::uint64_t bytes, std::uint64_t held) noexcept;
  /// A library was refused `size` bytes, when the process held `held`.
  void note_refused(int ordinal, std::uint64_t size, std::uint64_t held) noexcept;
  void add_kernel() noexcept { add(page_->kernels, 1); }
  void add_unread(std::uint64_t bytes) noexcept { add(page_->unread, bytes); }
  void set_waited(std::uint64_t bytes) noexcept { add(page_->waited, bytes); }
  /// The process is `rank` of `ranks`, where no launcher said so. One with several ranks is none.
  void set_rank(int rank, int ranks) noexcept;
  void add_answered(std::uint64_t copies, std::uint64_t nothing) noexcept {
    add(page_->copies, copies);
    add(page_->nothing, nothing);
  }
  /// The process has made a communicator. Its number, for note_use().
  std::uint64_t add_communicator(int ranks) noexcept;
  void note_use(std::uint64_t communicator, std::uint32_t uses) noexcept;
  void add_table() noexcept { add(page_->tables, 1); }

 private:
  class Hook;

  explicit Report(ProcessReport* page) noexcept : page_(page) {}
  static Report* make() noexcept;
  static void add(std::uint64_t& to, std::uint64_t amount) noexcept {
    std::atomic_ref<std::uint64_t>(to).fetch_add(amount, std::memory_order_relaxed);
  }

  static void refuse(DeviceReport& device, std::uint64_t size, std::uint64_t held,
                     bool by_library) noexcept;
  /// The process holds so much now, which may be the most so far.
  static void note_held(DeviceReport& device, std::uint64_t held) noexcept;

  ProcessReport* page_;
};

/// Does a whole program run, whose kernels are skipped?
inline bool is_whole_program() noexcept { return Report::of_this_process() != nullptr; }

}  // namespace emm::standin
