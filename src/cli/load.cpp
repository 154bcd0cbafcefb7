#include "cli/load.hpp"

#include <sys/stat.h>

#include <fstream>

#include "base/run_files.hpp"
#include "base/text.hpp"
#include "cli/tee_sink.hpp"
#include "exchange/exporter.hpp"
#include "format/json_writer.hpp"
#include "trace/compact/near.hpp"
#include "trace/compact/operation_row.hpp"
#include "trace/compact/reader.hpp"
#include "trace/curve.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::cli {
namespace {

class Watched final : public trace::OperationSink {
 public:
  Watched(Console& console, const format::ByteSource* source, trace::OperationSink& to,
          std::string words = "reading")
      : console_(console), source_(source), to_(to), words_(std::move(words)) {}

  Status on_header(const trace::Header& header) override { return to_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override {
    if ((++count_ & kBetween) == 0) {
      if (auto good = look(); !good) return good;
    }
    const auto is_linear =
        !operation.has(trace::Member::kind) || operation.op != trace::Op::memalloc ||
        operation.kind == trace::Kind::device ||
        (operation.has(trace::Member::layer) && operation.layer == trace::Layer::backing);
    if (!is_linear) ++not_linear_;
    return to_.on_operation(operation);
  }
  Status on_operations(trace::compact::OperationRow& row, std::size_t most) override {
    if (row.has(trace::Op::memalloc, trace::Member::kind))
      return trace::OperationSink::on_operations(row, most);
    const auto before = row.left();
    auto taken = to_.on_operations(row, most);
    const auto looked_at = count_;
    count_ += before - row.left();
    if (taken && (count_ & ~kBetween) != (looked_at & ~kBetween)) return look();
    return taken;
  }
  Status finish() override { return to_.finish(); }
  std::uint64_t not_linear() const noexcept { return not_linear_; }

 private:
  static constexpr std::uint64_t kBetween = 0xffff;  ///< Operations between two looks, minus one.

  /// Shows the progress, and fails if the person interrupted.
  Status look() {
    if (source_ != nullptr) {
      console_.progress(words_, source_->consumed(), source_->total());
    } else {
      console_.progress("generating", count_, 0);
    }
    if (interrupted().load(std::memory_order_relaxed)) {
      return fail(Errc::interrupted, "interrupted while {}",
                  source_ != nullptr ? "reading " + source_->name() : "generating");
    }
    return {};
  }

  Console& console_;
  const format::ByteSource* source_;
  trace::OperationSink& to_;
  const std::string words_;
  std::uint64_t count_ = 0, not_linear_ = 0;
};

struct Count {
  std::string_view word;
  std::uint64_t value;
};

std::vector<Count> named(const trace::ImportCounts& counts) {
  return {{"used", counts.used},
          {"unmatched", counts.unmatched},
          {"duplicate", counts.duplicate},
          {"other", counts.other},
          {"truncated", counts.truncated}};
}

}  // namespace

std::unique_ptr<trace::OperationSink> watched(Console& console, const format::ByteSource* source,
                                              trace::OperationSink& to, std::string words) {
  return std::make_unique<Watched>(console, source, to, std::move(words));
}

bool has_name(const std::string& path) {
  struct stat of {};
  return path != "-" && !path.empty() && (stat(path.c_str(), &of) != 0 || S_ISREG(of.st_mode));
}

void say_trace_in(Console& console, const std::string& path) {
  const auto named = trace::format_named_by(path);
  if (!has_name(path) || named.format.empty() || named.format == kTraceFormat) return;
  console.say(text::format(
      "{} is a trace in JSON Lines, whatever its name tells: emmctl convert makes {} of it", path,
      named.format));
  run_files::note_told(path);
}

trace::Form form_of(std::string path) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) path.resize(path.size() - packed.size());
  }
  if (path.ends_with(".emmb")) return trace::Form::compact;
  return path.ends_with(".json") ? trace::Form::document : trace::Form::lines;
}

Result<const trace::Importer*> choose_importer(format::ByteSource& source,
                                               const std::string& name) {
  return name.empty() ? trace::detect(source) : trace::find_importer(name);
}

std::string describe(const trace::Importer& importer, const trace::ImportCounts& counts) {
  auto words = text::format("{}: {} rows read", importer.name, text::grouped(counts.rows));
  for (const auto& [word, value] : named(counts)) {
    if (value > 0) words += text::format(", {} {}", text::grouped(value), word);
  }
  return words;
}

void put_counts(format::JsonWriter& json, const trace::ImportCounts& counts) {
  json.member("rows", counts.rows);
  for (const auto& [word, value] : named(counts)) json.member(word, value);
  json.member("notes", counts.notes);
}

std::string to_json(const trace::Importer& importer, const trace::ImportCounts& counts) {
  format::JsonAnswer json("emmctl.import/1");
  json.member("format", importer.name);
  put_counts(json, counts);
  return json.finish();
}

