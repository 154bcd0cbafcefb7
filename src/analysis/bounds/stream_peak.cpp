#include "bounds/stream_peak.hpp"

#include <algorithm>
#include <utility>

#include "bounds/closure.hpp"

namespace emm::bounds {

StreamPeak::StreamState& StreamPeak::state(Stream stream) {
  if (stream >= states_.size()) states_.resize(std::size_t{stream} + 1);
  return states_[stream];
}

std::uint32_t StreamPeak::add_node(std::vector<std::uint32_t> needs) {
  if (++node_count_ <= kNodesMost) {
    nodes_.push_back({.needs = std::move(needs)});
  } else {
    nodes_ = {};
  }
  return node_count_;
}

// Begins a new node of the stream if the stream must wait for other nodes.
void StreamPeak::renew(StreamState& state) {
  if (state.host != host_) {
    state.needs.push_back(host_);
    state.host = host_;
  }
  if (state.needs.empty()) return;
  if (state.last != 0) state.needs.push_back(state.last);
  state.last = add_node(std::exchange(state.needs, {}));
  state.open = true;
}

void StreamPeak::change(Stream stream, Wide by) {
  auto& on = state(stream);
  renew(on);
  if (!on.open) {
    on.last = add_node(on.last == 0 ? std::vector<std::uint32_t>{} : std::vector{on.last});
    on.open = true;
  }
  if (!nodes_.empty()) {
    auto& node = nodes_[on.last - 1];
    node.change += by;
    node.most = std::max(node.most, node.change);
  }
  live_ += by;
  told_most_ = std::max(told_most_, live_);
}

StreamPeak::Point StreamPeak::upto(Stream stream) {
  auto& on = state(stream);
  renew(on);
  on.open = false;
  Point point;
  point.section_ = section_;
  point.node_ = on.last;
  return point;
}

void StreamPeak::after(Stream stream, Point point) {
  if (point.node_ == 0 || point.section_ != section_) return;
  auto& on = state(stream);
  if (point.node_ != on.last) on.needs.push_back(point.node_);
}

void StreamPeak::all_after(Point point) {
  if (point.node_ == 0 || point.section_ != section_) return;
  auto needs = std::vector{point.node_};
  if (host_ != 0) needs.push_back(host_);
  host_ = add_node(std::move(needs));
  for (auto& each : states_) {
    if (each.last == point.node_) each.known = point.node_;
  }
  const bool all_known = std::all_of(states_.begin(), states_.end(), [](const StreamState& each) {
    return each.known == each.last && !each.open && each.needs.empty();
  });
  if (all_known) close_section();
}

void StreamPeak::all_after_all() { close_section(); }

void StreamPeak::ends_apart(Point begun, std::uint64_t bytes, Stream one, Stream other) {
  const bool here = begun.node_ != 0 && begun.section_ == section_;
  const auto node = add_node(here ? std::vector{begun.node_} : std::vector<std::uint32_t>{});
  if (!nodes_.empty()) nodes_[node - 1].change = -Wide{bytes};
  live_ -= Wide{bytes};
  state(one).needs.push_back(node);
  state(other).needs.push_back(node);
}

StreamPeak::Wide StreamPeak::most_of_section() const {
  if (node_count_ > kNodesMost) return told_most_;
  // A closed set ends somewhere in each node. So a node makes two choices: its steps up to its own
  // peak, then the rest, which needs the first and never gains.
  std::vector<Choice> choices(nodes_.size() * 2);
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    auto& best = choices[std::size_t{i} * 2];
    auto& rest = choices[std::size_t{i} * 2 + 1];
    best.gain = nodes_[i].most;
    for (const auto need : nodes_[i].needs) best.needs.push_back(need * 2 - 1);
    rest.gain = nodes_[i].change - nodes_[i].most;
    rest.needs = {i * 2};
  }
  return greatest_gain(choices);
}

void StreamPeak::close_section() {
  most_ = std::max(most_, base_ + most_of_section());
  base_ += live_;
  live_ = told_most_ = 0;
  nodes_.clear();
  node_count_ = 0;
  std::fill(states_.begin(), states_.end(), StreamState{});
  host_ = 0;
  ++section_;
}

std::uint64_t StreamPeak::peak() {
  const auto most = std::max(most_, base_ + most_of_section());
  return most > Wide{kTooMany} ? kTooMany : static_cast<std::uint64_t>(most);
}

}  // namespace emm::bounds
