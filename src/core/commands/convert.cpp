#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/run_files.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "exchange/exporter.hpp"
#include "exchange/importers/rmm_devices.hpp"
#include "format/whole_file.hpp"
#include "trace/anonymize.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Checks a trace as a replay would, and passes it on.
class Judged final : public trace::OperationSink {
 public:
  Judged(const std::string& source, trace::OperationSink& to, bool streams) : to_(to) {
    trace_.set_source(source);
    if (streams) trace_.keep_window(0);
  }

  Status on_header(const trace::Header& header) override {
    if (auto judged = trace_.on_header(header); !judged) return judged;
    return to_.on_header(header);
  }
  Status on_operation(const trace::Operation& operation) override {
    if (auto judged = trace_.on_operation(operation); !judged) return judged;
    return to_.on_operation(operation);
  }
  Status finish() override {
    if (auto judged = trace_.finish(); !judged) return judged;
    return to_.finish();
  }
  bool needs_memory() const noexcept { return trace_.needs_memory(); }

 private:
  trace::Trace trace_;
  trace::OperationSink& to_;
};

class Convert final : public CommandRun {
 public:
  explicit Convert(Arguments& arguments) {
    arguments.input("IN", in_,
                    "A file of any format of `emmctl list formats`; - is standard input");
    arguments.output("OUT", out_,
                     "What is written, in the format that the name tells: .json is a trace in one "
                     "document, .jsonl in JSON Lines, .emmb in the compact form, "
                     ".csv RMM's log, .pickle a PyTorch snapshot; else JSON Lines; .gz and .zst "
                     "pack; - is standard output");
    arguments.under(OptionHeading::input)
        .text("--from", from_, "FORMAT", "The input's format, if its content does not tell");
    arguments.under(OptionHeading::output)
        .text("--to", to_, "FORMAT",
              "The format to write, whatever the name tells: one that `emmctl list formats` "
              "says is written");
    arguments.under(OptionHeading::input)
        .inputs("--with", with_, "FILE",
                "RMM logs: the log of another device in the same run; repeatable");
    arguments.under(OptionHeading::output)
        .flag("--anonymize", anonymize_,
              "Leave out frames, names, labels, addresses, the host and the command");
    arguments.output("--json", json_, "Writes the counts of rows as JSON (emmctl.import/1)");
    arguments.under(OptionHeading::input)
        .flag("--partial", partial_, "Convert a damaged file up to where the damage begins");
  }

  Result<ExitCode> run(Console& console) override {
    const auto named = trace::format_named_by(out_);
    const auto to_format =
        !to_.empty() ? to_ : std::string(named.format.empty() ? kTraceFormat : named.format);
    const trace::Exporter* exporter = nullptr;
    if (to_format != kTraceFormat) {
      auto found = trace::find_exporter(to_format);
      if (!found) return std::move(found).error();
      exporter = *found;
    }
    auto inputs = open_inputs();
    if (!inputs) return std::move(inputs).error();
    auto importer = choose_importer(*inputs->front(), from_);
    if (!importer) return std::move(importer).error();
    if (inputs->size() > 1 && (*importer)->name != "rmm-csv") {
      return fail(Errc::usage, "--with {}: {} is of the format {}: expected a log of RMM",
                  with_.front(), in_, (*importer)->name);
    }
    handle_interrupts();
    auto sink = format::open_whole(out_);
    if (!sink) return std::move(sink).error();

    std::unique_ptr<trace::OperationSink> writer;
    trace::ExportSink* exporting = nullptr;
    if (exporter != nullptr) {
      auto opened = exporter->open(**sink);
      exporting = opened.get();
      writer = std::move(opened);
    } else {
      writer = trace::make_writer(**sink, form_of(out_));
    }
    trace::Anonymizer anonymizer(*writer);
    auto& to = anonymize_ ? static_cast<trace::OperationSink&>(anonymizer) : *writer;
    // Only a file can be read a second time, which is needed if its operations are out of order.
    const bool streams = !whole_ && inputs->front()->total() != 0 && has_name(out_);
    Judged judged(inputs->front()->name(), to, streams);
    // The importers of other formats produce sound traces, so these are not checked.
    auto& first =
        (*importer)->name == kTraceFormat ? static_cast<trace::OperationSink&>(judged) : to;
    auto counts = inputs->size() > 1
                      ? read_devices(*inputs, to)
                      : read_with_progress(console, **importer, *inputs->front(), first, partial_);
    if (!counts && judged.needs_memory()) {
      whole_ = true;
      writer.reset();
      sink->reset();
      return run(console);
    }
    if (!counts) return std::move(counts).error();
    if (auto closed = (*sink)->close(); !closed) return closed.error();
    console.say(describe(**importer, *counts));
    for (const auto& note : counts->notes) console.say(note);
    if (exporting != nullptr) {
      for (const auto& note : exporting->notes())
        console.say(text::format("{}: {}", exporter->name, note));
    }
    if (const auto words = about_format(named, to_format); !words.empty()) {
      console.say(words);
      run_files::note_told(out_);
    }
    if (auto written = console.write_if(json_, [&] { return to_json(**importer, *counts); });
        !written)
      return written.error();
    return ExitCode::fine;
  }

 private:
  using Inputs = std::vector<std::unique_ptr<format::ByteSource>>;

  /// A remark on the output's format, if the file's name does not make it plain.
  std::string about_format(const trace::NamedFormat& named, const std::string& format) const {
    if (!has_name(out_)) return {};
    if (named.format.empty()) {
      if (!to_.empty()) return {};
      return text::format(
          "{} is a trace in JSON Lines: its name tells no format, and no --to FORMAT does", out_);
    }
    if (format != named.format && format != named.other) {
      return text::format("{} is {}, as --to says; its name tells of {}", out_, format,
                          named.format);
    }
    if (!to_.empty() || format == kTraceFormat) return {};
    auto words = text::format("{} is {}, as its name tells", out_, format);
    if (!named.other.empty())
      words += text::format("; --to {} writes the other {} format", named.other, "CSV");
    return words;
  }

  Result<Inputs> open_inputs() {
    Inputs inputs;
    auto paths = with_;
    paths.insert(paths.begin(), in_);
    for (const auto& path : paths) {
      auto source = format::ByteSource::open(path, &interrupted());
      if (!source) return std::move(source).error();
      inputs.push_back(*std::move(source));
    }
    return inputs;
  }

  /// Reads one log for each device. The log's name gives the device, else its place on the command
  /// line does.
  Result<trace::ImportCounts> read_devices(const Inputs& inputs, trace::OperationSink& to) {
    std::vector<trace::DeviceLog> logs;
    for (const auto& input : inputs) {
      const auto said = trace::device_of_log(input->name());
      logs.push_back({.source = input.get(),
                      .device = said.value_or(static_cast<std::uint32_t>(logs.size()))});
    }
    return trace::read_rmm_devices(logs, to, {.partial = partial_});
  }

  std::string in_, out_ = "-", from_, to_, json_;
  std::vector<std::string> with_;
  bool partial_ = false, anonymize_ = false;
  bool whole_ = false;  // the trace must be in memory to be checked
};

}  // namespace

extern constinit const Command convert_command{
    "convert",
    "Turn another tool's recording into a trace, or write a trace as JSON or compactly",
    false,
    make_run<Convert>,
    Heading::traces,
    {{{"emmctl convert oom.pickle run.jsonl", "Makes a trace of a PyTorch snapshot."},
      {"emmctl convert run.jsonl run.csv --anonymize", "Makes RMM's CSV of a trace."}}}};

}  // namespace emm
