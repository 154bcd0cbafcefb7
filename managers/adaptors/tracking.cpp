#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "driver/driver.hpp"
#include "managers/adaptors/adaptor.hpp"

namespace emm {
namespace {

std::string_view words_of(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, 6> kWords{"device",      "managed",       "mapped host",
                                                   "pinned host", "mapped pinned", "pinned"};
  return kWords[static_cast<std::size_t>(kind)];
}

/// Reports the live allocations; after a run, these are the leaks.
class TrackingAdaptor final : public Adaptor {
 public:
  TrackingAdaptor(std::unique_ptr<MemoryManager> upstream, std::uint64_t list, Driver* driver)
      : Adaptor(std::move(upstream)), list_(list), driver_(driver) {}

  std::string report() const override {
    auto lines = Adaptor::report();
    const auto alive = living();
    std::uint64_t bytes = 0;
    for (const auto& allocation : alive) bytes += allocation.request.size;
    lines += text::format("tracking: {} bytes live in {} allocations\n", bytes, alive.size());
    for (std::size_t i = 0; i < alive.size() && i < list_; ++i) {
      const auto& [request, address, number] = alive[i];
      lines += text::format("tracking: {} {}: {} bytes, allocation {}\n", words_of(request.kind),
                            text::hex(shown(request.kind, address)), request.size, number);
    }
    if (alive.size() > list_)
      lines += text::format("tracking: and {} more\n", alive.size() - list_);
    return lines;
  }

 private:
  std::uint64_t shown(MemoryKind kind, std::uint64_t address) const {
    return is_on_device(kind) ? address : driver_->log_address(reinterpret_cast<HostPtr>(address));
  }

  const std::uint64_t list_;
  Driver* driver_;  ///< Null in a probe.
};

Result<std::unique_ptr<MemoryManager>> make_tracking(const ManagerContext& context,
                                                     std::unique_ptr<MemoryManager> upstream,
                                                     Options options) {
  const auto list = options.count("list", 20);
  if (auto done = options.finish("adaptor tracking"); !done) return std::move(done).error();
  return std::make_unique<TrackingAdaptor>(std::move(upstream), list, context.driver);
}

}  // namespace

extern constinit const AdaptorEntry adaptors_tracking_adaptor{
    .name = "tracking",
    .summary = "Lists what is alive at the end of a run, oldest first",
    .options = "list=20",
    .make = make_tracking,
};

}  // namespace emm
