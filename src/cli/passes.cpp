#include "cli/passes.hpp"

#include <sys/stat.h>

#include <memory>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "trace/compact/reader.hpp"

namespace emm::cli {
namespace {

// File sizes of some ten million operations, for which `inspect` would need 700 MiB.
constexpr std::uint64_t kLongCompact = std::uint64_t{24} << 20;
constexpr std::uint64_t kLongPacked = std::uint64_t{64} << 20;
constexpr std::uint64_t kLongPlain = std::uint64_t{768} << 20;

/// The size of a regular file, else 0.
std::uint64_t file_bytes(const std::string& path) {
  struct stat of {};
  const bool file = stat(path.c_str(), &of) == 0 && S_ISREG(of.st_mode);
  return file ? static_cast<std::uint64_t>(of.st_size) : 0;
}

}  // namespace

bool is_for_passes(const TraceArgument& argument) {
  const auto bytes = file_bytes(argument.path);
  if (bytes < kLongCompact) return false;
  const auto source = format::ByteSource::open(argument.path, &interrupted());
  if (!source) return false;
  const auto prefix = (*source)->peek(16);
  if (!prefix) return false;
  if (trace::is_compact(*prefix)) return true;
  const auto importer = choose_importer(**source, argument.format);
  if (!importer || (*importer)->name != kTraceFormat) return false;
  const bool packed = argument.path.ends_with(".gz") || argument.path.ends_with(".zst");
  return bytes >= (packed ? kLongPacked : kLongPlain);
}

std::function<Status(trace::OperationSink&)> passes(Console& console,
                                                    const TraceArgument& argument) {
  return [&console, &argument, pass = 0](trace::OperationSink& sink) mutable -> Status {
    ++pass;
    auto source = format::ByteSource::open(argument.path, &interrupted());
    if (!source) return std::move(source).error();
    auto importer = choose_importer(**source, argument.format);
    if (!importer) return std::move(importer).error();
    const auto words = text::format("reading, time {}", pass);
    const auto watching = watched(console, source->get(), sink, words);
    auto counts = (*importer)->read(**source, *watching, {.partial = argument.partial});
    console.end_progress();
    if (!counts) return std::move(counts).error();
    if (pass > 1) return {};
    if ((*importer)->name != kTraceFormat) console.say(describe(**importer, *counts));
    for (const auto& note : counts->notes) console.say(note);
    return {};
  };
}

void say_in_memory(Console& console, const TraceArgument& argument, std::string_view why) {
  console.say(
      text::format("{}: {}: all of it is held in memory, and that may be many times the "
                   "file's {}",
                   argument.path, why, units::bytes(file_bytes(argument.path))));
}

}  // namespace emm::cli
