#include "bounds/solve.hpp"

#include <algorithm>
#include <vector>

#include "base/assert.hpp"
#include "bounds/attempts.hpp"
#include "bounds/bounds.hpp"
#include "bounds/greedy.hpp"
#include "bounds/instance.hpp"
#include "bounds/search.hpp"
#include "bounds/validate.hpp"

namespace emm::bounds {
namespace {

using Outcome = Solution::Outcome;

constexpr std::uint64_t kGreedyWork = 20'000'000;  // little, since the search uses the time better
constexpr std::uint64_t kSpareWeight =
    6;  // in sixteenths, for every other attempt; found by trying
constexpr std::uint64_t kFirstShare = 20'000;   // nodes for one capacity in the first round
constexpr std::uint64_t kLowerShare = 500'000;  // least nodes for the lower bound
constexpr std::size_t kSearchedItemsMax =
    4'000;  // memory: a path of the search takes the square of this

class Budget {
 public:
  explicit Budget(const SolveLimits& limits)
      : nodes_(limits.nodes),
        clock_(limits.clock),
        end_ns_(limits.clock == nullptr ? 0
                                        : saturating_add(limits.clock->now_ns(), limits.time_ns)) {}

  bool out_of_time() const { return clock_ != nullptr && clock_->now_ns() >= end_ns_; }
  std::uint64_t nodes_left() const { return nodes_ - spent_; }
  void spend(std::uint64_t nodes) { spent_ += std::min(nodes, nodes_left()); }
  std::uint64_t spent() const { return spent_; }

 private:
  std::uint64_t nodes_;
  std::uint64_t spent_ = 0;
  const Clock* clock_;
  std::uint64_t end_ns_;
};

Outcome search_part(const Instance& part, std::uint64_t capacity, std::uint64_t nodes,
                    Budget& budget, Layout& layout) {
  if (part.items.size() > kSearchedItemsMax) return Outcome::gave_up;
  const Attempts attempts(part);
  Search search(part, capacity);
  const Search::Stop stop = [&] { return budget.out_of_time(); };
  const auto reserve = budget.nodes_left() - std::min(nodes, budget.nodes_left());
  for (std::uint64_t number = 0; budget.nodes_left() > reserve && !budget.out_of_time(); ++number) {
    const auto outcome =
        search.run(attempts.ranks(number / 2),
                   {.nodes = std::min(attempts.nodes(number), budget.nodes_left() - reserve),
                    .spare_weight = number % 2 == 0 ? 0u : kSpareWeight,
                    .waste_counts = number % 4 < 2},
                   stop);
    budget.spend(search.nodes());
    if (outcome == Search::Outcome::infeasible) return Outcome::infeasible;
    if (outcome == Search::Outcome::gave_up) continue;
    for (std::size_t i = 0; i < part.items.size(); ++i) {
      layout.offsets[part.positions[i]] = search.offsets()[i];
      layout.height = std::max(layout.height, search.offsets()[i] + part.items[i].size);
    }
    return Outcome::placed;
  }
  return Outcome::gave_up;
}

// Searches the smallest part first. One part that does not fit refutes the whole, and the smallest
// is the cheapest to refute.
Outcome search_all(std::span<const Buffer> buffers, std::uint64_t capacity, std::uint64_t nodes,
                   Budget& budget, Layout& layout) {
  auto parts = split(make_instance(buffers));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Instance& a, const Instance& b) { return a.items < b.items; });
  std::stable_sort(parts.begin(), parts.end(), [](const Instance& a, const Instance& b) {
    return a.items.size() < b.items.size();
  });
  layout = {.offsets = std::vector<std::uint64_t>(buffers.size(), 0), .height = 0};
  auto all = Outcome::placed;
  const auto before = budget.spent();
  for (const auto& part : parts) {
    const auto spent = budget.spent() - before;
    const auto outcome =
        search_part(part, capacity, nodes - std::min(nodes, spent), budget, layout);
    if (outcome == Outcome::infeasible) return outcome;
    if (outcome == Outcome::gave_up) all = outcome;
  }
  if (all == Outcome::placed) EMM_ASSERT(!first_violation(buffers, layout, capacity));
  return all;
}

}  // namespace

Solution solve(std::span<const Buffer> buffers, std::uint64_t capacity, const SolveLimits& limits) {
  Budget budget(limits);
  if (requested_bound(buffers) > capacity)
    return {.outcome = Outcome::infeasible, .layout = {}, .nodes = 0};
  auto greedy = place_greedily(buffers, {.work = kGreedyWork});
  if (greedy && greedy->layout.height <= capacity) {
    return {.outcome = Outcome::placed, .layout = std::move(greedy->layout), .nodes = 0};
  }
  Solution solution;
  solution.outcome = search_all(buffers, capacity, limits.nodes, budget, solution.layout);
  solution.nodes = budget.spent();
  if (solution.outcome != Outcome::placed) solution.layout = {};
  return solution;
}

Bracket minimal_capacity(std::span<const Buffer> buffers, double gap, const SolveLimits& limits) {
  Budget budget(limits);
  Bracket bracket;
  bracket.lower = requested_bound(buffers);
  if (auto greedy = place_greedily(buffers)) {
    bracket.layout = std::move(greedy->layout);
    bracket.upper = bracket.layout.height;
    bracket.greedy_height = bracket.upper;
  }
  const auto allowed = [&] {
    return static_cast<std::uint64_t>(gap * static_cast<double>(bracket.lower));
  };
  const auto goes_on = [&] {
    return bracket.upper - bracket.lower > allowed() && budget.nodes_left() > 0 &&
           !budget.out_of_time();
  };
  const auto ask = [&](std::uint64_t capacity, std::uint64_t nodes) {
    Layout layout;
    const auto outcome = search_all(buffers, capacity, nodes, budget, layout);
    if (outcome == Outcome::infeasible) bracket.lower = capacity + 1;
    if (outcome == Outcome::placed) {
      bracket.upper = layout.height;
      bracket.layout = std::move(layout);
    }
    return outcome == Outcome::placed;
  };
  // Most capacities are decided with few nodes, and the others may take any number. So each
  // capacity is tried with few nodes at first and with more in later rounds. The lower bound is
  // often met, so it gets more nodes from the first round on.
  for (auto share = kFirstShare; goes_on(); share = saturating_add(share, 3 * share)) {
    const auto before = budget.spent();
    auto tried = bracket.lower;  // this round is done with all capacities below
    while (bracket.upper - tried > allowed() / 2 && goes_on()) {
      const auto capacity = tried + (bracket.upper - tried) / 2;
      if (!ask(capacity, share)) tried = capacity + 1;
    }
    if (bracket.upper > bracket.lower) ask(bracket.lower, std::max(share, kLowerShare));
    if (budget.spent() == before)
      break;  // the search spent nothing: the parts are too large for it
  }
  bracket.nodes = budget.spent();
  return bracket;
}

}  // namespace emm::bounds
