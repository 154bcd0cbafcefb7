#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "inspect/address_space.hpp"
#include "inspect/held_memory.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// Why a request for device memory failed.
enum class Cause : std::uint8_t {
  need,       ///< Live bytes and request exceed the capacity: no manager could have served it.
  waste,      ///< Both fit into the capacity; what the manager held beyond them did not.
  limit,      ///< The device had room for the request: a limit set elsewhere refused it.
  others,     ///< Both fit into the device, but others on the device held the rest of it.
  not_known,  ///< The trace does not say enough.
};
std::string_view name(Cause cause) noexcept;

/// A recorded out-of-memory and the state of its device just before it, in bytes. An optional is
/// empty if the trace does not say.
struct Oom {
  std::uint32_t event = 0, line = 0, device = 0;
  std::uint64_t time_ns = 0;
  AllocId id{};
  SiteId site{};
  StreamId stream{};
  ThreadId thread{};
  std::uint64_t request = 0;
  /// What the device has to give for it: whole pages, or a segment of PyTorch's allocator.
  std::uint64_t request_pages = 0;
  std::uint64_t live = 0, live_count = 0;
  std::optional<std::uint64_t> capacity, free_at_start;
  std::optional<std::uint64_t> device_free;  ///< When the request failed.
  std::optional<std::uint64_t> reserved;     ///< What the recorded manager held at that moment.
  std::uint64_t reserved_before = 0;         ///< The most that it held at any event until then.
  std::uint64_t segments = 0;
  std::uint64_t pending = 0;  ///< Reserved bytes that were freed and kept for another stream.
  std::optional<AddressSpace> space;
  Cause cause = Cause::not_known;
  /// If the cause is waste, the bytes that the manager held and the program did not use. If it is
  /// others, the bytes of the device that were neither free nor held by the manager. Else 0.
  std::uint64_t excess = 0;
  /// The least that would have been enough: for need, a capacity for any manager; for waste, a
  /// capacity for this manager as it was; for limit, the limit; for others, what they would have
  /// had to release. 0 if it is not known.
  std::uint64_t enough = 0;
};

/// The peaks of one device's memory over the whole trace, in bytes.
struct DevicePeak {
  std::uint64_t live = 0;
  std::uint64_t needed = 0;  ///< Likewise, if each failed request had been served for its moment.
};

struct OomReport {
  std::vector<Oom> all;  ///< By event.
  std::map<std::uint32_t, DevicePeak>
      devices;  ///< Nothing is summed, as memory of one device serves no other.
};

/// Finds every request for device memory that is recorded as out of memory. `capacity`, if given,
/// replaces what the trace says.
OomReport find_ooms(const Recording& recording, const trace::Lifetimes& lifetimes,
                    std::optional<std::uint64_t> capacity = std::nullopt);

}  // namespace emm::inspect
