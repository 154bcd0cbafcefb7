#include "format/zstd_block.hpp"

#include <zstd.h>

#include "base/assert.hpp"
#include "base/host_memory.hpp"

namespace emm::format {

struct BlockPacker::Context {
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd{ZSTD_createCCtx(), &ZSTD_freeCCtx};
};

BlockPacker::BlockPacker(int level) : context_(std::make_unique<Context>()) {
  if (context_->zstd == nullptr) out_of_host_memory();
  ZSTD_CCtx_setParameter(context_->zstd.get(), ZSTD_c_compressionLevel, level);
}
BlockPacker::~BlockPacker() = default;

std::size_t BlockPacker::pack(std::string_view bytes, std::string& out) {
  const auto begin = out.size();
  const auto bound = ZSTD_compressBound(bytes.size());
  out.resize(begin + bound);
  const auto size =
      ZSTD_compress2(context_->zstd.get(), out.data() + begin, bound, bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0) out_of_host_memory();  // the only possible error
  out.resize(begin + size);
  return size;
}

struct BlockUnpacker::Context {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{ZSTD_createDCtx(), &ZSTD_freeDCtx};
};

BlockUnpacker::BlockUnpacker() : context_(std::make_unique<Context>()) {
  if (context_->zstd == nullptr) out_of_host_memory();
}
BlockUnpacker::~BlockUnpacker() = default;

bool BlockUnpacker::unpack(std::string_view packed, char* out, std::size_t size) noexcept {
  return ZSTD_decompressDCtx(context_->zstd.get(), out, size, packed.data(), packed.size()) == size;
}

}  // namespace emm::format
