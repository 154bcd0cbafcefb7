#include "replay/memory_checks.hpp"

#include <utility>

#include "base/text.hpp"

namespace emm::replay {

using log::Violation;

void MemoryChecks::check(const trace::Event& event, std::uint32_t slot) {
  const auto& live = held_.live[slot];
  const auto address = live.memory.device_pointer().value;
  if (live.memory.size() != event.size) {
    judge_.add_violation(Violation::Kind::wrong_size,
                         text::format("{} says that it has {} bytes", describe(state_.trace, live),
                                      live.memory.size()));
  }
  if (event.size == 0) return;  // memory of no bytes may have any address
  if (address == 0) {
    return judge_.add_violation(
        Violation::Kind::wrong_address,
        text::format("{} has the null pointer", describe(state_.trace, live)));
  }
  const auto& detail = state_.trace.detail(event);
  const auto align = detail.expect.align != 0 ? detail.expect.align
                     : detail.align != 0      ? detail.align
                                              : kAlignment;
  if (address % align != 0) {
    judge_.add_violation(
        Violation::Kind::misaligned,
        text::format("{} is not at a multiple of {}", describe(state_.trace, live), align));
  }
  // While threads run, this thread cannot read the others' entries.
  if (!detail.expect.distinct || state_.threads_running) return;
  for (const auto other : held_.live.by_id()) {
    // Overlaps are already reported. This finds an address that memory of no bytes shares.
    if (other == slot || held_.live[other].ended ||
        held_.live[other].memory.device_pointer().value != address)
      continue;
    if (held_.live[other].size != 0) continue;
    judge_.add_violation(
        Violation::Kind::unexpected,
        text::format("{} is where {} is, expected an address of its own",
                     describe(state_.trace, live), describe(state_.trace, held_.live[other])));
  }
}

void MemoryChecks::check(const trace::Event& event, const HostAllocation& host) {
  const auto range = range_of(host.memory);
  if (range.size != event.size) {
    judge_.add_violation(Violation::Kind::wrong_size,
                         text::format("{}, {} bytes of host memory, says that it has {}",
                                      state_.trace.name(event.id), event.size, range.size));
  }
  if (event.size == 0) return;
  const auto* mapped = std::get_if<MappedMemory>(&host.memory);
  if (range.pointer == nullptr || (mapped != nullptr && !mapped->device_pointer())) {
    judge_.add_violation(Violation::Kind::wrong_address,
                         text::format("{}, {} bytes of host memory, has the null pointer",
                                      state_.trace.name(event.id), event.size));
  }
}

void MemoryChecks::report_overlap(const Live& live, AllocId other) {
  const auto slot = held_.live.slot(other);
  const bool mine = slot != LiveSet::kNone && !state_.threads_running;
  judge_.add_violation(
      Violation::Kind::overlap,
      text::format("{} overlaps {}, which is live", describe(state_.trace, live),
                   mine ? describe(state_.trace, held_.live[slot]) : state_.trace.name(other)));
}

void MemoryChecks::erase_address(Live& live) {
  if (!std::exchange(live.placed, false)) return;
  contexts_[live.context].device_state->erase(live.memory.device_pointer().value, live.size,
                                              static_cast<std::uint32_t>(live.id));
}

bool MemoryChecks::has_content(const Live& live) const noexcept {
  const auto ptr = live.memory.device_pointer();
  return state_.options.verify && ptr && ptr.value % 4 == 0 && live.memory.size() >= live.size;
}

void MemoryChecks::fill(const Live& live, StreamHandle stream) {
  if (!has_content(live)) return;
  const auto ptr = live.memory.device_pointer();
  const EngineWork work(clock_);
  auto& driver = contexts_[live.context].driver();
  auto filled = driver.stream_synchronize(stream);
  if (filled) filled = fill_device(driver, ptr, live.size, Pattern(live.id));
  if (filled) filled = driver.stream_synchronize({});  // the stream of fill_device()
  if (!filled) {
    judge_.add_violation(Violation::Kind::corruption,
                         text::format("{} cannot be written: {}", describe(state_.trace, live),
                                      describe(filled.error())));
  }
}

void MemoryChecks::check_content(const Live& live) {
  if (!has_content(live)) return;
  const auto ptr = live.memory.device_pointer();
  const EngineWork work(clock_);
  if (const auto difference =
          check_device(contexts_[live.context].driver(), ptr, live.size, Pattern(live.id))) {
    report_content(live.id, live.size, ptr.value, *difference);
  }
}

void MemoryChecks::check_content(AllocId id, const HostAllocation& host) {
  if (!host.filled) return;
  const EngineWork work(clock_);
  if (const auto difference =
          replay::check_host(range_of(host.memory).pointer, host.size, Pattern(id))) {
    report_content(id, host.size, host.log_address, *difference);
  }
}

void MemoryChecks::report_content(AllocId id, std::uint64_t size, std::uint64_t address,
                                  const Difference& difference) {
  const auto which =
      text::format("{} ({} bytes at {})", state_.trace.name(id), size, text::hex(address));
  if (!difference.refused.empty()) {
    return judge_.add_violation(Violation::Kind::corruption,
                                text::format("{} cannot be read: {}", which, difference.refused));
  }
  auto words = text::format("{} was changed: byte {} is {}, expected {}", which, difference.offset,
                            text::hex(std::to_integer<std::uint64_t>(difference.found)),
                            text::hex(std::to_integer<std::uint64_t>(difference.expected)));
  const auto owner = Pattern::owner(difference.word);
  if (index(owner) < state_.trace.alloc_count() && owner != id) {
    if (const auto slot = held_.live.slot(owner);
        slot != LiveSet::kNone && !state_.threads_running) {
      words +=
          text::format("; that is the content of {}", describe(state_.trace, held_.live[slot]));
    } else if (held_.hosts.contains(static_cast<std::uint32_t>(owner))) {
      words += text::format("; that is the content of {}", state_.trace.name(owner));
    }
  }
  judge_.add_violation(Violation::Kind::corruption, words);
}

}  // namespace emm::replay
