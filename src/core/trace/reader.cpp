#include "trace/reader.hpp"

#include <algorithm>
#include <limits>

#include "trace/compact/reader.hpp"
#include "trace/json/document_reader.hpp"
#include "trace/json/flat_line.hpp"
#include "trace/json/header_reader.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

// The longest beginning that decides which form a file has.
constexpr std::size_t kPeekBytes = std::size_t{64} << 10;

/// Parses one line into a JSON value. torn() tells whether the line ends inside a value; only the
/// caller knows whether that is the end of the file.
class LineHandler final : public format::JsonBuilder {
 public:
  using JsonBuilder::JsonBuilder;

  Status read(std::string_view line, std::uint64_t number) {
    clear();
    return format::read_json(line, *this, source(), number);
  }
  bool torn() const noexcept { return torn_; }
  Status on_torn(const std::string& name, format::JsonPosition at) override {
    torn_ = true;
    return fail(Errc::parse_error,
                "{}:{}:{}: the line ends inside a value: expected a whole JSON object on each line",
                name, at.line, at.column);
  }

 private:
  bool torn_ = false;
};

/// Is the first line a whole object without "events"? Then it is the header of JSON Lines;
/// otherwise a document begins.
class FirstLine final : public format::JsonHandler {
 public:
  static bool is_header(std::string_view line) {
    FirstLine handler;
    return format::read_json(line, handler, "").has_value() && handler.whole_ &&
           !handler.has_events_;
  }

  Status on_key(std::string_view key, format::JsonPosition) override {
    has_events_ = has_events_ || (depth_ == 1 && key == "events");
    return {};
  }
  Status on_begin_object(format::JsonPosition) override { return begin(); }
  Status on_begin_array(format::JsonPosition) override { return begin(); }
  Status on_end_object(format::JsonPosition) override { return end(); }
  Status on_end_array(format::JsonPosition) override { return end(); }

 private:
  Status begin() {
    ++depth_;
    return {};
  }
  Status end() {
    whole_ = --depth_ == 0;
    return {};
  }

  std::size_t depth_ = 0;
  bool whole_ = false;
  bool has_events_ = false;
};

/// Reads one trace once.
class Reading {
 public:
  Reading(format::ByteSource& source, OperationSink& sink, const ReadOptions& options)
      : source_(source), name_(source.name()), sink_(sink), options_(options), operations_(name_) {}

  Status run() {
    auto first = source_.peek(kPeekBytes);
    if (!first) return std::move(first).error();
    if (is_compact(*first)) {
      if (auto read = read_compact(source_, sink_, options_, summary_); !read) return read;
      return sink_.finish();
    }
    const auto begin = first->find_first_not_of(" \t\r\n");
    if (begin == first->npos)
      return fail(Errc::parse_error, "{}: the file is empty: expected an emmctl trace", name_);
    if ((*first)[begin] != '{') return not_a_trace(name_);
    const auto line_end = first->find('\n');
    const bool lines = FirstLine::is_header(first->substr(0, line_end));
    if (auto read = lines ? read_lines() : read_document(); !read) return read;
    return sink_.finish();
  }

  ReadSummary summary() && { return std::move(summary_); }

 private:
  Status read_lines() {
    format::LineReader lines(source_);
    LineHandler handler(name_);
    FlatLineReader flat;
    Operation operation;
    std::string_view line;
    auto more = lines.next(line);
    if (more) {
      if (auto parsed = handler.read(line, 1); !parsed) return parsed;
      if (auto given = give_header(handler.root()); !given) return given;
    }
    for (more = lines.next(line); more && *more; more = lines.next(line)) {
      const auto number = lines.line_number();
      if (flat.read(line, operation)) {
        operation.line = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(number, std::numeric_limits<std::uint32_t>::max()));
        if (auto given = give(operation); !given) return given;
        continue;
      }
      if (line.find_first_not_of(" \t") == line.npos) {
        auto blank = fail(Errc::parse_error,
                          "{}:{}: a blank line: expected an operation on each line", name_, number);
        if (auto passed = pass_over(number, std::move(blank)); !passed) return passed;
        continue;
      }
      if (auto parsed = handler.read(line, number); !parsed) {
        // A crash may leave any bytes at the end, so `partial` accepts any fault in an unterminated
        // line.
        const bool torn = lines.unterminated() && (handler.torn() || options_.partial);
        if (torn) return file_ends(number, "inside a line");
        if (auto passed = pass_over(number, std::move(parsed).error()); !passed) return passed;
        continue;
      }
      if (auto given = give_careful(handler.root()); !given) return given;
    }
    if (!more) return std::move(more).error();
    if (source_.truncated())
      return file_ends(lines.line_number(), "before the end of its packed data");
    return {};
  }

  Status read_document() {
    DocumentReader document(
        name_, [this](const JsonValue& node) { return give_header(node); },
        [this](const JsonValue& node) { return give_careful(node); });
    if (auto read = format::read_json(source_, document); !read) return read;
    const bool cut = source_.truncated();
    if (document.torn() && !document.has_header()) {
      // The file is too short to tell what it was.
      return fail(Errc::parse_error, "{}:{}: the file ends inside its header", name_,
                  document.torn_at().line);
    }
    if (document.torn() || cut) return file_ends(document.torn_at().line, "inside the document");
    return {};
  }

  Status give_header(const JsonValue& node) {
    auto header = read_header(node, name_);
    if (!header) return std::move(header).error();
    return sink_.on_header(*header);
  }

  Status give_careful(const JsonValue& node) {
    if (auto read = operations_.read(node, careful_); !read)
      return pass_over(node.at.line, std::move(read).error());
    return give(careful_);
  }

  /// Reports the fault to on_fault and goes on; without on_fault, returns it.
  Status pass_over(std::uint64_t line, Error error) const {
    if (options_.on_fault == nullptr) return error;
    options_.on_fault(static_cast<std::uint32_t>(line), error);
    return {};
  }

  Status give(const Operation& operation) {
    ++summary_.operations;
    if (operation.op == Op::extension) ++summary_.extensions;
    return sink_.on_operation(operation);
  }

  Status file_ends(std::uint64_t line, std::string_view where) {
    return end_torn(summary_, options_,
                    fail(Errc::parse_error, "{}:{}: the file ends {}", name_, line, where));
  }

  format::ByteSource& source_;
  const std::string& name_;
  OperationSink& sink_;
  ReadOptions options_;
  OperationReader operations_;
  Operation careful_;
  ReadSummary summary_;
};

}  // namespace

Status end_torn(ReadSummary& summary, const ReadOptions& options, Error error) {
  if (!options.partial) return error;
  summary.torn = true;
  summary.torn_where = std::move(error.message);
  return {};
}

Result<ReadSummary> read(format::ByteSource& source, OperationSink& sink,
                         const ReadOptions& options) {
  Reading reading(source, sink, options);
  if (auto done = reading.run(); !done) return done.error();
  return std::move(reading).summary();
}

}  // namespace emm::trace
