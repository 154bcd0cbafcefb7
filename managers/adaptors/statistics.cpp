#include <algorithm>
#include <array>

#include "base/text_format.hpp"
#include "managers/adaptors/adaptor.hpp"

namespace emm {
namespace {

constexpr std::array<std::string_view, 4> kRows{"memalloc", "memallocmanaged", "memhostalloc",
                                                "mempin"};

std::size_t row_of(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::device:
      return 0;
    case MemoryKind::managed:
      return 1;
    case MemoryKind::host_mapped:
    case MemoryKind::host_pinned:
      return 2;
    case MemoryKind::pinned_mapped:
    case MemoryKind::pinned:
      return 3;
  }
  return 0;
}

/// Counts allocations and failures, and reports the counts at the end of a run.
class StatisticsAdaptor final : public Adaptor {
 public:
  using Adaptor::Adaptor;

  std::string report() const override {
    auto lines = Adaptor::report();
    const std::lock_guard lock(mutex_);
    for (std::size_t row = 0; row < kRows.size(); ++row) {
      const auto& of = counts_[row];
      if (of.allocations + of.failures == 0) continue;
      lines += text::format(
          "statistics: {}: {} allocations, {} failures, {} bytes in all, {} live in {}, {} at the "
          "peak\n",
          kRows[row], of.allocations, of.failures, of.total_bytes, of.live_bytes, of.live,
          of.peak_bytes);
    }
    return lines;
  }

  /// Counts memalloc alone, as RMM's statistics_resource_adaptor does; the upstream may count more.
  MemoryStatistics statistics() const override {
    auto known = Adaptor::statistics();
    const std::lock_guard lock(mutex_);
    const auto& of = counts_[row_of(MemoryKind::device)];
    known.allocation = {of.live, of.peak, of.allocations, of.allocations - of.live};
    known.requested_bytes = {of.live_bytes, of.peak_bytes, of.total_bytes,
                             of.total_bytes - of.live_bytes};
    return known;
  }

  bool reset_peaks() override {
    const bool all = Adaptor::reset_peaks();
    const std::lock_guard lock(mutex_);
    for (auto& of : counts_) {
      of.peak = of.live;
      of.peak_bytes = of.live_bytes;
    }
    return all;
  }

 protected:
  void failed(const Request& request, const Error&) override {
    const std::lock_guard lock(mutex_);
    ++counts_[row_of(request.kind)].failures;
  }
  void handed_out(const Allocation& allocation) override {
    const std::lock_guard lock(mutex_);
    auto& of = counts_[row_of(allocation.request.kind)];
    ++of.allocations;
    ++of.live;
    of.total_bytes += allocation.request.size;
    of.live_bytes += allocation.request.size;
    of.peak_bytes = std::max(of.peak_bytes, of.live_bytes);
    of.peak = std::max(of.peak, of.live);
  }
  void ending(const Allocation& allocation, StreamHandle) noexcept override {
    const std::lock_guard lock(mutex_);
    auto& of = counts_[row_of(allocation.request.kind)];
    --of.live;
    of.live_bytes -= allocation.request.size;
  }

 private:
  struct Counts {
    std::uint64_t allocations = 0;
    std::uint64_t failures = 0;
    std::uint64_t live = 0;
    std::uint64_t peak = 0;  ///< The highest `live`.
    std::uint64_t total_bytes = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;
  };

  mutable std::mutex mutex_;
  std::array<Counts, kRows.size()> counts_{};
};

Result<std::unique_ptr<MemoryManager>> make_statistics(const ManagerContext&,
                                                       std::unique_ptr<MemoryManager> upstream,
                                                       Options options) {
  if (auto done = options.finish("adaptor statistics"); !done) return std::move(done).error();
  return std::make_unique<StatisticsAdaptor>(std::move(upstream));
}

}  // namespace

extern constinit const AdaptorEntry adaptors_statistics_adaptor{
    .name = "statistics",
    .summary = "Counts allocations, failures, bytes and peaks of each operation",
    .options = "",
    .make = make_statistics,
};

}  // namespace emm
