#include "trace/compact/reader.hpp"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "format/hash64.hpp"
#include "format/json_value.hpp"
#include "trace/compact/operation_row.hpp"
#include "trace/json/header_reader.hpp"

namespace emm::trace {
namespace {

using namespace compact;

/// A ring of blocks that are unpacked ahead. The reading thread fills an entry, any free thread
/// unpacks it, and the reading thread gives its operations on in the order of the file.
class BlockQueue {
 public:
  struct QueuedBlock {
    std::uint64_t first = 0;
    std::string payload;
    std::uint64_t hash = 0;
    BlockDecoder decoder;
    std::string_view wrong;
    bool ready = false;
  };

  explicit BlockQueue(unsigned threads) : blocks_(threads == 0 ? 1 : threads + 2) {
    try {
      for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The system has no room for another thread. The threads started so far suffice; if there are
      // none, the reading thread unpacks.
    }
  }
  ~BlockQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;

  bool is_full() const noexcept { return filled_ - given_ == blocks_.size(); }
  bool is_empty() const noexcept { return filled_ == given_; }
  /// The next entry to fill. REQUIRES: !is_full().
  QueuedBlock& room() noexcept { return blocks_[filled_ % blocks_.size()]; }
  void filled() {
    auto& block = room();
    block.ready = false;
    if (threads_.empty()) {
      unpack(block);
      ++filled_;
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      ++filled_;
    }
    changed_.notify_one();
  }
  /// Waits until the oldest block is unpacked and returns it. REQUIRES: !is_empty().
  QueuedBlock& front() {
    auto& block = blocks_[given_ % blocks_.size()];
    if (threads_.empty()) return block;
    std::unique_lock lock(mutex_);
    unpacked_.wait(lock, [&] { return block.ready; });
    return block;
  }
  void pop() noexcept { ++given_; }

 private:
  static void unpack(QueuedBlock& block) {
    block.wrong = format::hash64(block.payload) == block.hash
                      ? block.decoder.load(block.payload)
                      : std::string_view("the checksum of its bytes does not match");
    block.ready = true;
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return taken_ < filled_ || stopping_; });
      if (stopping_) return;
      auto& block = blocks_[taken_++ % blocks_.size()];
      lock.unlock();
      const auto wrong = format::hash64(block.payload) == block.hash
                             ? block.decoder.load(block.payload)
                             : std::string_view("the checksum of its bytes does not match");
      lock.lock();
      block.wrong = wrong;
      block.ready = true;
      unpacked_.notify_one();
    }
  }

  std::vector<QueuedBlock> blocks_;
  std::mutex mutex_;
  std::condition_variable changed_, unpacked_;
  std::size_t filled_ = 0, taken_ = 0, given_ = 0;  // only the reading thread uses given_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

/// Starting threads costs more than it saves for smaller files.
constexpr std::uint64_t kThreadsFrom = 256 << 10;

unsigned threads_for(const format::ByteSource& source) noexcept {
  if (source.total() != 0 && source.total() < kThreadsFrom) return 0;
  constexpr unsigned kMost = 4;  // threads that unpack, beside the one that reads
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMost + 1) - 1;
}

class CompactReading {
 public:
  CompactReading(format::ByteSource& source, OperationSink& sink, const ReadOptions& options,
                 ReadSummary& summary)
      : source_(source),
        name_(source.name()),
        sink_(sink),
        options_(options),
        summary_(summary),
        queue_(threads_for(source)) {}

  Status run() {
    if (auto read = read_head(); !read) return read;
    for (;;) {
      ChunkHead head;
      const auto got = take_chunk_head(head);
      if (!got) return got.error();
      if (*got == End::whole) {
        if (head.tag == kIndexTag) return end(head);
        if (auto read = read_block(head); !read) return read;
        if (summary_.torn) return {};
        continue;
      }
      if (auto given = give_all(); !given) return given;
      if (*got == End::damaged) {
        return damaged("the checksum of a chunk's head does not match");
      }
      return file_ends(*got == End::none ? "before its index" : "inside the head of a chunk");
    }
  }

 private:
  enum class End { whole, torn, none, damaged };

  /// Takes `size` bytes, or fewer if the file ends.
  Status take(std::size_t size, std::string& out) {
    out.clear();
    while (out.size() < size) {
      if (rest_.empty()) {
        auto more = source_.next();
        if (!more) return std::move(more).error();
        if (more->empty()) return {};
        rest_ = *more;
      }
      const auto part = rest_.substr(0, size - out.size());
      out.append(part);
      offset_ += part.size();
      rest_.remove_prefix(part.size());
    }
    return {};
  }

  Result<End> take_chunk_head(ChunkHead& head) {
    if (auto taken = take(sizeof head, bytes_); !taken) return taken.error();
    if (bytes_.empty()) return End::none;
    if (bytes_.size() < sizeof head) return End::torn;
    std::memcpy(&head, bytes_.data(), sizeof head);
    const auto check =
        static_cast<std::uint32_t>(format::hash64(std::string_view(bytes_).substr(kChecked)));
    const bool good = check == head.check && head.bytes <= kChunkBytesMax;
    return good ? End::whole : End::damaged;
  }

