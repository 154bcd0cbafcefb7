#include "exchange/importers/import_run.hpp"

#include <limits>
#include <utility>

#include "base/text.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

Header recording_header(std::string_view framework, std::vector<std::string> required,
                        Level level) {
  Header header;
  header.requires_ = std::move(required);
  header.level = level;
  header.complete = header.has_complete = true;
  header.framework = framework;
  return header;
}

Result<bool> ImportRun::next(std::string_view& line) {
  for (;;) {
    auto more = lines_.next(line);
    if (more && !*more && line_number() == 0) {
      return fail(Errc::parse_error, "{}: the file is empty: expected a recording", source_name());
    }
    if (!more || !*more) return more;
    if (lines_.line_number() == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    if (!lines_.unterminated() && !line.empty() && static_cast<unsigned char>(line.front()) > ' ') {
      may_go_on_ = false;
      return true;  // the case of almost every line
    }
    const auto words = text::trim(line);
    if (words.empty()) continue;
    may_go_on_ = lines_.unterminated() && !words.ends_with('}') && !words.ends_with(']');
    return true;
  }
}

Status ImportRun::refuse(const BadField& field) {
  constexpr std::size_t kLong = 60;  // bytes of a field that a message shows
  return refuse(fail(Errc::parse_error, "{}:{}:{}: {} is \"{}\": expected {}", source_name(),
                     line_number(), field.at + 1, field.what, text::printable(field.value, kLong),
                     field.expected));
}

Status ImportRun::refuse(Error error) {
  if (!lines_.unterminated()) return error;
  if (!options_.partial) {
    if (line_number() == 1)
      return error;  // a file of one line is of another format rather than cut
    return fail(Errc::parse_error, "{}:{}: the file ends {}: expected {}", source_name(),
                line_number(), "inside a line", "a whole row");
  }
  ++counts_.rows;
  ++counts_.truncated;
  counts_.notes.push_back(text::format("the file ends inside line {}", line_number()));
  return {};
}

Status ImportRun::emit(Operation& operation) {
  // Later lines than an Operation can name have this one.
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint32_t>::max();
  const auto line = line_number() < kLast ? line_number() : kLast;
  if (operation.line == 0) operation.line = static_cast<std::uint32_t>(line);
  ++emitted_;
  const auto outcome = operation.has(Member::result) ? operation.result.outcome : Outcome::none;
  const bool worked = outcome == Outcome::none || outcome == Outcome::ok;
  // A trace refuses this itself; not every reader of a recording makes one.
  if (gives_memory_an_id(operation.op) && worked && operation.has(Member::size) &&
      __builtin_add_overflow(asked_, operation.size, &asked_)) {
    return fail(Errc::parse_error,
                "{}:{}: 2^64 bytes or more were asked for up to here: expected sizes that a device "
                "could have",
                source_name(), operation.line);
  }
  return sink_.on_operation(operation);
}

void ImportRun::note(std::uint64_t count, std::string_view words) {
  if (count != 0) counts_.notes.push_back(text::format("{} {}", count, words));
}

void ImportRun::note_columns(const std::vector<std::string>& names) {
  constexpr std::size_t kLong = 200;  // bytes of names that a note shows
  note(names.size(),
       text::format("columns are not read: {}", text::printable(text::join(names), kLong)));
}

Result<ImportCounts> ImportRun::finish(std::uint64_t live, const ByteSum& live_bytes,
                                       std::uint64_t lost) {
  constexpr std::string_view kCut = "before the end of its packed data";
  const auto cut = lines_.source().truncated();
  if (cut && !options_.partial) {
    return fail(Errc::parse_error, "{}:{}: the file ends {}: expected {}", source_name(),
                line_number(), kCut, "a whole file");
  }
  if (!cut && counts_.truncated == 0 && may_go_on_) {
    counts_.notes.emplace_back(
        "the last line has no line end: if it was cut there, its row is incomplete");
  }
  if (cut && counts_.truncated == 0)
    counts_.notes.push_back(text::format("the file ends {}", kCut));
  if (!cut && counts_.truncated == 0) {
    Operation end{
        .op = Op::end,
        .members = Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
    end.events = emitted_;
    end.lost = lost;
    end.live = live;
    end.live_bytes = live_bytes.value();
    if (auto given = emit(end); !given) return std::move(given).error();
  }
  if (auto finished = sink_.finish(); !finished) return std::move(finished).error();
  const auto& c = counts_;
  EMM_ASSERT(c.rows == c.used + c.unmatched + c.duplicate + c.other + c.truncated);
  return std::move(counts_);
}

}  // namespace emm::trace