Result<trace::ImportCounts> read_with_progress(Console& console, const trace::Importer& importer,
                                               format::ByteSource& source,
                                               trace::OperationSink& sink, bool partial) {
  Watched watching(console, &source, sink);
  auto counts = importer.read(source, watching, {.partial = partial});
  console.end_progress();
  return counts;
}

void TraceArgument::offer(Arguments& arguments) {
  arguments.input("TRACE", path,
                  "The trace, in any format of `emmctl list formats`; - is standard input");
  arguments.under(OptionHeading::input)
      .text("--from", format, "FORMAT", "The trace's format, if its content does not tell");
  arguments.under(OptionHeading::input)
      .flag("--partial", partial, "Read a cut or damaged trace up to where the damage begins");
}

void offer_all_frames(Arguments& arguments, bool& all_frames) {
  arguments.under(OptionHeading::shown)
      .flag("--all-frames", all_frames,
            "Show whole call stacks, with the frames of the allocator and the framework");
}

namespace {

/// Reads into `to`. `loaded` gets what the summary should carry, and stderr gets everything.
Status read_and_say(Console& console, const trace::Importer& importer, format::ByteSource& source,
                    trace::OperationSink& to, bool partial, LoadedTrace& loaded) {
  Watched watching(console, &source, to);
  auto counts = importer.read(source, watching, {.partial = partial});
  console.end_progress();
  if (!counts) return std::move(counts).error();
  if (watching.not_linear() != 0) {
    counts->notes.push_back(text::format(
        "{} allocations are of kind array or physical, and taken as memory like any other",
        watching.not_linear()));
  }
  loaded.importer = &importer;
  loaded.counts = std::move(*counts);
  if (importer.name != kTraceFormat) console.say(describe(importer, loaded.counts));
  for (const auto& note : loaded.counts.notes) {
    console.say(note);
    loaded.notes.push_back(note);
  }
  return {};
}

/// The bytes that the system has available for programs, or 0 if it does not say.
std::uint64_t available_memory() {
  std::ifstream said("/proc/meminfo");
  for (std::string word; said >> word;) {
    std::uint64_t kib = 0;
    if (word == "MemAvailable:" && said >> kib) return kib << 10;
  }
  return 0;
}

/// Whether it is a large compact file. Its events take much more room in memory.
bool is_long(const TraceArgument& argument) {
  constexpr off_t kLong = off_t{24} << 20;  // some ten million operations
  struct stat of {};
  if (argument.partial || stat(argument.path.c_str(), &of) != 0 || !S_ISREG(of.st_mode) ||
      of.st_size < kLong) {
    return false;
  }
  const auto source = format::ByteSource::open(argument.path, &interrupted());
  const auto prefix = source ? (*source)->peek(16) : Result<std::string_view>(std::string_view());
  return prefix && trace::is_compact(*prefix);
}

}  // namespace

Result<LoadedTrace> load_trace(Console& console, const TraceArgument& argument,
                               trace::OperationSink* also) {
  if (has_name(argument.path)) {
    if (auto room = trace::expect_room(argument.path, available_memory()); !room)
      return room.error();
  }
  auto source = format::ByteSource::open(argument.path, &interrupted());
  if (!source) return std::move(source).error();
  auto importer = choose_importer(**source, argument.format);
  if (!importer) return std::move(importer).error();

  LoadedTrace loaded;
  loaded.trace.set_source((*source)->name());
  TeeSink tee(loaded.trace, also);
  auto& to = also != nullptr ? static_cast<trace::OperationSink&>(tee) : loaded.trace;
  auto read = read_and_say(console, **importer, **source, to, argument.partial, loaded);
  if (!read) return read.error();
  if (trace::curve_of(loaded.trace.header()) != trace::Curve::none) {
    return fail(
        Errc::not_supported,
        "{}: it tells what was live and not which block was freed, so it cannot be "
        "replayed: expected a recording of each block; `emmctl inspect` shows what it tells",
        argument.path);
  }
  return loaded;
}

Result<WalkedTrace> walk_trace(Console& console, const TraceArgument& argument, bool may_stream,
                               trace::OperationSink* also) {
  WalkedTrace walked;
  if (may_stream && also == nullptr && is_long(argument)) {
    auto streamed = trace::StreamedTrace::open(
        argument.path,
        [&](format::ByteSource& source, trace::OperationSink& sink) -> Status {
          auto importer = choose_importer(source, argument.format);
          if (!importer) return importer.error();
          return read_and_say(console, **importer, source, sink, false, walked.loaded);
        },
        &interrupted());
    if (!streamed) return std::move(streamed).error();
    walked.streamed = *std::move(streamed);
    if (walked.streamed != nullptr) return walked;
    walked.loaded.notes.clear();
  }
  auto loaded = load_trace(console, argument, also);
  if (!loaded) return std::move(loaded).error();
  walked.loaded = *std::move(loaded);
  return walked;
}

}  // namespace emm::cli
