#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace emm::pool {

/// What an arena has done since it last held no allocation, and what is kept of earlier
/// generations.
///
/// A generation begins as if the arena had nothing: the same requests then meet the same decisions
/// and the same addresses.
class Generation {
 public:
  std::uint64_t number() const noexcept { return number_; }
  /// The most bytes that were allocated.
  std::uint64_t peak() const noexcept { return peak_; }
  void note_allocated(std::uint64_t bytes) noexcept {
    if (peak_ < bytes) peak_ = bytes;
  }
  std::uint64_t requests(std::uint64_t requests_ever) const noexcept {
    return requests_ever - first_request_;
  }
  /// The span count of the alias mappings that this generation has used. note_mapped() counts the
  /// spans of the mappings that it has made.
  std::uint64_t stitched_spans() const noexcept { return stitched_spans_; }
  void note_stitched(std::uint64_t spans) noexcept { stitched_spans_ += spans; }
  void note_mapped(std::uint64_t spans) noexcept { mapped_spans_ += spans; }
  /// The span count of the alias mappings made in vain: by generations that reached no higher peak
  /// than an earlier one.
  std::uint64_t stitched_in_vain() const noexcept { return in_vain_; }

  /// The most bytes that were allocated in any generation.
  std::uint64_t peak_ever() const noexcept { return std::max(peak_, highest_peak_); }

  void begin_next(std::uint64_t requests_ever) noexcept {
    if (peak_ <= highest_peak_) in_vain_ += mapped_spans_;
    highest_peak_ = std::max(highest_peak_, std::exchange(peak_, 0));
    stitched_spans_ = mapped_spans_ = 0;
    first_request_ = requests_ever;
    ++number_;
  }

 private:
  std::uint64_t number_ = 1;
  std::uint64_t peak_ = 0;
  std::uint64_t first_request_ = 0;
  std::uint64_t stitched_spans_ = 0;
  std::uint64_t mapped_spans_ = 0;
  std::uint64_t highest_peak_ = 0;  ///< The highest peak of earlier generations.
  std::uint64_t in_vain_ = 0;
};

}  // namespace emm::pool
