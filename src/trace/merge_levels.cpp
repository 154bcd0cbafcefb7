#include "trace/merge_levels.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

/// Writes the operations of one level as lines, and keeps the place of each.
class LevelLines final : public OperationSink {
 public:
  LevelLines()
      : sink_(format::ByteSink::to_string(text_)), writer_(make_writer(*sink_, Form::lines)) {}

  Status on_header(const Header& header) override {
    header_ = header;
    return writer_->on_header(header);
  }
  Status on_operation(const Operation& given) override {
    if (given.op == Op::end) return {};
    auto operation = given;
    if (shift_ns_ != 0 && operation.has(Member::time_ns)) operation.time_ns += shift_ns_;
    // An operation without a place follows the one before it.
    if (operation.has(Member::seq)) last_ = operation.seq;
    constexpr std::string_view kNumber = "\"x-request\":";
    if (operation.has(Member::extension) && operation.extension.starts_with(kNumber)) {
      std::uint64_t number = 0;
      const auto rest = operation.extension.substr(kNumber.size());
      std::from_chars(rest.data(), rest.data() + rest.size(), number);
      requests_[number] = last_;
      operation.members.remove(Member::extension);
    }
    places_.push_back(last_);
    return writer_->on_operation(operation);
  }
  Status finish() override { return {}; }
  Status close() { return sink_->close(); }
  /// After close(): the line of the header, then one for each operation.
  std::string_view text() const noexcept { return text_; }

  void shift(std::uint64_t ns) noexcept { shift_ns_ = ns; }
  const Header& header() const noexcept { return header_; }
  const std::vector<std::uint64_t>& places() const noexcept { return places_; }
  const std::unordered_map<std::uint64_t, std::uint64_t>& requests() const noexcept {
    return requests_;
  }

 private:
  std::string text_;
  std::unique_ptr<format::ByteSink> sink_;
  std::unique_ptr<OperationSink> writer_;
  Header header_;
  std::uint64_t shift_ns_ = 0, last_ = 0;
  std::vector<std::uint64_t> places_;
  std::unordered_map<std::uint64_t, std::uint64_t> requests_;
};

/// The lines of a level behind its header, one after the other.
class Lines {
 public:
  explicit Lines(const LevelLines& level) : rest_(level.text()), places_(&level.places()) {
    (void)take();
  }
  bool has_more() const noexcept { return at_ < places_->size(); }
  std::uint64_t place() const noexcept { return (*places_)[at_]; }
  std::string_view next() noexcept {
    ++at_;
    return take();
  }

 private:
  std::string_view take() noexcept {
    const auto end = std::min(rest_.find('\n'), rest_.size() - 1) + 1;
    const auto line = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return line;
  }
  std::string_view rest_;
  const std::vector<std::uint64_t>* places_;
  std::size_t at_ = 0;
};

/// Both levels as one file.
class Merged final : public format::ByteSource {
 public:
  Merged(std::string header, const LevelLines& above, const LevelLines& beneath)
      : header_(std::move(header)), above_(above), beneath_(beneath) {}

  const std::string& name() const noexcept override { return name_; }
  Result<std::string_view> peek(std::size_t size) override {
    return std::string_view(header_).substr(0, size);
  }
  Result<std::string_view> next() override {
    constexpr std::size_t kChunk = std::size_t{1} << 16, kReadable = 64;
    buffer_.clear();
    if (!begun_) buffer_ = header_;
    begun_ = true;
    while (buffer_.size() < kChunk && (above_.has_more() || beneath_.has_more())) {
      const bool from_above =
          !beneath_.has_more() || (above_.has_more() && above_.place() < beneath_.place());
      buffer_ += (from_above ? above_ : beneath_).next();
    }
    const auto size = buffer_.size();
    buffer_.append(kReadable, '\0');
    return std::string_view(buffer_).substr(0, size);
  }
  std::uint64_t consumed() const noexcept override { return 0; }
  std::uint64_t total() const noexcept override { return 0; }
  bool truncated() const noexcept override { return false; }

 private:
  std::string name_ = "both levels", header_, buffer_;
  Lines above_, beneath_;
  bool begun_ = false;
};

/// Reads a header, and nothing else.
class HeaderOnly final : public OperationSink {
 public:
  Status on_header(const Header& header) override {
    found = header;
    return {};
  }
  Status on_operation(const Operation&) override { return {}; }
  Status finish() override { return {}; }
  Header found;
};

Header header_of(const Header& requests, const Header& calls) {
  auto header = requests;
  header.complete = requests.complete && calls.complete;
  header.tool = "emmctl record";
  header.command = calls.command;
  header.driver_version = calls.driver_version;
  header.devices = calls.devices;
  header.default_thread = calls.default_thread;
  header.clock_start_ns = std::min(requests.clock_start_ns, calls.clock_start_ns);
  header.clock_start_realtime_ns =
      std::min(requests.clock_start_realtime_ns, calls.clock_start_realtime_ns);
  for (const auto& name : calls.requires_) {
    if (std::find(header.requires_.begin(), header.requires_.end(), name) == header.requires_.end())
      header.requires_.push_back(name);
  }
  return header;
}

}  // namespace

Result<ImportCounts> merge_levels(const std::string& requests, const std::string& calls,
                                  OperationSink& sink) {
  // The earlier of both begins at 0.
  const auto header_in = [](const std::string& path) -> Result<Header> {
    auto source = format::ByteSource::open(path);
    if (!source) return std::move(source).error();
    auto importer = detect(**source);
    if (!importer) return std::move(importer).error();
    HeaderOnly only;
    if (auto done = (*importer)->read(**source, only, {.partial = true}); !done)
      return std::move(done).error();
    return only.found;
  };
  auto first = header_in(requests);
  if (!first) return std::move(first).error();
  auto second = header_in(calls);
  if (!second) return std::move(second).error();
  const auto header = header_of(*first, *second);

  LevelLines above, beneath;
  above.shift(first->clock_start_ns - header.clock_start_ns);
  beneath.shift(second->clock_start_ns - header.clock_start_ns);
  auto asked = format::ByteSource::open(requests);
  if (!asked) return std::move(asked).error();
  if (auto done = read(**asked, above, {.partial = true}); !done) return std::move(done).error();
  auto made = format::ByteSource::open(calls);
  if (!made) return std::move(made).error();
  auto importer = detect(**made);
  if (!importer) return std::move(importer).error();
  auto counts = (*importer)->read(**made, beneath, {.requests = &above.requests()});
  if (!counts) return counts;
  for (auto* const level : {&above, &beneath}) {
    if (auto closed = level->close(); !closed) return closed.error();
  }

  std::string line;
  {
    const auto out = format::ByteSink::to_string(line);
    if (auto begun = make_writer(*out, Form::lines)->on_header(header); !begun)
      return begun.error();
    if (auto closed = out->close(); !closed) return closed.error();
  }
  Merged merged(std::move(line), above, beneath);
  if (auto done = read(merged, sink); !done) return std::move(done).error();
  return counts;
}

}  // namespace emm::trace
