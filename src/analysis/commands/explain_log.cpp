#include "commands/explain_log.hpp"

#include <algorithm>

#include "base/counted.hpp"
#include "base/text_format.hpp"
#include "cli/file_kind.hpp"
#include "exchange/importer.hpp"
#include "message/answer.hpp"

namespace emm::cli {

bool is_log(format::ByteSource& source, std::string_view format) {
  if (!format.empty()) return false;
  const auto importer = trace::detect(source);
  return !importer || (*importer)->is_also_log;
}

Result<ExitCode> explain_log(Console& console, format::ByteSource& source,
                             const LogArgument& argument) {
  constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what file_kind() is shown
  const auto prefix = source.peek(kPrefixBytes);
  if (!prefix) return prefix.error();
  const auto kind = file_kind(*prefix, argument.path);
  if (!kind.may_have_messages) return say(console, kind);
  auto messages = message::find_messages(
      source, [&] { console.progress("reading", source.consumed(), source.total()); });
  console.end_progress();
  if (!messages) return std::move(messages).error();
  if (messages->all.empty()) {
    if (!kind.is_text) return say(console, kind);
    console.say(text::format("{}: nothing to explain: no out-of-memory message in {}",
                             source.name(), text::counted(messages->lines, "line")));
    if (messages->not_failures > 0) {
      console.say(text::format(
          "a library asked {}, was refused, and went on without: no failure, as the log "
          "says",
          text::counted(messages->not_failures, "time")));
    }
    console.aside(kind.lines);
    return ExitCode::inconclusive;
  }
  std::size_t which = 0;
  if (argument.line) {
    const auto& all = messages->all;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& message) {
      return message.line == *argument.line;
    });
    if (found == all.end()) {
      return fail(Errc::usage, "{}: no out-of-memory message begins at line {}: the first is at {}",
                  source.name(), *argument.line, all.front().line);
    }
    which = static_cast<std::size_t>(found - all.begin());
  }
  if (!argument.json.empty()) {
    auto written = console.write(argument.json, message::to_json(*messages, which, source.name()));
    if (!written) return written.error();
  }
  if (argument.json != "-")
    console.result(argument.more
                       ? message::to_text(*messages, which, argument.path)
                       : format::to_text(message::brief(*messages, which, argument.path)));
  return ExitCode::fine;
}

}  // namespace emm::cli
