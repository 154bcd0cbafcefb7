#include "commands/statistics_answer.hpp"

#include <memory>

#include "format/printed_lines.hpp"
#include "inspect/statistics.hpp"
#include "message/message.hpp"

namespace emm::cli {
namespace {

/// The reader of such a file; null for a trace, a pipe and any other file.
Result<const inspect::StatisticsReader*> reader_of(const TraceArgument& argument,
                                                   std::unique_ptr<format::ByteSource>& source) {
  const inspect::StatisticsReader* none = nullptr;
  if (!argument.format.empty() || !has_name(argument.path)) return none;
  auto opened = format::ByteSource::open(argument.path, &interrupted());
  if (!opened) return none;  // the command words what is wrong
  source = *std::move(opened);
  if (trace::detect(*source)) return none;
  source = format::printed_lines(std::move(source));
  return inspect::detect_statistics(*source);
}

}  // namespace

Result<std::optional<ExitCode>> answer_statistics(Console& console, const TraceArgument& argument,
                                                  const std::string& json, std::uint64_t top,
                                                  bool more) {
  std::unique_ptr<format::ByteSource> source;
  const auto reader = reader_of(argument, source);
  if (!reader || *reader == nullptr) return std::optional<ExitCode>();
  const auto statistics = (*reader)->read(*source);
  if (!statistics) return statistics.error();
  if (!json.empty()) {
    const auto text = inspect::to_json(*statistics, **reader, argument.path);
    if (auto written = console.write(json, text); !written) return written.error();
  }
  if (json != "-")
    console.result(more
                       ? inspect::to_text(*statistics, argument.path, static_cast<std::size_t>(top))
                       : format::to_text(inspect::brief(*statistics, argument.path)));
  return std::optional(ExitCode::fine);
}

Result<std::optional<ExitCode>> answer_statistics(Console& console, const TraceArgument& before,
                                                  const TraceArgument& after,
                                                  const std::string& json, std::uint64_t top) {
  std::unique_ptr<format::ByteSource> source, other;
  const auto reader = reader_of(before, source);
  const auto second = reader_of(after, other);
  if (!reader || !second || *reader == nullptr || *reader != *second)
    return std::optional<ExitCode>();
  const auto first = (*reader)->read(*source);
  if (!first) return first.error();
  const auto last = (*second)->read(*other);
  if (!last) return last.error();
  const auto growing = inspect::growth_of(*first, *last);
  if (!json.empty()) {
    const auto text = inspect::to_json(growing, **reader, before.path, after.path);
    if (auto written = console.write(json, text); !written) return written.error();
  }
  if (json != "-") {
    console.result(
        inspect::to_text(growing, before.path, after.path, static_cast<std::size_t>(top)));
  }
  return std::optional(ExitCode::fine);
}

Result<bool> tells_of_failure(const TraceArgument& argument) {
  std::unique_ptr<format::ByteSource> source;
  const auto reader = reader_of(argument, source);
  if (!reader || *reader == nullptr || !(*reader)->is_amid_text) return false;
  const auto found = message::find_messages(*source);
  if (!found) return found.error();
  return !found->all.empty();
}

}  // namespace emm::cli
