#include "format/byte_sink.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/run_files.hpp"

namespace emm::format {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} << 10;  // bytes that are written at once

/// A file descriptor and its first error.
class OutputFile {
 public:
  OutputFile(int fd, bool owned, std::string name, run_files::Output output = {})
      : output_(std::move(output)), name_(std::move(name)), fd_(fd), owned_(owned) {}
  ~OutputFile() { static_cast<void>(close().has_value()); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& name() const noexcept { return name_; }

  Status write(const char* bytes, std::size_t size) {
    while (size > 0 && !failed_) {
      const auto done = ::write(fd_, bytes, size);
      if (done >= 0) {
        bytes += done;
        size -= static_cast<std::size_t>(done);
      } else if (errno != EINTR) {
        refuse();
      }
    }
    return status();
  }

  Status close() {
    if (owned_ && fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && !failed_) refuse();
    return status();
  }

  Status status() const {
    if (failed_) return *failed_;
    return {};
  }

 private:
  void refuse() {
    failed_ =
        fail(Errc::io_error, "cannot write {}: {}", name_, std::generic_category().message(errno));
    run_files::note_write_error(*failed_);
  }

  run_files::Output output_;
  std::string name_;
  int fd_;
  bool owned_;
  std::optional<Error> failed_;
};

class PlainSink final : public ByteSink {
 public:
  explicit PlainSink(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {
    buffer_.reserve(kBufferBytes);
  }
  ~PlainSink() override { static_cast<void>(flush().has_value()); }

  const std::string& name() const noexcept override { return file_->name(); }
  Status write(std::string_view record) override {
    if (buffer_.size() + record.size() > kBufferBytes) {
      if (auto done = flush(); !done) return done;
      if (record.size() >= kBufferBytes) return file_->write(record.data(), record.size());
    }
    buffer_.append(record);
    return file_->status();
  }
  Status flush() override {
    auto done = file_->write(buffer_.data(), buffer_.size());
    buffer_.clear();
    return done;
  }
  Status close() override {
    if (auto done = flush(); !done) return done;
    return file_->close();
  }

 private:
  std::unique_ptr<OutputFile> file_;
  std::string buffer_;
};

class GzipSink final : public ByteSink {
 public:
  explicit GzipSink(std::unique_ptr<OutputFile> file)
      : file_(std::move(file)), output_(kBufferBytes) {
    constexpr int kGzip = 16;   // zlib: added to the window's bits, it asks for a gzip head
    constexpr int kMemory = 8;  // zlib's default
    const int begun = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip,
                                   kMemory, Z_DEFAULT_STRATEGY);
    if (begun == Z_MEM_ERROR) out_of_host_memory();
    EMM_ASSERT(begun == Z_OK);
  }
  ~GzipSink() override {
    static_cast<void>(close().has_value());
    deflateEnd(&stream_);
  }
  GzipSink(const GzipSink&) = delete;
  GzipSink& operator=(const GzipSink&) = delete;

  const std::string& name() const noexcept override { return file_->name(); }
  Status write(std::string_view record) override { return pack(record, Z_NO_FLUSH); }
  Status flush() override { return pack({}, Z_SYNC_FLUSH); }
  Status close() override {
    if (std::exchange(closed_, true)) return file_->status();
    if (auto done = pack({}, Z_FINISH); !done) return done;
    return file_->close();
  }

 private:
  Status pack(std::string_view bytes, int mode) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = output_.data();
      stream_.avail_out = static_cast<uInt>(output_.size());
      deflate(&stream_, mode);
      const auto size = output_.size() - stream_.avail_out;
      if (auto done = file_->write(reinterpret_cast<const char*>(output_.data()), size); !done)
        return done;
    } while (stream_.avail_out == 0);
    return {};
  }

  std::unique_ptr<OutputFile> file_;
  std::vector<Bytef> output_;
  z_stream stream_{};
  bool closed_ = false;
};

class ZstdSink final : public ByteSink {
 public:
  explicit ZstdSink(std::unique_ptr<OutputFile> file)
      : file_(std::move(file)),
        output_(ZSTD_CStreamOutSize()),
        stream_(ZSTD_createCStream(), &ZSTD_freeCStream) {
    if (stream_ == nullptr) out_of_host_memory();
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_checksumFlag, 1);
  }
  ~ZstdSink() override { static_cast<void>(close().has_value()); }

  const std::string& name() const noexcept override { return file_->name(); }
  Status write(std::string_view record) override { return pack(record, ZSTD_e_continue); }
  Status flush() override { return pack({}, ZSTD_e_flush); }
  Status close() override {
    if (std::exchange(closed_, true)) return file_->status();
    if (auto done = pack({}, ZSTD_e_end); !done) return done;
    return file_->close();
  }

 private:
  Status pack(std::string_view bytes, ZSTD_EndDirective mode) {
    ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer output{output_.data(), output_.size(), 0};
      const auto remaining = ZSTD_compressStream2(stream_.get(), &output, &input, mode);
      if (ZSTD_getErrorCode(remaining) == ZSTD_error_memory_allocation) out_of_host_memory();
      EMM_ASSERT(ZSTD_isError(remaining) == 0);
      if (auto done = file_->write(output_.data(), output.pos); !done) return done;
      if (mode == ZSTD_e_continue ? input.pos == input.size : remaining == 0) return {};
    }
  }

  std::unique_ptr<OutputFile> file_;
  std::vector<char> output_;
  std::unique_ptr<ZSTD_CStream, decltype(&ZSTD_freeCStream)> stream_;
  bool closed_ = false;
};

class StringSink final : public ByteSink {
 public:
  explicit StringSink(std::string& out) : out_(out) {}

  const std::string& name() const noexcept override { return name_; }
  Status write(std::string_view record) override {
    out_.append(record);
    return {};
  }
  Status flush() override { return {}; }
  Status close() override { return {}; }

 private:
  std::string& out_;
  std::string name_ = "<memory>";
};

Result<std::unique_ptr<ByteSink>> open_file(const std::string& file, const std::string& name,
                                            run_files::Output output) {
  constexpr mode_t kMode = 0666;
  const auto named = run_files::descriptor_named(file);
  const int fd = named ? fcntl(*named, F_DUPFD_CLOEXEC, 0)
                       : ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (fd < 0) {
    return fail(Errc::usage, "cannot write {}: {}", name, std::generic_category().message(errno));
  }
  auto opened = std::make_unique<OutputFile>(fd, true, name, std::move(output));
  if (name.ends_with(".gz")) return std::make_unique<GzipSink>(std::move(opened));
  if (name.ends_with(".zst")) return std::make_unique<ZstdSink>(std::move(opened));
  return std::make_unique<PlainSink>(std::move(opened));
}

}  // namespace

Result<std::unique_ptr<ByteSink>> ByteSink::open(const std::string& path, std::string_view who) {
  auto output = run_files::writes(path, who);
  if (!output) return std::move(output).error();
  if (path == "-") {
    return std::make_unique<PlainSink>(
        std::make_unique<OutputFile>(STDOUT_FILENO, false, "<stdout>", *std::move(output)));
  }
  return open_file(path, path, *std::move(output));
}

Result<std::unique_ptr<ByteSink>> ByteSink::open_as(const std::string& file,
                                                    const std::string& name) {
  return open_file(file, name, {});
}

std::unique_ptr<ByteSink> ByteSink::to_string(std::string& out) {
  return std::make_unique<StringSink>(out);
}

}  // namespace emm::format
