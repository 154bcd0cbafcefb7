#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::format {

/// One step between a file and its reader: the bytes of the file, or one packing undone. For use
/// inside of format/ only. One thread at a time, except for consumed().
class ByteStage {
 public:
  virtual ~ByteStage() = default;
  /// Fills `out`; fewer bytes than `size` only at the end.
  virtual Result<std::size_t> fill(char* out, std::size_t size) = 0;
  /// Did the packed stream end before its end mark? Valid once fill() has reached the end.
  virtual bool truncated() const noexcept { return false; }
};

/// The bytes of the file itself. magic() shows the first few without consuming them. Any thread may
/// call consumed() and total().
class RawStage : public ByteStage {
 public:
  static constexpr std::size_t kMagicBytes = 4;  // zstd's; gzip has two

  virtual Result<std::string_view>
  magic() = 0;  ///< Up to kMagicBytes bytes; only before the first fill().
  std::uint64_t consumed() const noexcept { return consumed_.load(std::memory_order_relaxed); }
  std::uint64_t total() const noexcept { return total_; }

 protected:
  std::atomic<std::uint64_t> consumed_{0};
  std::uint64_t total_ = 0;
};

/// Opens a file; "-" is standard input.
Result<std::unique_ptr<RawStage>> open_raw(const std::string& path, const std::atomic<bool>* stop);
Error interrupted_reading(const std::string& name);
std::unique_ptr<RawStage> raw_memory(std::string_view bytes);

enum class Packing : std::uint8_t { none, gzip, zstd, encoded };
Packing packing_of(std::string_view magic) noexcept;

/// Unpacks a stream. Consecutive members or frames form one stream. `name` is for messages. Both
/// must outlive the stage. A text that is encoded as UTF-16, or has a mark of UTF-8 in front, comes
/// out as plain UTF-8, packed or not.
std::unique_ptr<ByteStage> unpack(RawStage& packed, Packing packing, const std::string& name);

}  // namespace emm::format
