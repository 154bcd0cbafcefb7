#include <memory>

#include "cli/command.hpp"
#include "cli/load.hpp"
#include "format/byte_sink.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Convert final : public CommandRun {
 public:
  explicit Convert(Arguments& arguments) {
    arguments.positional("IN", in_, "A file of any format of `emmctl list formats`; - is standard input");
    arguments.positional("OUT", out_, "The trace: .json is one document, else JSON Lines; .gz and .zst pack; - is standard output",
                         false);
    arguments.text("--from", from_, "FORMAT", "The input's format, where its content does not tell");
    arguments.text("--json", json_, "FILE|-", "Writes the counts of rows as JSON (emmctl.import/1)");
    arguments.flag("--partial", partial_, "Convert a damaged file up to where the damage begins");
  }

  Result<ExitCode> run(Console& console) override {
    if (out_ == "-" && json_ == "-") return fail(Errc::usage, "the trace and --json cannot both go to standard output");
    auto source = format::ByteSource::open(in_);
    if (!source) return std::move(source).error();
    auto importer = choose_importer(**source, from_);
    if (!importer) return std::move(importer).error();
    auto sink = format::ByteSink::open(out_);
    if (!sink) return std::move(sink).error();

    handle_interrupts();
    auto writer = trace::make_writer(**sink, form_of(out_));
    auto counts = read_with_progress(console, **importer, **source, *writer, partial_);
    const auto closed = (*sink)->close();
    if (!counts) return std::move(counts).error();
    if (!closed) return closed.error();
    console.say(describe(**importer, *counts));
    for (const auto& note : counts->notes) console.say(note);
    if (!json_.empty()) {
      if (auto written = console.write(json_, to_json(**importer, *counts)); !written) return written.error();
    }
    return ExitCode::fine;
  }

 private:
  std::string in_, out_ = "-", from_, json_;
  bool partial_ = false;
};

}  // namespace

extern constinit const Command convert_command{
    "convert", "Turn another tool's recording into a trace, or a trace into its other form", false,
    [](Arguments& arguments) -> std::unique_ptr<CommandRun> { return std::make_unique<Convert>(arguments); }};

}  // namespace emm
