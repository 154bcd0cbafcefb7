#include "trace/importers/placement_rows.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emm::trace {

Header placement_header() {
  Header header;
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  header.framework = "DSA";
  return header;
}

bool PlacementRows::add(PlacementRow row) {
  if (row.id.empty()) {
    text::append(row.id, run_.next_id());
  } else if (!ids_.insert(row.id).second) {
    return false;
  }
  if (row.size == 0) {
    ++no_bytes_;
    run_.other();
    return true;
  }
  run_.used();
  buffers_.push_back({.row = std::move(row), .line = static_cast<std::uint32_t>(run_.line_number())});
  return true;
}

Result<ImportCounts> PlacementRows::finish() {
  ids_.clear();
  std::vector<std::uint32_t> begins(buffers_.size());
  std::iota(begins.begin(), begins.end(), 0u);
  auto ends = begins;
  const auto by = [&](std::uint64_t PlacementRow::*time) {
    return [this, time](std::uint32_t a, std::uint32_t b) { return buffers_[a].row.*time < buffers_[b].row.*time; };
  };
  std::stable_sort(begins.begin(), begins.end(), by(&PlacementRow::lower));
  std::stable_sort(ends.begin(), ends.end(), by(&PlacementRow::upper));
  std::size_t ended = 0;
  for (const auto begin : begins) {
    while (buffers_[ends[ended]].row.upper <= buffers_[begin].row.lower) {
      if (auto given = emit(buffers_[ends[ended++]], false); !given) return std::move(given).error();
    }
    if (auto given = emit(buffers_[begin], true); !given) return std::move(given).error();
  }
  for (; ended < ends.size(); ++ended) {
    if (auto given = emit(buffers_[ends[ended]], false); !given) return std::move(given).error();
  }
  run_.note(no_bytes_, "rows are of 0 bytes");
  return run_.finish(0, 0);
}

Status PlacementRows::emit(const Buffer& buffer, bool begins) {
  Operation op{.op = begins ? Op::memalloc : Op::free, .members = Members(Member::id)};
  op.line = buffer.line;
  op.id = Id::of(buffer.row.id);
  if (begins) {
    op.size = buffer.row.size;
    op.members.add(Member::size);
    op.align = buffer.row.align;
    if (op.align != 0) op.members.add(Member::align);
  }
  return run_.emit(op);
}

}  // namespace emm::trace
