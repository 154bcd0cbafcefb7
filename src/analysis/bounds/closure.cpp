#include "bounds/closure.hpp"

#include <algorithm>
#include <limits>

namespace emm::bounds {
namespace {

using Amount = Choice::Wide;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();  // no edge

// Dinic's maximum flow: it augments along shortest paths until they block, then finds new levels.
class Flow {
 public:
  explicit Flow(std::size_t nodes) : first_(nodes, kNone), level_(nodes), next_(nodes) {}

  void add(std::uint32_t from, std::uint32_t to, Amount room) {
    edges_.push_back({.to = to, .next = first_[from], .room = room});
    first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
    edges_.push_back({.to = from, .next = first_[to], .room = 0});
    first_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
  }

  Amount greatest(std::uint32_t source, std::uint32_t sink) {
    Amount total = 0;
    while (find_levels(source, sink)) {
      next_ = first_;
      while (const auto pushed = push(source, sink)) total += pushed;
    }
    return total;
  }

 private:
  struct Edge {
    std::uint32_t to;
    std::uint32_t next;  // next edge of the same node
    Amount room;
  };

  bool find_levels(std::uint32_t source, std::uint32_t sink) {
    std::fill(level_.begin(), level_.end(), kNone);
    level_[source] = 0;
    std::vector<std::uint32_t> queue{source};
    for (std::size_t at = 0; at < queue.size() && level_[sink] == kNone; ++at) {
      for (auto e = first_[queue[at]]; e != kNone; e = edges_[e].next) {
        if (edges_[e].room == 0 || level_[edges_[e].to] != kNone) continue;
        level_[edges_[e].to] = level_[queue[at]] + 1;
        queue.push_back(edges_[e].to);
      }
    }
    return level_[sink] != kNone;
  }

  // Pushes flow along one path from source to sink. A path can have as many edges as there are
  // nodes, so this does not recurse.
  Amount push(std::uint32_t source, std::uint32_t sink) {
    std::vector<std::uint32_t> way;
    auto at = source;
    while (at != sink) {
      auto& e = next_[at];
      while (e != kNone && (edges_[e].room == 0 || level_[edges_[e].to] != level_[at] + 1)) {
        e = edges_[e].next;
      }
      if (e != kNone) {
        way.push_back(e);
        at = edges_[e].to;
        continue;
      }
      if (at == source) return 0;
      level_[at] = kNone;  // a dead end
      at = edges_[way.back() ^ 1u].to;
      way.pop_back();
    }
    auto room = edges_[way.front()].room;
    for (const auto e : way) room = std::min(room, edges_[e].room);
    for (const auto e : way) {
      edges_[e].room -= room;
      edges_[e ^ 1u].room += room;
    }
    return room;
  }

  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> level_;
  std::vector<std::uint32_t> next_;  // by node: the edge to try next
  std::vector<Edge> edges_;
};

}  // namespace

Amount greatest_gain(const std::vector<Choice>& choices) {
  const auto source = static_cast<std::uint32_t>(choices.size());
  const auto sink = source + 1;
  Flow flow(choices.size() + 2);
  Amount gains = 0;
  for (const auto& choice : choices) gains += std::max<Amount>(choice.gain, 0);
  for (std::uint32_t i = 0; i < choices.size(); ++i) {
    const auto gain = choices[i].gain;
    if (gain > 0) flow.add(source, i, gain);
    if (gain < 0) flow.add(i, sink, -gain);
    for (const auto need : choices[i].needs) flow.add(i, need, gains + 1);
  }
  return gains - flow.greatest(source, sink);
}

}  // namespace emm::bounds
