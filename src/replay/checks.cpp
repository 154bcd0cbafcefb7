#include <utility>

#include "replay/parallel.hpp"
#include "replay/run.hpp"

namespace emm::replay {

using log::Violation;

void Run::check_made(const Event& event, std::uint32_t slot) {
  const auto& live = live_[slot];
  const auto address = live.memory.device_pointer().value;
  if (live.memory.size() != event.size) {
    violation(Violation::Kind::wrong_size,
              text::format("{} says that it has {} bytes", described(live), live.memory.size()));
  }
  if (event.size == 0) return;  // there is nothing at its address
  if (address == 0) {
    return violation(Violation::Kind::wrong_address,
                     text::format("{} has the null pointer", described(live)));
  }
  const auto& detail = trace_.detail(event);
  const auto align = detail.expect.align != 0 ? detail.expect.align
                     : detail.align != 0      ? detail.align
                                              : kAlignment;
  if (address % align != 0) {
    violation(Violation::Kind::misaligned,
              text::format("{} is not at a multiple of {}", described(live), align));
  }
  // Others make and end memory meanwhile: what lies elsewhere is not looked at.
  if (!detail.expect.distinct || (parallel_ && parallel_->running())) return;
  for (const auto other : live_.by_id()) {
    // One that overlaps has been reported; this finds an address shared with memory of no bytes.
    if (other == slot || live_[other].ended ||
        live_[other].memory.device_pointer().value != address)
      continue;
    if (live_[other].size != 0) continue;
    violation(Violation::Kind::unexpected,
              text::format("{} is where {} is, expected an address of its own", described(live),
                           described(live_[other])));
  }
}

void Run::check_host(const Event& event, const Host& host) {
  const auto range = range_of(host.memory);
  if (range.size != event.size) {
    violation(Violation::Kind::wrong_size,
              text::format("{}, {} bytes of host memory, says that it has {}",
                           trace_.name(event.id), event.size, range.size));
  }
  if (event.size == 0) return;
  const auto* mapped = std::get_if<MappedMemory>(&host.memory);
  if (range.pointer == nullptr || (mapped != nullptr && !mapped->device_pointer())) {
    violation(Violation::Kind::wrong_address,
              text::format("{}, {} bytes of host memory, has the null pointer",
                           trace_.name(event.id), event.size));
  }
}

void Run::overlap(const Live& live, AllocId other) {
  const auto slot = live_.slot(other);
  const bool mine = slot != LiveSet::kNone && !(parallel_ && parallel_->running());
  violation(Violation::Kind::overlap,
            text::format("{} overlaps {}, which is live", described(live),
                         mine ? described(live_[slot]) : trace_.name(other)));
}

void Run::unplace(Live& live) {
  if (!std::exchange(live.placed, false)) return;
  auto& shared = *lanes_[index(live.context)]->shared;
  const auto address = live.memory.device_pointer().value;
  if (shared.shards) {
    shared.shards->erase(address, live.size, static_cast<std::uint32_t>(live.id));
  } else {
    shared.addresses.erase(address);
  }
}

/// Written between the work that the memory's stream comes after, which may be an earlier owner's,
/// and the work that is put there next.
void Run::fill(const Live& live, StreamHandle stream) {
  const auto ptr = live.memory.device_pointer();
  if (!options_.verify || !ptr || ptr.value % 4 != 0 || live.memory.size() < live.size) return;
  const Ours quiet(*this);
  auto& driver = lanes_[index(live.context)]->driver();
  auto filled = driver.stream_synchronize(stream);
  if (filled) filled = fill_device(driver, ptr, live.size, Pattern(live.id));
  if (filled) filled = driver.stream_synchronize({});  // on which it was put
  if (!filled) {
    violation(Violation::Kind::corruption,
              text::format("{} cannot be written: {}", described(live), describe(filled.error())));
  }
}

void Run::check_content(const Live& live) {
  const auto ptr = live.memory.device_pointer();
  if (!options_.verify || !ptr || ptr.value % 4 != 0 || live.memory.size() < live.size) return;
  const Ours quiet(*this);
  if (const auto difference =
          check_device(lanes_[index(live.context)]->driver(), ptr, live.size, Pattern(live.id))) {
    report(live.id, live.size, ptr.value, *difference);
  }
}

void Run::check_content(AllocId id, const Host& host) {
  if (!host.filled) return;
  const Ours quiet(*this);
  if (const auto difference =
          replay::check_host(range_of(host.memory).pointer, host.size, Pattern(id))) {
    report(id, host.size, host.shown, *difference);
  }
}

void Run::report(AllocId id, std::uint64_t size, std::uint64_t address,
                 const Difference& difference) {
  const auto which = text::format("{} ({} bytes at {})", trace_.name(id), size, text::hex(address));
  if (!difference.refused.empty()) {
    return violation(Violation::Kind::corruption,
                     text::format("{} cannot be read: {}", which, difference.refused));
  }
  auto words = text::format("{} was changed: byte {} is {}, expected {}", which, difference.offset,
                            text::hex(std::to_integer<std::uint64_t>(difference.found)),
                            text::hex(std::to_integer<std::uint64_t>(difference.expected)));
  const auto owner = Pattern::owner(difference.word);
  if (index(owner) < trace_.alloc_count() && owner != id) {
    if (const auto slot = live_.slot(owner);
        slot != LiveSet::kNone && !(parallel_ && parallel_->running())) {
      words += text::format("; that is the content of {}", described(live_[slot]));
    } else if (hosts_.contains(static_cast<std::uint32_t>(owner))) {
      words += text::format("; that is the content of {}", trace_.name(owner));
    }
  }
  violation(Violation::Kind::corruption, words);
}

}  // namespace emm::replay
