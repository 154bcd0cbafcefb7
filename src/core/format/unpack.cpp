#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/host_memory.hpp"
#include "format/byte_stage.hpp"

namespace emm::format {
namespace {

constexpr std::size_t kInputBytes = std::size_t{128} << 10;
constexpr std::string_view kGzipMagic("\x1f\x8b", 2);
constexpr std::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);

Error damaged(const std::string& name, std::string_view packing, std::string_view reason) {
  return fail(Errc::parse_error, "{}: damaged {} data: {}", name, packing, reason);
}

class GzipStage final : public ByteStage {
 public:
  GzipStage(RawStage& packed, const std::string& name)
      : packed_(packed), name_(name), input_(kInputBytes) {
    constexpr int kGzipOnly = 16;
    const int begun = inflateInit2(&stream_, MAX_WBITS + kGzipOnly);
    if (begun == Z_MEM_ERROR) out_of_host_memory();
    EMM_ASSERT(begun == Z_OK);
  }
  ~GzipStage() override { inflateEnd(&stream_); }
  GzipStage(const GzipStage&) = delete;
  GzipStage& operator=(const GzipStage&) = delete;

  bool truncated() const noexcept override { return truncated_; }

  Result<std::size_t> fill(char* out, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) {
        if (auto more = refill(); !more) return std::move(more).error();
        if (stream_.avail_in == 0) {
          ended_ = true;
          truncated_ = in_member_;
          break;
        }
      }
      if (!in_member_ && first_member_done_) {
        // Tape and block writers pad with zeros.
        if (*stream_.next_in == 0) {
          ++stream_.next_in;
          --stream_.avail_in;
          continue;
        }
        inflateReset(&stream_);
      }
      in_member_ = true;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        in_member_ = false;
        first_member_done_ = true;
      } else if (status == Z_MEM_ERROR) {
        out_of_host_memory();
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        return damaged(name_, "gzip", stream_.msg != nullptr ? stream_.msg : "a preset dictionary");
      }
    }
    return size - stream_.avail_out;
  }

 private:
  Status refill() {
    auto got = packed_.fill(reinterpret_cast<char*>(input_.data()), input_.size());
    if (!got) return std::move(got).error();
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(*got);
    return {};
  }

  RawStage& packed_;
  const std::string& name_;
  std::vector<Bytef> input_;
  z_stream stream_{};
  bool in_member_ = false;
  bool first_member_done_ = false;
  bool ended_ = false;
  bool truncated_ = false;
};

class ZstdStage final : public ByteStage {
 public:
  ZstdStage(RawStage& packed, const std::string& name)
      : packed_(packed),
        name_(name),
        buffer_(kInputBytes),
        stream_(ZSTD_createDStream(), &ZSTD_freeDStream) {
    if (stream_ == nullptr) out_of_host_memory();
  }

  bool truncated() const noexcept override { return truncated_; }

  Result<std::size_t> fill(char* out, std::size_t size) override {
    ZSTD_outBuffer output{out, size, 0};
    while (output.pos < output.size && !ended_) {
      // If the last output was full, the stream may still hold unpacked bytes. Ask for input only
      // after an output with room to spare.
      if (input_.pos == input_.size && !pending_) {
        auto got = packed_.fill(buffer_.data(), buffer_.size());
        if (!got) return std::move(got).error();
        input_ = {buffer_.data(), *got, 0};
        if (*got == 0) {
          ended_ = true;
          truncated_ = in_frame_;
          break;
        }
      }
      const auto status = ZSTD_decompressStream(stream_.get(), &output, &input_);
      if (ZSTD_getErrorCode(status) == ZSTD_error_memory_allocation) out_of_host_memory();
      if (ZSTD_isError(status) != 0) return damaged(name_, "zstd", ZSTD_getErrorName(status));
      in_frame_ = status != 0;
      pending_ = in_frame_ && output.pos == output.size;
    }
    return output.pos;
  }

 private:
  RawStage& packed_;
  const std::string& name_;
  std::vector<char> buffer_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool pending_ = false;
  bool in_frame_ = false;
  bool ended_ = false;
  bool truncated_ = false;
};

}  // namespace

Packing packing_of(std::string_view magic) noexcept {
  if (magic.starts_with(kGzipMagic)) return Packing::gzip;
  if (magic.starts_with(kZstdMagic)) return Packing::zstd;
  return Packing::none;
}

std::unique_ptr<ByteStage> unpack(RawStage& packed, Packing packing, const std::string& name) {
  if (packing == Packing::gzip) return std::make_unique<GzipStage>(packed, name);
  EMM_ASSERT(packing == Packing::zstd);
  return std::make_unique<ZstdStage>(packed, name);
}

}  // namespace emm::format
