#include "trace/writer.hpp"

#include <algorithm>
#include <utility>

#include "format/hash64.hpp"
#include "trace/compact/block_encoder.hpp"
#include "trace/compact/layout.hpp"
#include "trace/compact/live_operations.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using namespace compact;

class CompactWriter final : public OperationSink {
 public:
  explicit CompactWriter(format::ByteSink& out) : out_(out) {}

  Status on_header(const Header& header) override {
    std::string head(kMagic);
    append_bytes(head, kMajor);
    append_bytes(head, kMinorVersion);
    append_bytes(head, static_cast<std::uint32_t>(format::hash64(head)));
    offset_ = head.size();
    live_.begin(header);
    if (auto done = out_.write(head); !done) return done;
    return write_chunk({.tag = kHeaderTag}, header_text(header));
  }
  Status on_operation(const Operation& operation) override {
    block_.add(operation);
    live_.add(operation);
    return block_.is_full() ? write_block() : Status();
  }
  Status finish() override {
    if (block_.operations() != 0) {
      if (auto done = write_block(); !done) return done;
    }
    const auto index_at = offset_;
    const std::uint64_t tells_too_little = live_.any_completed_later() ? 1 : 0;
    if (auto done = write_chunk(
            {.tag = kIndexTag, .first = operations_, .operations = tells_too_little}, index_);
        !done)
      return done;
    std::string tail;
    append_bytes(tail, index_at);
    tail.append(kEndMagic);
    if (auto done = out_.write(tail); !done) return done;
    return out_.flush();
  }

 private:
  Status write_block() {
    const IndexRow row{.offset = offset_,
                       .first = operations_,
                       .operations = block_.operations(),
                       .first_time_ns = block_.first_time_ns(),
                       .last_time_ns = block_.last_time_ns()};
    append_bytes(index_, row);
    operations_ += row.operations;
    const ChunkHead head{.tag = kBlockTag, .first = row.first, .operations = row.operations};
    if (auto done = write_chunk(head, block_.pack()); !done) return done;
    const auto due = std::max(kLiveEvery, kLiveEventsEach * live_.live());
    if (live_.events() - live_written_ < due || !live_.is_known() || live_.any_completed_later())
      return {};
    return write_live();
  }

  /// Writes the call sites that are new and then the operations that made what is live.
  Status write_live() {
    live_written_ = live_.events();
    LiveChunks sites(*this, kSitesNotLive), live(*this, 0);
    live_.each_site([&](const Operation& operation) { sites.add(operation); });
    live_.forget_sites();
    if (auto done = sites.end(false); !done) return done;
    live_.each_live([&](const Operation& operation) { live.add(operation); });
    return live.end(true);
  }

  /// Writes chunks of what is live, as many as it takes.
  class LiveChunks {
   public:
    LiveChunks(CompactWriter& writer, std::uint64_t kind) : writer_(writer), kind_(kind) {}
    void add(const Operation& operation) {
      block_.add(operation);
      if (block_.is_full() && done_) write();
    }
    Status end(bool also_empty) {
      if (done_ && (block_.operations() != 0 || (also_empty && !any_))) write();
      return done_;
    }

   private:
    void write() {
      const IndexRow row{.offset = writer_.offset_,
                         .first = writer_.operations_,
                         .first_time_ns = writer_.live_.events(),
                         .last_time_ns = kind_};
      append_bytes(writer_.index_, row);
      done_ = writer_.write_chunk({.tag = kLiveTag, .first = row.first}, block_.pack());
      any_ = true;
    }
    CompactWriter& writer_;
    const std::uint64_t kind_;
    BlockEncoder block_;
    Status done_;
    bool any_ = false;
  };

  Status write_chunk(ChunkHead head, std::string_view payload) {
    head.bytes = payload.size();
    head.hash = format::hash64(payload);
    std::string bytes;
    append_bytes(bytes, head);
    head.check =
        static_cast<std::uint32_t>(format::hash64(std::string_view(bytes).substr(kChecked)));
    bytes.clear();
    append_bytes(bytes, head);
    offset_ += bytes.size() + payload.size();
    bytes.append(payload);
    return out_.write(bytes);
  }

  format::ByteSink& out_;
  BlockEncoder block_;
  LiveOperations live_;
  std::uint64_t offset_ = 0, operations_ = 0, live_written_ = 0;
  std::string index_;
};

}  // namespace

std::unique_ptr<OperationSink> make_compact_writer(format::ByteSink& out) {
  return std::make_unique<CompactWriter>(out);
}

}  // namespace emm::trace
