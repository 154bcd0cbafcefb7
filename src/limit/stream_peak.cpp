#include "limit/stream_peak.hpp"

#include <algorithm>
#include <utility>

#include "limit/closure.hpp"

namespace emm::limit {

StreamPeak::Line& StreamPeak::line(Stream stream) {
  if (stream >= lines_.size()) lines_.resize(std::size_t{stream} + 1);
  return lines_[stream];
}

std::uint32_t StreamPeak::add_node(std::vector<std::uint32_t> needs) {
  if (++node_count_ <= kNodesMost) {
    nodes_.push_back({.needs = std::move(needs)});
  } else {
    nodes_ = {};
  }
  return node_count_;
}

// Where something else came between, the stream goes on in another node.
void StreamPeak::renew(Line& line) {
  if (line.host != host_) {
    line.needs.push_back(host_);
    line.host = host_;
  }
  if (line.needs.empty()) return;
  if (line.last != 0) line.needs.push_back(line.last);
  line.last = add_node(std::exchange(line.needs, {}));
  line.open = true;
}

void StreamPeak::change(Stream stream, Wide by) {
  auto& on = line(stream);
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
  auto& on = line(stream);
  renew(on);
  on.open = false;
  Point point;
  point.section_ = section_;
  point.node_ = on.last;
  return point;
}

void StreamPeak::after(Stream stream, Point point) {
  if (point.node_ == 0 || point.section_ != section_) return;
  auto& on = line(stream);
  if (point.node_ != on.last) on.needs.push_back(point.node_);
}

void StreamPeak::all_after(Point point) {
  if (point.node_ == 0 || point.section_ != section_) return;
  auto needs = std::vector{point.node_};
  if (host_ != 0) needs.push_back(host_);
  host_ = add_node(std::move(needs));
  for (auto& each : lines_) {
    if (each.last == point.node_) each.known = point.node_;
  }
  const bool all_known = std::all_of(lines_.begin(), lines_.end(), [](const Line& each) {
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
  line(one).needs.push_back(node);
  line(other).needs.push_back(node);
}

StreamPeak::Wide StreamPeak::most_of_section() const {
  if (node_count_ > kNodesMost) return told_most_;
  // Of each node its best beginning, then the rest of it, which never gains.
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
  std::fill(lines_.begin(), lines_.end(), Line{});
  host_ = 0;
  ++section_;
}

std::uint64_t StreamPeak::peak() {
  const auto most = std::max(most_, base_ + most_of_section());
  return most > Wide{kTooMany} ? kTooMany : static_cast<std::uint64_t>(most);
}

}  // namespace emm::limit
