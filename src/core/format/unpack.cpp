#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/utf8.hpp"
#include "format/byte_stage.hpp"

namespace emm::format {
namespace {

// Bytes: what zstd wants to be given at a time.
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
    constexpr int kGzipOnly = 16;  // zlib: added to the window's bits, it asks for a gzip head
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

enum class Encoding : std::uint8_t { none, utf8_mark, utf16_little, utf16_big };

/// The encoding of a text, by its mark or by the zeros beside its first two letters.
Encoding encoding_of(std::string_view begin) noexcept {
  if (begin.starts_with("\xef\xbb\xbf")) return Encoding::utf8_mark;
  const auto is_letter = [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  };
  if (begin.size() < 4) return Encoding::none;
  // UTF-32, which begins with the same mark, has a zero there.
  if (begin.starts_with("\xff\xfe") && (begin[2] != 0 || begin[3] != 0))
    return Encoding::utf16_little;
  if (begin.starts_with("\xfe\xff")) return Encoding::utf16_big;
  if (is_letter(begin[0]) && begin[1] == 0 && is_letter(begin[2]) && begin[3] == 0)
    return Encoding::utf16_little;
  if (begin[0] == 0 && is_letter(begin[1]) && begin[2] == 0 && is_letter(begin[3]))
    return Encoding::utf16_big;
  return Encoding::none;
}

/// Text as UTF-8, whatever encoding its first bytes tell. All else passes as it is.
class EncodedStage final : public ByteStage {
 public:
  EncodedStage(ByteStage& from, std::unique_ptr<ByteStage> owned)
      : owned_(std::move(owned)), from_(from) {}

  bool truncated() const noexcept override { return from_.truncated(); }

  Result<std::size_t> fill(char* out, std::size_t size) override {
    if (!looked_) {
      looked_ = true;
      auto got = from_.fill(begin_, sizeof begin_);
      if (!got) return got;
      begin_size_ = *got;
      encoding_ = encoding_of({begin_, begin_size_});
      if (encoding_ == Encoding::utf8_mark) begin_given_ = 3;
      const bool has_mark = begin_[0] == '\xff' || begin_[0] == '\xfe';
      if (is_utf16() && has_mark) begin_given_ = 2;
    }
    return is_utf16() ? decode(out, size) : pass(out, size);
  }

 private:
  bool is_utf16() const noexcept {
    return encoding_ == Encoding::utf16_little || encoding_ == Encoding::utf16_big;
  }

  /// The bytes as they are, with those that were looked at in front.
  Result<std::size_t> pass(char* out, std::size_t size) {
    const auto again = std::min(size, begin_size_ - begin_given_);
    std::copy_n(begin_ + begin_given_, again, out);
    begin_given_ += again;
    if (again == size) return again;
    auto got = from_.fill(out + again, size - again);
    if (!got) return got;
    return again + *got;
  }

  Result<std::size_t> decode(char* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      if (letter_given_ == letter_.size()) {
        auto more = next_letter();
        if (!more) return std::move(more).error();
        if (!*more) break;
      }
      const auto count = std::min(size - done, letter_.size() - letter_given_);
      std::copy_n(letter_.data() + letter_given_, count, out + done);
      letter_given_ += count;
      done += count;
    }
    return done;
  }

  /// Half of a pair, or a letter. Nothing at the end; half a unit there is dropped.
  Result<std::optional<char32_t>> next_unit() {
    if (input_at_ + 1 >= input_size_) {
      input_.resize(kInputBytes);
      auto got = pass(input_.data(), input_.size());
      if (!got) return std::move(got).error();
      input_size_ = *got;
      input_at_ = 0;
      if (input_size_ < 2) return std::optional<char32_t>();
    }
    const auto first = static_cast<unsigned char>(input_[input_at_]);
    const auto second = static_cast<unsigned char>(input_[input_at_ + 1]);
    input_at_ += 2;
    return std::optional<char32_t>(encoding_ == Encoding::utf16_little ? first | second << 8
                                                                       : first << 8 | second);
  }

  Result<bool> next_letter() {
    constexpr char32_t kNoLetter = 0xfffd;  // U+FFFD, for half of a surrogate pair
    auto unit = std::exchange(held_, std::nullopt);
    if (!unit) {
      auto next = next_unit();
      if (!next) return std::move(next).error();
      unit = *next;
    }
    letter_.clear();
    letter_given_ = 0;
    if (!unit) return false;
    auto letter = *unit;
    if (letter >= 0xd800 && letter < 0xdc00) {
      auto low = next_unit();
      if (!low) return std::move(low).error();
      if (*low && **low >= 0xdc00 && **low < 0xe000) {
        letter = 0x10000 + ((letter - 0xd800) << 10) + (**low - 0xdc00);
      } else {
        letter = kNoLetter;
        held_ = *low;
      }
    } else if (letter >= 0xdc00 && letter < 0xe000) {
      letter = kNoLetter;
    }
    text::append_utf8(letter_, letter);
    return true;
  }

  std::unique_ptr<ByteStage> owned_;
  ByteStage& from_;
  char begin_[4] = {};
  std::size_t begin_size_ = 0, begin_given_ = 0;
  bool looked_ = false;
  Encoding encoding_ = Encoding::none;
  std::vector<char> input_;
  std::size_t input_at_ = 0, input_size_ = 0;
  std::string letter_;
  std::size_t letter_given_ = 0;
  std::optional<char32_t> held_;
};

}  // namespace

Packing packing_of(std::string_view magic) noexcept {
  if (magic.starts_with(kGzipMagic)) return Packing::gzip;
  if (magic.starts_with(kZstdMagic)) return Packing::zstd;
  if (encoding_of(magic) != Encoding::none) return Packing::encoded;
  return Packing::none;
}

std::unique_ptr<ByteStage> unpack(RawStage& packed, Packing packing, const std::string& name) {
  std::unique_ptr<ByteStage> plain;
  if (packing == Packing::gzip) plain = std::make_unique<GzipStage>(packed, name);
  if (packing == Packing::zstd) plain = std::make_unique<ZstdStage>(packed, name);
  auto& from = plain != nullptr ? *plain : static_cast<ByteStage&>(packed);
  return std::make_unique<EncodedStage>(from, std::move(plain));
}

}  // namespace emm::format