  Status read_head() {
    if (auto taken = take(kFileHeadBytes, bytes_); !taken) return taken;
    if (bytes_.size() < kFileHeadBytes) return torn_header();
    std::uint32_t check = 0;
    constexpr auto kCheckAt = kFileHeadBytes - sizeof check;
    std::memcpy(&check, bytes_.data() + kCheckAt, sizeof check);
    if (static_cast<std::uint32_t>(format::hash64(std::string_view(bytes_).substr(0, kCheckAt))) !=
        check) {
      return fail(Errc::parse_error,
                  "{}:1: a damaged header: the checksum of its version does not match", name_);
    }
    std::uint16_t major = 0;
    std::memcpy(&major, bytes_.data() + kMagic.size(), sizeof major);
    if (major != kMajor) {
      return fail(Errc::not_supported, "{}: a compact trace of version {}: expected version {}",
                  name_, major, kMajor);
    }
    ChunkHead head;
    const auto got = take_chunk_head(head);
    if (!got) return got.error();
    if (*got == End::damaged || (*got == End::whole && head.tag != kHeaderTag)) {
      return fail(Errc::parse_error, "{}:1: a damaged header: expected the header of a trace",
                  name_);
    }
    if (*got != End::whole) return torn_header();
    if (auto taken = take(static_cast<std::size_t>(head.bytes), bytes_); !taken) return taken;
    if (bytes_.size() < head.bytes) return torn_header();
    if (format::hash64(bytes_) != head.hash) {
      return fail(Errc::parse_error,
                  "{}:1: a damaged header: the checksum of its bytes does not match", name_);
    }
    auto node = format::parse_json(bytes_, name_);
    if (!node) return std::move(node).error();
    auto header = read_header(*node, name_);
    if (!header) return std::move(header).error();
    return sink_.on_header(*header);
  }

  Error torn_header() const {
    return fail(Errc::parse_error, "{}:1: the file ends inside its header", name_);
  }

  /// The line of the next operation in JSON Lines.
  std::uint64_t line() const noexcept { return operations_ + 2; }

  Status read_block(const ChunkHead& head) {
    while (queue_.is_full()) {
      if (auto given = give_front(); !given || summary_.torn) return given;
    }
    auto& block = queue_.room();
    if (auto taken = take(static_cast<std::size_t>(head.bytes), block.payload); !taken)
      return taken;
    if (block.payload.size() < head.bytes) {
      if (auto given = give_all(); !given || summary_.torn) return given;
      return file_ends("inside a block of operations");
    }
    if (head.tag != kBlockTag) return {};  // a chunk of a later version, which may be skipped
    block.first = head.first;
    block.hash = head.hash;
    queue_.filled();
    return {};
  }

  Status give_all() {
    while (!queue_.is_empty() && !summary_.torn) {
      if (auto given = give_front(); !given) return given;
    }
    return {};
  }

  Status give_front() {
    auto& block = queue_.front();
    auto wrong = block.wrong;
    if (wrong.empty() && block.first != operations_) wrong = "operations before it are missing";
    if (wrong.empty()) {
      auto& decoder = block.decoder;
      OperationRow row(decoder, operations_, summary_.extensions);
      while (row.left() != 0) {
        if (auto given = sink_.on_operations(row, row.left()); !given) return given;
      }
      summary_.operations = operations_;
      wrong = decoder.damaged();
    }
    queue_.pop();
    if (wrong.empty()) return {};
    return damaged(wrong);
  }

  Status end(const ChunkHead& head) {
    const auto index_at = offset_ - sizeof head;
    if (auto given = give_all(); !given || summary_.torn) return given;
    if (head.first != operations_) return damaged("operations after it are missing");
    if (auto taken = take(static_cast<std::size_t>(head.bytes), bytes_); !taken) return taken;
    if (bytes_.size() < head.bytes) return file_ends("inside its index");
    if (format::hash64(bytes_) != head.hash)
      return damaged("the checksum of the index does not match");
    if (auto taken = take(kTailBytes, bytes_); !taken) return taken;
    if (bytes_.size() < kTailBytes) return file_ends("inside its last bytes");
    std::uint64_t said = 0;
    std::memcpy(&said, bytes_.data(), sizeof said);
    const bool marked = std::string_view(bytes_).ends_with(kEndMagic) && said == index_at;
    if (auto taken = take(1, bytes_); !taken) return taken;
    if (!marked || !bytes_.empty()) return damaged("expected the end of the file");
    if (source_.truncated()) return file_ends("before the end of its packed data");
    return {};
  }

  Status damaged(std::string_view what) {
    return end_torn(summary_, options_,
                    fail(Errc::parse_error, "{}:{}: a damaged block: {}", name_, line(), what));
  }
  Status file_ends(std::string_view where) {
    if (summary_.torn) return {};
    return end_torn(summary_, options_,
                    fail(Errc::parse_error, "{}:{}: the file ends {}", name_, line(), where));
  }

  format::ByteSource& source_;
  const std::string& name_;
  OperationSink& sink_;
  const ReadOptions& options_;
  ReadSummary& summary_;
  std::string_view rest_;
  std::string bytes_;
  std::uint64_t operations_ = 0;
  std::uint64_t offset_ = 0;  // offset in the file
  BlockQueue queue_;
};

}  // namespace

Status OperationSink::on_operations(OperationRow& row, std::size_t most) {
  for (; most != 0; --most) {
    const auto* const operation = row.next();
    if (operation == nullptr) return {};
    if (auto taken = on_operation(*operation); !taken) return taken;
  }
  return {};
}

bool is_compact(std::string_view prefix) noexcept { return prefix.starts_with(kMagic); }

Status read_compact(format::ByteSource& source, OperationSink& sink, const ReadOptions& options,
                    ReadSummary& summary) {
  return CompactReading(source, sink, options, summary).run();
}

}  // namespace emm::trace
