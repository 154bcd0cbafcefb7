#include "bounds/greedy.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/assert.hpp"
#include "bounds/instance.hpp"
#include "bounds/shelf.hpp"
#include "bounds/sweep.hpp"
#include "bounds/validate.hpp"

namespace emm::bounds {
namespace {

__extension__ using Wide = unsigned __int128;
using Order = std::vector<std::uint32_t>;

// Steps of the search: for a small trace, and the most for a large one.
constexpr std::uint64_t kLeastWork = 80'000'000;
constexpr std::uint64_t kMostWork = 700'000'000;
constexpr int kMendings = 4'000;  // times that what stands highest is placed anew

struct Sorting {
  std::string_view name;
  Shelf::Fit fit;
  // Items with greater keys come earlier.
  Wide (*key)(const Item& item, std::uint64_t contention);
};

Wide length_of(const Item& item) { return item.last - item.first; }

// Orders in which the items are placed, tried one after the other until a layout reaches the bound
// or the work is spent.
constexpr std::array kSortings{
    Sorting{"size", Shelf::Fit::first,
            [](const Item& item, std::uint64_t) -> Wide { return item.size; }},
    Sorting{"area", Shelf::Fit::first,
            [](const Item& item, std::uint64_t) -> Wide { return length_of(item) * item.size; }},
    Sorting{"lifetime", Shelf::Fit::first,
            [](const Item& item, std::uint64_t) -> Wide {
              return (length_of(item) << 64) + item.size;
            }},
    Sorting{"size, tightest gap", Shelf::Fit::best,
            [](const Item& item, std::uint64_t) -> Wide { return item.size; }},
    Sorting{"contention, then size", Shelf::Fit::first,
            [](const Item& item, std::uint64_t contention) -> Wide {
              return (Wide{contention} << 64) + item.size;
            }},
    Sorting{"contention, then lifetime", Shelf::Fit::first,
            [](const Item& item, std::uint64_t contention) -> Wide {
              return (Wide{contention} << 64) + length_of(item);
            }},
    Sorting{"size, then time", Shelf::Fit::first,
            [](const Item& item, std::uint64_t) -> Wide {
              return (Wide{item.size} << 64) + ~std::uint64_t{item.first};
            }},
};
// The order of place_in_time(), which gives the layout to start from.
constexpr Sorting kInTime{"time", Shelf::Fit::best, [](const Item& item, std::uint64_t) -> Wide {
                            return (Wide{~std::uint64_t{item.first}} << 64) + item.size;
                          }};

// The most live bytes in any section of each item, from a sparse table of maxima over powers of
// two.
std::vector<std::uint64_t> contentions(const Instance& instance) {
  std::vector<std::vector<std::uint64_t>> maxima{instance.section_totals()};
  for (std::size_t step = 1; step * 2 <= maxima.front().size(); step *= 2) {
    const auto& last = maxima.back();
    std::vector<std::uint64_t> next(last.size() - step);
    for (std::size_t s = 0; s < next.size(); ++s) next[s] = std::max(last[s], last[s + step]);
    maxima.push_back(std::move(next));
  }
  std::vector<std::uint64_t> found;
  found.reserve(instance.items.size());
  for (const auto& item : instance.items) {
    std::size_t level = 0;
    while ((std::uint32_t{2} << level) <= item.last - item.first) ++level;
    found.push_back(std::max(maxima[level][item.first],
                             maxima[level][item.last - (std::uint32_t{1} << level)]));
  }
  return found;
}

Order sorted_by(const Sorting& sorting, const Instance& instance,
                const std::vector<std::uint64_t>& contention) {
  std::vector<Wide> keys(instance.items.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] = sorting.key(instance.items[i], contention[i]);
  Order order(keys.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
  return order;
}

class Placer {
 public:
  Placer(const Instance& instance, std::uint64_t budget)
      : instance_(instance),
        budget_(budget),
        shelf_(instance.items, instance.sections),
        offsets_(instance.items.size()) {}

  bool spent() const noexcept { return shelf_.work() >= budget_; }
  const std::vector<std::uint64_t>& offsets() const noexcept { return offsets_; }

  // Places all items below `limit`. On failure returns the index, in the order, of the first item
  // that does not fit or that the budget does not reach.
  std::optional<std::size_t> try_order(const Order& order, Shelf::Fit fit, std::uint64_t limit) {
    shelf_.clear();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& item = instance_.items[order[i]];
      const auto offset = spent() ? std::nullopt : shelf_.find(item, fit, limit);
      if (!offset) return i;
      shelf_.place(item, *offset);
      offsets_[order[i]] = *offset;
    }
    return std::nullopt;
  }

 private:
  const Instance& instance_;
  std::uint64_t budget_;
  Shelf shelf_;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace

std::optional<Greedy> place_greedily(std::span<const Buffer> buffers, const GreedyLimits& limits) {
  const auto instance = make_instance(buffers);
  Greedy best{.layout = {.offsets = std::vector<std::uint64_t>(buffers.size(), 0), .height = 0},
              .order = "size"};
  if (instance.items.empty()) return best;

  const auto totals = instance.section_totals();
  const auto bound = *std::max_element(totals.begin(), totals.end());
  const auto contention = contentions(instance);
  const std::uint64_t count = instance.items.size();
  const auto budget =
      limits.work != 0 ? limits.work : std::clamp(count * count / 5, kLeastWork, kMostWork);
  Placer placer(instance, budget);
  bool found = false;
  Order best_order;
  auto best_fit = Shelf::Fit::first;

  const auto keep = [&](const Sorting& by, const std::vector<std::uint64_t>& offsets) {
    found = true;
    best.order = by.name;
    best_fit = by.fit;
    best.layout.height = 0;
    for (std::size_t i = 0; i < instance.items.size(); ++i) {
      best.layout.offsets[instance.positions[i]] = offsets[i];
      best.layout.height = std::max(best.layout.height, offsets[i] + instance.items[i].size);
    }
  };
  const auto done = [&] { return (found && best.layout.height <= bound) || placer.spent(); };
  const auto limit = [&] { return found ? best.layout.height - 1 : kTooMany; };

  // This ignores the budget: it is fast however many items are live at once, and it guarantees a
  // layout to start from.
  if (const auto in_time = place_in_time(instance)) {
    keep(kInTime, *in_time);
    best_order = sorted_by(kInTime, instance, contention);
  }
  for (const auto& sorting : kSortings) {
    if (done()) break;
    auto order = sorted_by(sorting, instance, contention);
    if (placer.try_order(order, sorting.fit, limit())) continue;
    keep(sorting, placer.offsets());
    best_order = std::move(order);
  }
  for (int i = 0; found && i < kMendings && !done(); ++i) {
    const auto stuck = placer.try_order(best_order, best_fit, limit());
    if (!stuck) {
      keep({.name = best.order, .fit = best_fit, .key = nullptr}, placer.offsets());
      continue;
    }
    const auto to = static_cast<std::ptrdiff_t>(*stuck / 2);
    const auto from = static_cast<std::ptrdiff_t>(*stuck);
    std::rotate(best_order.begin() + to, best_order.begin() + from, best_order.begin() + from + 1);
  }
  if (!found) return std::nullopt;
  EMM_ASSERT(!first_violation(buffers, best.layout, best.layout.height));
  return best;
}

}  // namespace emm::bounds
