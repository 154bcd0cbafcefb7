#include "trace/importers/placement_rows.hpp"

#include <algorithm>
#include <utility>

namespace emm::trace {
namespace {

/// A time, and which buffer begins or ends at it.
struct Moment {
  std::uint64_t time;
  std::uint32_t buffer;
  bool operator<(const Moment& other) const noexcept {
    return time != other.time ? time < other.time : buffer < other.buffer;
  }
};

}  // namespace

Header placement_header() {
  Header header;
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  header.framework = "DSA";
  return header;
}

bool PlacementRows::take_id(std::string_view said, Buffer& buffer) {
  const auto id = said.empty() ? Id::of(run_.next_id()) : Id::of(said);
  buffer.named = !id.is_number() || id.number + 1 == 0;
  buffer.id = id.number;
  if (!buffer.named) return numbers_.add(id.number + 1, {});
  const auto [at, added] = places_.emplace(said, names_.size());
  if (!added) return false;
  buffer.id = names_.size();
  names_.push_back(&at->first);
  return true;
}

bool PlacementRows::add(const PlacementRow& row) {
  Buffer buffer{.lower = row.lower, .upper = row.upper, .size = row.size, .align = row.align, .id = 0,
                .line = static_cast<std::uint32_t>(run_.line_number()), .named = false};
  if (!take_id(row.id, buffer)) return false;
  if (row.size == 0) {
    ++no_bytes_;
    run_.other();
    return true;
  }
  run_.used();
  buffers_.push_back(buffer);
  return true;
}

Result<ImportCounts> PlacementRows::finish() {
  const auto in_order = [&](std::uint64_t Buffer::*time) {
    std::vector<Moment> moments;
    moments.reserve(buffers_.size());
    for (const auto& buffer : buffers_) {
      moments.push_back({.time = buffer.*time, .buffer = static_cast<std::uint32_t>(moments.size())});
    }
    std::sort(moments.begin(), moments.end());
    return moments;
  };
  const auto begins = in_order(&Buffer::lower);
  const auto ends = in_order(&Buffer::upper);
  std::size_t ended = 0;
  for (const auto& begin : begins) {
    for (; ends[ended].time <= begin.time; ++ended) {
      if (auto given = emit(buffers_[ends[ended].buffer], false); !given) return std::move(given).error();
    }
    if (auto given = emit(buffers_[begin.buffer], true); !given) return std::move(given).error();
  }
  for (; ended < ends.size(); ++ended) {
    if (auto given = emit(buffers_[ends[ended].buffer], false); !given) return std::move(given).error();
  }
  run_.note(no_bytes_, "rows are of 0 bytes");
  return run_.finish(0, 0);
}

Status PlacementRows::emit(const Buffer& buffer, bool begins) {
  Operation op{.op = begins ? Op::memalloc : Op::free, .members = Members(Member::id)};
  op.line = buffer.line;
  op.id = buffer.named ? Id::of(std::string_view(*names_[buffer.id])) : Id::of(buffer.id);
  if (begins) {
    op.size = buffer.size;
    op.members.add(Member::size);
    op.align = buffer.align;
    if (op.align != 0) op.members.add(Member::align);
  }
  return run_.emit(op);
}

}  // namespace emm::trace
