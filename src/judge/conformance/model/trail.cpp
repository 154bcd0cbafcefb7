#include "conformance/model/trail.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "driver/call.hpp"

namespace emm::model {

void Trail::clear() {
  calls.clear();
  adds.clear();
  flushes.clear();
  steps.clear();
}

void play(const Sequence& sequence, ScriptedDevice& device, Subject& subject, Trail& trail) {
  const auto record = [&](const Outcome& outcome) {
    trail.steps.push_back({.outcome = outcome,
                           .pending = subject.pending(),
                           .calls_end = trail.calls.size(),
                           .adds_end = trail.adds.size(),
                           .flushes_end = trail.flushes.size(),
                           .live_bytes = subject.live_bytes()});
  };
  for (const auto& operation : sequence.operations) {
    std::function<void()> in_first_free;
    if (operation.nested != kNoSlot) {
      in_first_free = [&subject, slot = operation.nested] { subject.drop(slot); };
    }
    device.begin_operation(operation.faults, std::move(in_first_free));
    const auto outcome = subject.perform(operation);
    device.end_operation();
    record(outcome);
  }
  subject.finish();
  record({});
}

std::size_t first_difference(const Sequence& sequence, const Trail& a, const Trail& b) {
  const auto steps = std::min(a.steps.size(), b.steps.size());
  std::size_t calls = 0;
  std::size_t adds = 0;
  std::size_t flushes_a = 0;
  std::size_t flushes_b = 0;
  const auto at = [](const auto& list, std::size_t i) {
    return list.begin() + static_cast<std::ptrdiff_t>(i);
  };
  for (std::size_t i = 0; i < steps; ++i) {
    const auto& x = a.steps[i];
    const auto& y = b.steps[i];
    if (x.outcome != y.outcome || x.pending != y.pending || x.calls_end != y.calls_end ||
        x.adds_end != y.adds_end || x.live_bytes != y.live_bytes)
      return i;
    if (!std::equal(at(a.calls, calls), at(a.calls, x.calls_end), at(b.calls, calls))) return i;
    if (!std::equal(at(a.adds, adds), at(a.adds, x.adds_end), at(b.adds, adds))) return i;
    const bool nests = i < sequence.operations.size() && sequence.operations[i].nested != kNoSlot;
    if (!nests && !std::equal(at(a.flushes, flushes_a), at(a.flushes, x.flushes_end),
                              at(b.flushes, flushes_b), at(b.flushes, y.flushes_end))) {
      return i;
    }
    calls = x.calls_end;
    adds = x.adds_end;
    flushes_a = x.flushes_end;
    flushes_b = y.flushes_end;
  }
  return a.steps.size() == b.steps.size() ? kSame : steps;
}

namespace {

void append_step(std::string& out, const char* whose, const Trail& trail, std::size_t i) {
  if (i >= trail.steps.size()) return;
  const Trail::Step none;
  const auto& before = i == 0 ? none : trail.steps[i - 1];
  const auto& step = trail.steps[i];
  const auto& outcome = step.outcome;
  out += text::format("    {}: outcome {}", whose, outcome.code);
  if (outcome.address != 0) {
    out += text::format(", {} bytes at {}, device address {}", outcome.size,
                        text::hex(outcome.address), text::hex(outcome.device_address));
  }
  if (outcome.info != MemoryInfo{}) {
    out += text::format(", {} bytes of {} free", outcome.info.free, outcome.info.total);
  }
  if (outcome.alive != 0) out += text::format(", {} pointers alive", outcome.alive);
  if (outcome.unheard != 0)
    out += text::format(", {} failed frees that nobody heard of", outcome.unheard);
  out += text::format("; {} live bytes, queue of {} items, {} bytes\n", step.live_bytes,
                      step.pending.count, step.pending.bytes);
  for (auto c = before.calls_end; c < step.calls_end; ++c) {
    out += text::format("      {}\n", describe(trail.calls[c]));
  }
  for (auto a = before.adds_end; a < step.adds_end; ++a) {
    const auto& add = trail.adds[a];
    out += text::format("      add {} {} bytes\n", call_info(add.dtor).name,
                        add.size ? text::format("{}", *add.size) : std::string("?"));
  }
  for (auto f = before.flushes_end; f < step.flushes_end; ++f) {
    out += text::format("      flush of {} items, {} bytes\n", trail.flushes[f].count,
                        trail.flushes[f].bytes);
  }
}

}  // namespace

std::string side_by_side(const Sequence& sequence, const Trail& expected, const Trail& actual,
                         std::size_t operation) {
  const auto& setup = sequence.setup;
  std::string out =
      text::format("seed {}: device of {} bytes (tells {}), {} of host memory, size 0 {}\n",
                   sequence.seed, setup.capacity, setup.total, setup.host_capacity,
                   setup.accepts_zero ? "accepted" : "refused");
  for (std::size_t i = 0; i <= operation; ++i) {
    const bool last = i == operation;
    out += text::format(
        "  {}{}\n", last ? "-> " : "",
        i < sequence.operations.size() ? describe(sequence.operations[i]) : std::string("the end"));
    append_step(out, last ? "expected" : "both", expected, i);
    if (last) append_step(out, "actual", actual, i);
  }
  return out;
}

}  // namespace emm::model
