#include "format/byte_source.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/run_files.hpp"
#include "format/byte_stage.hpp"

namespace emm::format {
namespace {

// Bytes of a piece: what next() gives at most.
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
// Bytes: what an importer's sniff() is shown.
constexpr std::size_t kPeekBytes = std::size_t{64} << 10;
// Bytes behind a piece that may be read, by those that load words.
constexpr std::size_t kPadding = 64;
// For less packed input than this, starting a thread costs more than it saves.
constexpr std::uint64_t kThreadFrom = 64 << 10;

struct Chunk {
  std::unique_ptr<char[]> bytes;
  std::size_t size = 0;

  Result<std::size_t> fill(ByteStage& stage) {
    if (bytes == nullptr) {
      bytes.reset(new char[kChunkBytes + kPadding]);
      std::fill_n(bytes.get() + kChunkBytes, kPadding, '\0');
    }
    size = 0;
    auto got = stage.fill(bytes.get(), kChunkBytes);
    if (got) size = *got;
    return got;
  }
  std::string_view view() const noexcept { return {bytes.get(), size}; }
};

/// A ring of chunks that another thread fills ahead of the reader.
class ReadAhead {
 public:
  explicit ReadAhead(ByteStage& stage) : stage_(stage), thread_([this] { fill_chunks(); }) {}
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Returns the next chunk. The thread may then overwrite the previous one.
  Result<std::string_view> next() {
    std::unique_lock lock(mutex_);
    if (holding_) {
      holding_ = false;
      ++taken_;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return filled_ != taken_ || finished_; });
    if (filled_ == taken_) {
      if (failed_.has_value()) return *failed_;
      return std::string_view{};
    }
    holding_ = true;
    return ring_[taken_ % ring_.size()].view();
  }

 private:
  void fill_chunks() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return filled_ - taken_ < ring_.size() || stopping_; });
        if (stopping_) return;
      }
      auto& chunk =
          ring_[filled_ % ring_.size()];  // the reader may use it only after filled_ counts it
      auto got = chunk.fill(stage_);
      const std::lock_guard lock(mutex_);
      if (!got) failed_ = std::move(got).error();
      finished_ = failed_.has_value() || chunk.size < kChunkBytes;
      if (chunk.size > 0) ++filled_;
      changed_.notify_all();
      if (finished_) return;
    }
  }

  ByteStage& stage_;
  std::array<Chunk, 4> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t filled_ = 0;
  std::size_t taken_ = 0;
  bool holding_ = false;
  bool finished_ = false;
  bool stopping_ = false;
  std::optional<Error> failed_;
  std::thread thread_;  // the last member, since the thread uses the others
};

class StagedSource final : public ByteSource {
 public:
  StagedSource(std::unique_ptr<RawStage> raw, std::string name, const std::atomic<bool>* stop)
      : name_(std::move(name)), raw_(std::move(raw)), stop_(stop) {}

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t consumed() const noexcept override { return raw_->consumed(); }
  std::uint64_t total() const noexcept override { return raw_->total(); }
  bool truncated() const noexcept override {
    return unpacked_ != nullptr && unpacked_->truncated();
  }

  Result<std::string_view> peek(std::size_t size) override {
    EMM_ASSERT(size <= kPeekBytes && (!started_ || peeked_.has_value()));
    if (!peeked_.has_value()) {
      auto first = next();
      if (!first) return first;
      peeked_ = *first;
    }
    return peeked_->substr(0, size);
  }

  Result<std::string_view> next() override {
    if (peeked_.has_value()) return *std::exchange(peeked_, std::nullopt);
    // A small file that unpacks to much more is rarely read from, so the raw stage would notice an
    // interrupt too late.
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed))
      return interrupted_reading(name_);
    if (!started_) {
      if (auto ready = start(); !ready) return std::move(ready).error();
    }
    if (ahead_ != nullptr) return ahead_->next();
    if (ended_) return std::string_view{};
    auto& stage = unpacked_ != nullptr ? *unpacked_ : static_cast<ByteStage&>(*raw_);
    auto got = chunk_.fill(stage);
    ended_ = !got || *got < kChunkBytes;
    if (!got) return std::move(got).error();
    return chunk_.view();
  }

 private:
  Status start() {
    started_ = true;
    const auto magic = raw_->magic();
    if (!magic) {
      ended_ = true;
      return magic.error();
    }
    const auto packing = packing_of(*magic);
    if (packing == Packing::none) return {};
    unpacked_ = unpack(*raw_, packing, name_);
    if (raw_->total() != 0 && raw_->total() < kThreadFrom) return {};
    try {
      ahead_ = std::make_unique<ReadAhead>(*unpacked_);
    } catch (const std::system_error&) {
      // The system has no room for another thread, so reading unpacks.
    }
    return {};
  }

  std::string name_;
  std::unique_ptr<RawStage> raw_;
  std::unique_ptr<ByteStage> unpacked_;
  const std::atomic<bool>* stop_;
  Chunk chunk_;
  std::optional<std::string_view> peeked_;
  bool started_ = false;
  bool ended_ = false;
  std::unique_ptr<ReadAhead> ahead_;  // the last member, since its thread uses the stages
};

}  // namespace

Result<std::unique_ptr<ByteSource>> ByteSource::open(const std::string& path,
                                                     const std::atomic<bool>* stop) {
  if (auto apart = run_files::reads(path); !apart) return apart.error();
  auto raw = open_raw(path, stop);
  if (!raw) return std::move(raw).error();
  return std::make_unique<StagedSource>(*std::move(raw), path == "-" ? "<stdin>" : path, stop);
}

std::unique_ptr<ByteSource> ByteSource::memory(std::string_view bytes, std::string name,
                                               const std::atomic<bool>* stop) {
  return std::make_unique<StagedSource>(raw_memory(bytes), std::move(name), stop);
}

}  // namespace emm::format
