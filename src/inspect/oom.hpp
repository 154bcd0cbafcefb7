#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "inspect/holding.hpp"
#include "inspect/recording.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// Why a request for device memory failed.
enum class Cause : std::uint8_t {
  need,       ///< Live and request exceed the capacity: no manager could have served it.
  waste,      ///< They fit; what the manager held beyond them did not.
  limit,      ///< The device had room for it: something else said no.
  others,     ///< They fit into the device, and others on the device held the rest of it.
  not_known,  ///< The trace does not say enough.
};
std::string_view name(Cause cause) noexcept;

/// A recorded out-of-memory and the state just before it, on its device. Bytes. Nothing where the
/// trace does not say.
struct Oom {
  std::uint32_t event = 0, line = 0, device = 0;
  std::uint64_t time_ns = 0;
  AllocId id{};
  SiteId site{};
  StreamId stream{};
  ThreadId thread{};
  std::uint64_t request = 0;
  std::uint64_t request_pages = 0;  ///< In whole pages of the device.
  std::uint64_t live = 0, live_count = 0;
  std::optional<std::uint64_t> capacity, free_at_start;
  std::optional<std::uint64_t> device_free;  ///< As the request failed.
  std::optional<std::uint64_t> reserved;     ///< By the recorded manager, at that moment;
  std::uint64_t reserved_before = 0;         ///< the most it held at any event until then;
  std::uint64_t segments = 0;
  std::uint64_t pending = 0;  ///< in it, freed and kept for another stream.
  std::optional<Space> space;
  Cause cause = Cause::not_known;
  /// Of waste: bytes that the manager held and the program did not use. Of others: bytes of the
  /// device that neither the manager held nor were free. 0 else.
  std::uint64_t excess = 0;
  /// The least that would have been enough, of what the cause is about: of need, capacity for any
  /// manager; of waste, capacity for this manager as it was; of limit, the limit; of others, what
  /// they would have had to give back. 0: not known.
  std::uint64_t enough = 0;
};

/// The most of one device's memory at any event of the whole trace. Bytes.
struct DevicePeak {
  std::uint64_t live = 0;
  std::uint64_t needed =
      0;  ///< As it would be had each request that failed been served while it asked.
};

struct OomReport {
  std::vector<Oom> all;  ///< By event.
  std::map<std::uint32_t, DevicePeak>
      devices;  ///< Memory of one device serves no other: nothing is summed over them.
};

/// Every request of device memory that is recorded to have failed for want of memory. `capacity`,
/// where given, stands over what the trace says.
OomReport find_ooms(const Recording& recording, const Lifetimes& lifetimes,
                    std::optional<std::uint64_t> capacity = std::nullopt);

}  // namespace emm::inspect
