#include "exchange/importers/paired_rows.hpp"

#include "trace/operation.hpp"

namespace emm::trace {

Status PairedRows::allocate(Operation& op, std::uint64_t address, std::uint64_t size) {
  if (address == 0) return nothing(null_);
  if (size == 0) {
    ++empty_[address];
    return nothing(no_bytes_);
  }
  if (!book_->add(address, {.id = run_.id_to_come(), .size = size})) {
    ++live_again_;
    run_.duplicate();
    return {};
  }
  if (addresses_ == Addresses::recorded) {
    op.addr = address;
    op.members.add(Member::addr);
  }
  return make(op, size);
}

Status PairedRows::allocate_failure(Operation& op, std::uint64_t size, Outcome outcome) {
  op.result.outcome = outcome;
  op.members.add(Member::result);
  return make(op, size);
}

Status PairedRows::make(Operation& op, std::uint64_t size) {
  const auto allocates =
      op.op == Op::memallocmanaged || op.op == Op::memhostalloc || op.op == Op::mempin;
  if (!allocates) op.op = Op::memalloc;
  op.id = Id::of(run_.next_id());
  op.size = size;
  op.members.add(Member::id);
  op.members.add(Member::size);
  run_.used();
  return run_.emit(op);
}

Status PairedRows::free(Operation& op, std::uint64_t address, std::optional<std::uint64_t> size) {
  if (address == 0) return nothing(null_);
  if (!empty_.empty()) {
    // Memory of 0 bytes may share its address with a later allocation. Which of the two a free
    // belongs to makes no difference except to the counts.
    if (const auto found = empty_.find(address); found != empty_.end()) {
      if (--found->second == 0) empty_.erase(found);
      return nothing(no_bytes_);
    }
  }
  const auto ended = book_->remove(address);
  if (!ended) {
    run_.unmatched();
    return {};
  }
  other_size_ += size && *size != ended->size ? 1 : 0;
  op.op = Op::free;
  op.id = Id::of(ended->id);
  op.members.add(Member::id);
  run_.used();
  return run_.emit(op);
}

Status PairedRows::nothing(std::uint64_t& count) {
  ++count;
  run_.other();
  return {};
}

Result<ImportCounts> PairedRows::finish() {
  run_.note(null_, "rows allocate or free nothing, at a null pointer");
  run_.note(no_bytes_, "rows allocate or free 0 bytes");
  run_.note(live_again_, "rows allocate at an address that is live");
  run_.note(other_size_, "rows free another size than was allocated");
  std::uint64_t live = 0;
  ByteSum bytes;
  for (const auto& [process, book] : books_) {
    live += book.count();
    bytes.add(book.bytes());
  }
  return run_.finish(live, bytes);
}

}  // namespace emm::trace
