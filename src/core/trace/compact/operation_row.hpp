#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "trace/compact/block_decoder.hpp"

namespace emm::trace::compact {

/// The operations of one block in their order, each with the line that it has in JSON Lines.
class OperationRow {
 public:
  OperationRow(BlockDecoder& decoder, std::uint64_t& operations, std::uint64_t& extensions) noexcept
      : decoder_(decoder), operations_(operations), extensions_(extensions) {}

  /// As BlockDecoder::next(); also sets the line.
  Operation* next() {
    auto* const operation = decoder_.next();
    if (operation == nullptr) return nullptr;
    // The header is line 1.
    operation->line = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(++operations_ + 1, std::numeric_limits<std::uint32_t>::max()));
    if (operation->op == Op::extension) [[unlikely]]
      ++extensions_;
    return operation;
  }
  std::size_t left() const noexcept { return decoder_.left(); }
  /// Does an operation of the block have the member?
  bool has(Op op, Member member) const noexcept { return decoder_.has(op, member); }

 private:
  BlockDecoder& decoder_;
  std::uint64_t& operations_;
  std::uint64_t& extensions_;
};

}  // namespace emm::trace::compact
