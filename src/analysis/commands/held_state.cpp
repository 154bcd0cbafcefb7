#include "commands/held_state.hpp"

#include <algorithm>

#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/state.hpp"
#include "base/text_format.hpp"
#include "base/units.hpp"
#include "trace/header.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"

namespace emm::cli {
namespace {

namespace pytorch = allocators::pytorch;

std::string name_of(const pytorch::Inactive& part) {
  const std::string_view size = part.small ? "small" : "large";
  if (part.pool.is_default()) return text::format("{} pool", size);
  return text::format("private pool {}.{}, {}", part.pool.first, part.pool.second, size);
}

}  // namespace

bool is_state_alone(Console& console, const trace::Trace& trace) {
  if (!trace.is_state()) return false;
  console.say(text::format(
      "{}: no history: nothing to replay. It has what was held at one moment, and what a program "
      "needs or a setting takes can be said of its requests alone. What is held is described by "
      "`emmctl explain`. Record the requests too:",
      trace.source()));
  console.aside(trace.header().framework.starts_with("torch")
                    ? "  torch.cuda.memory._record_memory_history(max_entries=1_000_000)  # at the "
                      "beginning\n"
                      "  torch.cuda.memory._dump_snapshot(\"memory.pickle\")  # after a few steps\n"
                    : "  emmctl record -o program.jsonl -- COMMAND\n");
  return true;
}

void say_what_was_before(Console& console, const trace::Trace& trace) {
  if (trace.beginning() == 0) return;
  const trace::Lifetimes lifetimes(trace);
  const auto before = inspect::held_after(lifetimes, 0).bytes;
  const auto most = lifetimes.peak_of(trace::Lifetime::MemoryKind::device);
  if (before == 0) return;
  console.say(text::format(
      "{}: {} of the {} that are live at the peak were there before the first row. How that was "
      "asked for is not recorded: it is laid out anew, and the answer is about the other {}",
      trace.source(), units::bytes(before), units::bytes(most), units::bytes(most - before)));
}

Status ShortRecording::on_header(const trace::Header& header) {
  return recording_ ? recording_->on_header(header) : Status();
}

Status ShortRecording::on_operation(const trace::Operation& operation) {
  if (!recording_) return {};
  const auto asks = trace::asks_for_device_memory(operation.op) && !operation.preexisting &&
                    operation.layer != trace::Layer::backing;
  if (asks && left_-- == 0) {
    recording_.reset();
    return {};
  }
  return recording_->on_operation(operation);
}

void describe_states(std::vector<inspect::FitCheck>& fit_checks,
                     const pytorch::Recording& of_pytorch) {
  if (!of_pytorch.is_recording()) return;
  // Rows: with more, the model is of another allocator.
  constexpr std::uint64_t kUnexplainedMost = 1000;
  for (auto& check : fit_checks) {
    const auto one = of_pytorch.on_device(check.device);
    const auto& settings = one.settings();
    const auto found = check_one_step(one, settings, nullptr, kUnexplainedMost);
    if (one.steps().empty() || found.gave_up) continue;
    const auto state = state_at_end(one, found);
    check.is_divided = true;
    for (const auto& part : inactive(state, settings)) {
      check.inactive.push_back({.pool = name_of(part),
                                .is_private = !part.pool.is_default(),
                                .stream = part.stream,
                                .returnable = part.returnable,
                                .stuck = part.stuck});
    }
    if (!check.capacity) continue;
    const auto largest = largest_request(state, settings, *check.capacity);
    check.largest_request = largest ? largest->bytes : 0;
    check.largest_from_block = largest && largest->from_block;
  }
}

std::vector<inspect::FitCheck> states_of(const trace::Trace& trace,
                                         const ShortRecording& of_pytorch) {
  std::vector<inspect::FitCheck> states;
  if (!trace.is_state() || of_pytorch.get() == nullptr) return states;
  for (const auto device : trace.devices()) states.emplace_back().device = device;
  describe_states(states, *of_pytorch.get());
  std::erase_if(states, [](const inspect::FitCheck& each) { return !each.is_divided; });
  return states;
}

}  // namespace emm::cli
