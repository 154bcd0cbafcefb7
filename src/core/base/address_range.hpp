#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace emm {

/// Removes a range of addresses from pieces of memory, by address, which have an `address` and a
/// `size`. Parts outside of the range stay. No range ends beyond the last address.
template <class Piece>
void remove_range(std::map<std::uint64_t, Piece>& pieces, std::uint64_t begin, std::uint64_t size) {
  const auto end = size > ~begin ? ~std::uint64_t{0} : begin + size;
  auto at = pieces.upper_bound(begin);
  if (at != pieces.begin()) --at;
  while (at != pieces.end() && at->first < end) {
    const auto piece = at->second;
    const auto last = piece.address + piece.size;
    if (last <= begin) {
      ++at;
      continue;
    }
    at = pieces.erase(at);
    if (piece.address < begin) {
      auto rest = piece;
      rest.size = begin - piece.address;
      pieces.emplace(rest.address, rest);
    }
    if (last > end) {
      auto rest = piece;
      rest.address = end;
      rest.size = last - end;
      at = std::next(pieces.insert_or_assign(end, rest).first);
    }
  }
}

}  // namespace emm
