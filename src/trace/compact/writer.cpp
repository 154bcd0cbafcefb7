#include "trace/writer.hpp"

#include <utility>

#include "format/hash64.hpp"
#include "trace/compact/block_encoder.hpp"
#include "trace/compact/layout.hpp"

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
    if (auto done = out_.write(head); !done) return done;
    return write_chunk({.tag = kHeaderTag}, header_text(header));
  }
  Status on_operation(const Operation& operation) override {
    block_.add(operation);
    return block_.is_full() ? write_block() : Status();
  }
  Status finish() override {
    if (block_.operations() != 0) {
      if (auto done = write_block(); !done) return done;
    }
    const auto index_at = offset_;
    if (auto done = write_chunk({.tag = kIndexTag, .first = operations_}, index_); !done)
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
    return write_chunk({.tag = kBlockTag, .first = row.first, .operations = row.operations},
                       block_.pack());
  }

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
  std::uint64_t offset_ = 0, operations_ = 0;
  std::string index_;
};

}  // namespace

std::unique_ptr<OperationSink> make_compact_writer(format::ByteSink& out) {
  return std::make_unique<CompactWriter>(out);
}

}  // namespace emm::trace
