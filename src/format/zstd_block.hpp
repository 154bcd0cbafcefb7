#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace emm::format {

/// Packs pieces of memory with zstd, each by itself. One thread at a time.
class BlockPacker {
 public:
  explicit BlockPacker(int level);
  ~BlockPacker();
  BlockPacker(const BlockPacker&) = delete;
  BlockPacker& operator=(const BlockPacker&) = delete;

  /// Appends one zstd frame to `out`, and returns its size.
  std::size_t pack(std::string_view bytes, std::string& out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// Unpacks them. One thread at a time.
class BlockUnpacker {
 public:
  BlockUnpacker();
  ~BlockUnpacker();
  BlockUnpacker(const BlockUnpacker&) = delete;
  BlockUnpacker& operator=(const BlockUnpacker&) = delete;

  /// False where `packed` is no whole frame of exactly `size` bytes; `out` has room for them.
  bool unpack(std::string_view packed, char* out, std::size_t size) noexcept;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace emm::format
