#include "exchange/importers/total_steps.hpp"

#include "base/text_format.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

void add_extension(Operation& operation, std::string& text, std::string_view member) {
  std::string all(operation.extension);
  all.append(all.empty() ? "" : ",").append(member);
  text = std::move(all);
  operation.extension = text;
  operation.members.add(Member::extension);
}

Status TotalSteps::step(const Operation& at, std::uint64_t total, bool preexisting) {
  while (total_ > total) {
    const auto last = blocks_.back();
    if (auto ended = end(at, last); !ended) return ended;
    blocks_.pop_back();
    total_ -= last.size;
    if (total_ >= total) continue;
    if (auto rest = begin(at, total - total_, preexisting, false); !rest) return rest;
  }
  return total_ == total ? Status{} : begin(at, total - total_, preexisting, true);
}

Status TotalSteps::begin(const Operation& at, std::uint64_t size, bool preexisting, bool has_row) {
  const auto id = layer_ == Layer::backing ? ++last_segment_ : run_.next_id();
  blocks_.push_back({.id = id, .size = size});
  total_ += size;
  auto made = at;
  made.op = Op::memalloc;
  made.size = size;
  made.members.add(Member::size);
  if (preexisting) {
    made.preexisting = true;
    made.members.add(Member::preexisting);
  }
  if (!has_row) add_extension(made, extension_, "\"x-no_row\":true");
  return emit(made, id);
}

Status TotalSteps::end(const Operation& at, const Block& block) {
  auto made = at;
  made.op = Op::free;
  return emit(made, block.id);
}

Status TotalSteps::emit(Operation& made, std::uint64_t id) {
  if (layer_ == Layer::backing) {
    made.layer = layer_;
    made.members.add(Member::layer);
    name_ = text::format("s{}", id);
    made.id = Id{.text = name_};
  } else {
    made.id = Id::of(id);
  }
  made.members.add(Member::id);
  return run_.emit(made);
}

}  // namespace emm::trace
