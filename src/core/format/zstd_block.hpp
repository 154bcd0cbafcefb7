#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace emm::format {

/// Compresses pieces of memory with zstd, each on its own. One thread at a time.
class BlockPacker {
 public:
  explicit BlockPacker(int level);
  ~BlockPacker();
  BlockPacker(const BlockPacker&) = delete;
  BlockPacker& operator=(const BlockPacker&) = delete;

  /// Appends one zstd frame to `out` and returns its size.
  std::size_t pack(std::string_view bytes, std::string& out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// Decompresses what BlockPacker made. One thread at a time.
class BlockUnpacker {
 public:
  BlockUnpacker();
  ~BlockUnpacker();
  BlockUnpacker(const BlockUnpacker&) = delete;
  BlockUnpacker& operator=(const BlockUnpacker&) = delete;

  /// Returns false if `packed` is not one whole frame of exactly `size` bytes. `out` must have room
  /// for `size` bytes.
  bool unpack(std::string_view packed, char* out, std::size_t size) noexcept;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace emm::format
