#include "standin/report.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "standin/launched.hpp"

namespace emm::standin {
namespace {

std::once_flag is_made;
std::atomic<Report*> the_report{nullptr};

void read_name_of_program(char* into, std::size_t size) {
  const int file = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const auto got = ::read(file, into, size - 1);
  ::close(file);
  if (got > 0 && into[got - 1] == '\n') into[got - 1] = '\0';
}

}  // namespace

/// Notes the peak and the refusals of one device.
class Report::Hook final : public CallHook {
 public:
  Hook(DeviceReport& device, Driver& driver) : device_(device), driver_(driver) {}

  void after(const CallEvent& event) override {
    switch (event.call) {
      case Call::mem_alloc:
      case Call::mem_alloc_managed:
      case Call::mem_create:
      case Call::mem_alloc_async:
      case Call::mem_alloc_from_pool_async:
        break;
      default:
        return;
    }
    constexpr std::int32_t kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
    if (event.native != 0 && event.native != kOutOfMemory) return;
    const auto held = driver_.held_bytes();
    if (event.native == 0) {
      note_held(device_, held);
      return;
    }
    refuse(device_, event.size, held, false);
  }

 private:
  DeviceReport& device_;
  Driver& driver_;
};

Report* Report::of_this_process() noexcept {
  std::call_once(is_made, [] { the_report = make(); });
  return the_report.load(std::memory_order_relaxed);
}

void Report::forget() noexcept { the_report = make(); }

Report* Report::make() noexcept {
  const char* const folder = std::getenv(kProgramFolder);
  if (folder == nullptr || *folder == '\0') return nullptr;
  // A process that runs another program keeps its number, and each of the programs reports.
  int file = -1;
  for (int program = 0; file < 0 && program < 1000; ++program) {
    char path[4096];
    std::snprintf(path, sizeof path, "%s/process.%d.%d", folder, getpid(), program);
    file = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno != EEXIST) break;
  }
  if (file < 0) return nullptr;
  void* page = MAP_FAILED;
  if (ftruncate(file, sizeof(ProcessReport)) == 0)
    page = mmap(nullptr, sizeof(ProcessReport), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (page == MAP_FAILED) return nullptr;
  auto* const report = static_cast<ProcessReport*>(page);
  report->process = static_cast<std::uint64_t>(getpid());
  read_name_of_program(report->command, sizeof report->command);
  if (const auto said = launched(); said.rank >= 0) {
    report->rank = static_cast<std::uint64_t>(said.rank);
    report->ranks = static_cast<std::uint64_t>(said.ranks);
  }
  report->version = ProcessReport::kVersion;
  return new Report(report);
}

void Report::set_rank(int rank, int ranks) noexcept {
  static std::mutex once;
  static bool has_several = false;
  const std::lock_guard lock(once);
  const auto own = static_cast<std::uint64_t>(rank), all = static_cast<std::uint64_t>(ranks);
  if (launched().rank >= 0 || has_several || page_->ranks > all) return;
  has_several = page_->ranks == all && page_->rank != own;
  page_->rank = own;
  page_->ranks = has_several ? 0 : all;
}

void Report::note_held(DeviceReport& device, std::uint64_t held) noexcept {
  const std::atomic_ref<std::uint64_t> peak(device.peak);
  auto known = peak.load(std::memory_order_relaxed);
  while (known < held) {
    if (!peak.compare_exchange_weak(known, held)) continue;
    std::atomic_ref(device.libraries) = std::atomic_ref(device.libraries_now).load();
    return;
  }
}

void Report::refuse(DeviceReport& device, std::uint64_t size, std::uint64_t held,
                    bool by_library) noexcept {
  if (std::atomic_ref<std::uint64_t>(device.refused).fetch_add(1) != 0) return;
  device.first_refused_size = size;
  device.first_refused_held = held;
  device.first_refused_library = by_library ? 1 : 0;
}

void Report::note_refused(int ordinal, std::uint64_t size, std::uint64_t held) noexcept {
  if (ordinal < ProcessReport::kMostDevices) refuse(page_->device[ordinal], size, held, true);
}

void Report::set_counts_libraries(int ordinal, bool yes) noexcept {
  if (ordinal < ProcessReport::kMostDevices) page_->device[ordinal].counts_libraries = yes ? 1 : 0;
}

void Report::note_libraries(int ordinal, std::uint64_t bytes, std::uint64_t held) noexcept {
  if (ordinal >= ProcessReport::kMostDevices) return;
  std::atomic_ref(page_->device[ordinal].libraries_now) = bytes;
  note_held(page_->device[ordinal], held);
}

std::uint64_t Report::add_communicator(int ranks) noexcept {
  const auto number =
      std::atomic_ref<std::uint64_t>(page_->communicators).fetch_add(1, std::memory_order_relaxed);
  if (number < ProcessReport::kMostCommunicators)
    page_->communicator[number].ranks = static_cast<std::uint32_t>(ranks);
  const char* const most = std::getenv("NCCL_MAX_NCHANNELS");
  page_->channels = most != nullptr ? std::strtoull(most, nullptr, 10) : 0;
  return number;
}

void Report::note_use(std::uint64_t communicator, std::uint32_t uses) noexcept {
  if (communicator >= ProcessReport::kMostCommunicators) return;
  std::atomic_ref<std::uint32_t>(page_->communicator[communicator].uses)
      .fetch_or(uses, std::memory_order_relaxed);
}

std::unique_ptr<CallHook> Report::hook_for(int ordinal, Driver& driver) {
  if (ordinal < 0 || ordinal >= ProcessReport::kMostDevices) return std::make_unique<CallHook>();
  auto& device = page_->device[ordinal];
  if (const auto info = driver.mem_get_info(); info) {
    device.total = info->total;
    // before the first request of the first context: what nobody gets
    if (device.peak == 0 && device.refused == 0)
      device.context = info->total - info->free - driver.held_bytes();
  }
  const auto count = static_cast<std::uint64_t>(ordinal) + 1;
  if (page_->devices < count) page_->devices = count;
  return std::make_unique<Hook>(device, driver);
}

}  // namespace emm::standin

#pragma GCC visibility push(default)
extern "C" {

/// Not a CUDA function. NCCL's stand-in knows the rank of a process.
void emm_standin_note_rank(int rank, int ranks) {
  if (auto* const report = emm::standin::Report::of_this_process()) report->set_rank(rank, ranks);
}

/// Likewise: a communicator of several ranks was made, and is used.
std::uint64_t emm_standin_note_communicator(int ranks) {
  auto* const report = emm::standin::Report::of_this_process();
  return report != nullptr ? report->add_communicator(ranks) : ~std::uint64_t{0};
}
void emm_standin_note_use(std::uint64_t communicator, int sends) {
  using Use = emm::standin::CommunicatorReport;
  if (auto* const report = emm::standin::Report::of_this_process())
    report->note_use(communicator, sends != 0 ? Use::kSends : Use::kCollectives);
}

/// Likewise. Small collectives of a rank that got copies of its own values for those of ranks that
/// do not run; and how often one got nothing of such a rank.
void emm_standin_note_answered(int copies, int nothing) {
  if (auto* const report = emm::standin::Report::of_this_process())
    report->add_answered(static_cast<std::uint64_t>(copies), static_cast<std::uint64_t>(nothing));
}

}  // extern "C"
#pragma GCC visibility pop
