#include "conformance/model/comparison.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/assert.hpp"

namespace emm::model {
namespace {

struct Pair {
  Trail expected;
  Trail actual;

  std::size_t differ(const Sequence& sequence, const Runner& play_expected,
                     const Runner& play_actual) {
    expected.clear();
    actual.clear();
    play_expected(sequence, expected);
    play_actual(sequence, actual);
    return first_difference(sequence, expected, actual);
  }
};

void cut_after(Sequence& sequence, std::size_t operation) {
  if (operation + 1 < sequence.operations.size()) sequence.operations.resize(operation + 1);
}

}  // namespace

Runner runner_of(const Rules& rules) {
  struct Fixture {
    ScriptedDevice device;
    Trail trail;
    ContractModel model;
    explicit Fixture(const Rules& kept) : model(kept, device, trail) {}
  };
  return [fixture = std::make_shared<Fixture>(rules)](const Sequence& sequence, Trail& trail) {
    std::swap(fixture->trail, trail);
    fixture->device.restart(sequence.setup, fixture->trail.calls);
    fixture->model.restart(sequence.slots);
    play(sequence, fixture->device, fixture->model, fixture->trail);
    std::swap(fixture->trail, trail);
  };
}

Sequence shrink(Sequence sequence, const Runner& expected, const Runner& actual) {
  Pair pair;
  cut_after(sequence, pair.differ(sequence, expected, actual));
  const auto keep_if_differs = [&](Sequence candidate) {
    const auto at = pair.differ(candidate, expected, actual);
    if (at == kSame) return false;
    cut_after(candidate, at);
    sequence = std::move(candidate);
    return true;
  };
  for (auto chunk = std::max<std::size_t>(sequence.operations.size() / 2, 1); chunk > 0;) {
    bool shorter = false;
    for (std::size_t at = 0; at < sequence.operations.size();) {
      auto candidate = sequence;
      const auto begin = candidate.operations.begin() + static_cast<std::ptrdiff_t>(at);
      const auto length = std::min(chunk, candidate.operations.size() - at);
      candidate.operations.erase(begin, begin + static_cast<std::ptrdiff_t>(length));
      if (keep_if_differs(std::move(candidate))) {
        shorter = true;
      } else {
        at += chunk;
      }
    }
    if (chunk > 1 || !shorter) chunk /= 2;
  }
  for (std::size_t at = 0; at < sequence.operations.size(); ++at) {
    auto plain = sequence;
    plain.operations[at].faults = {};
    if (sequence.operations[at].faults.mask != 0) keep_if_differs(plain);
    if (at >= sequence.operations.size()) break;
    plain = sequence;
    plain.operations[at].nested = kNoSlot;
    if (sequence.operations[at].nested != kNoSlot) keep_if_differs(plain);
  }
  return sequence;
}

std::optional<Mismatch> find_mismatch(const Runner& expected, const Runner& actual,
                                      std::uint64_t first_seed, std::size_t count) {
  Pair pair;
  for (std::size_t i = 0; i < count; ++i) {
    const auto sequence = generate(first_seed + i);
    if (pair.differ(sequence, expected, actual) == kSame) continue;
    Mismatch mismatch{
        .shortest = shrink(sequence, expected, actual), .sequences = i + 1, .story = {}};
    const auto at = pair.differ(mismatch.shortest, expected, actual);
    EMM_ASSERT(at != kSame);  // otherwise a run depends on the runs before it
    mismatch.story = side_by_side(mismatch.shortest, pair.expected, pair.actual, at);
    return mismatch;
  }
  return std::nullopt;
}

}  // namespace emm::model
