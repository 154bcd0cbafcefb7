#include "trace/generate.hpp"

#include <memory>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "exchange/exporters/torch_pickle.hpp"
#include "format/whole_file.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Generate final : public CommandRun {
 public:
  explicit Generate(Arguments& arguments) {
    std::vector<std::string_view> kinds;
    for (const auto& kind : trace::generate_kinds()) kinds.push_back(kind.name);
    arguments.positional("KIND", options_.kind, text::join(kinds));
    arguments.output(
        "OUT", out_,
        "The trace: .json is one document, .emmb compact, else JSON Lines; .gz and .zst pack; - "
        "is standard output");
    arguments.count("--events", options_.events, "Count of memalloc and free operations together");
    arguments.count("--seed", options_.seed, "The same seed gives the same trace on every machine");
    arguments.text("--min-size", min_size_, "BYTES",
                   "Smallest allocation. Without it, the kind's own");
    arguments.text("--max-size", max_size_, "BYTES", "Largest allocation");
    arguments.count("--live", options_.live, "N", "The most allocations that live at once");
    arguments.count("--threads", options_.threads, "N", "How many threads");
    arguments.count("--streams", options_.streams, "N", "How many streams");
    arguments.under(OptionHeading::output)
        .text("--to", format_, "FORMAT",
              "What to write: emm, torch (a PyTorch snapshot), or another that `emmctl list "
              "formats` says is written");
    arguments.count("--stacks", stacks_, "N",
                    "torch: distinct call stacks, of which each allocation has one");
    arguments.count("--depth", depth_, "N", "torch: frames of a stack");
    arguments.under(OptionHeading::shown)
        .count("--frames", shared_, "N",
               "torch: distinct frames, which stacks share; 0 gives each stack its own");
    arguments.flag("--own-stacks", own_stacks_,
                   "torch: each allocation writes its stack anew, as PyTorch does, so that the "
                   "file is mostly frames; with --stacks 0 no two stacks are alike");
    arguments.footer(
        "See `emmctl list generators` for what each kind is like. "
        "Exit codes: 0 written; 2 usage; 3 not written to the end, as on a full disk; 130 "
        "interrupted.");
  }

  Result<ExitCode> run(Console& console) override {
    for (const auto& [text, into] :
         {std::pair{&min_size_, &options_.min_size}, std::pair{&max_size_, &options_.max_size}}) {
      if (text->empty()) continue;
      auto size = units::parse_bytes(*text);
      if (!size) return std::move(size).error();
      *into = *size;
    }
    trace::TorchFrames frames{.seed = options_.seed};
    if (auto good = read_frames(frames); !good) return good.error();
    const trace::Exporter* exporter = nullptr;
    if (format_ != "emm" && !torch()) {
      auto found = trace::find_exporter(format_);
      if (!found) return std::move(found).error();
      exporter = *found;
    }
    handle_interrupts();
    auto sink = format::open_whole(out_);
    if (!sink) return std::move(sink).error();
    if (torch()) return write_snapshot(console, **sink, frames);
    if (exporter == nullptr) {
      auto written = write(console, **sink, *trace::make_writer(**sink, form_of(out_)));
      if (written) say_trace_in(console, out_);
      return written;
    }
    const auto exporting = exporter->open(**sink);
    auto written = write(console, **sink, *exporting);
    if (!written) return written;
    for (const auto& note : exporting->notes())
      console.say(text::format("{}: {}", exporter->name, note));
    return written;
  }

 private:
  bool torch() const { return format_ == "torch" || format_ == "torch-pickle"; }

  Status read_frames(trace::TorchFrames& frames) const {
    if (!torch() && (stacks_ || depth_ || shared_ || own_stacks_)) {
      return fail(Errc::usage,
                  "--stacks, --depth, --frames, --own-stacks: expected --to torch, which alone "
                  "has them");
    }
    frames.own = own_stacks_;
    frames.stacks = stacks_.value_or(kStacks);
    frames.depth = depth_.value_or(frames.depth);
    frames.frames = shared_.value_or(kFrames);
    constexpr std::uint64_t kMost = 100'000'000;  // of each: catches a slip of the hand
    if (frames.stacks > kMost || frames.frames > kMost || frames.depth == 0 ||
        frames.depth > kMost) {
      return fail(
          Errc::usage,
          "{} stacks of {} of {} frames: expected a depth of 1 at least, and at most {} of each",
          frames.stacks, frames.depth, frames.frames, kMost);
    }
    return {};
  }

  Result<ExitCode> write(Console& console, format::ByteSink& sink, trace::OperationSink& writer) {
    const auto made = trace::generate(options_, *watched(console, nullptr, writer));
    console.end_progress();
    if (!made) return made.error();
    if (auto closed = sink.close(); !closed) return closed.error();
    return ExitCode::fine;
  }

  /// Writes a PyTorch snapshot and says what distinguishes it from others.
  Result<ExitCode> write_snapshot(Console& console, format::ByteSink& sink,
                                  const trace::TorchFrames& frames) {
    trace::TorchPickleWriter writer(sink, frames);
    auto written = write(console, sink, writer);
    if (!written) return written;
    for (const auto& note : writer.notes()) console.say(text::format("torch-pickle: {}", note));
    console.say(text::format(
        "torch-pickle: {} rows, seed {}; {} stacks of {} frames{}; frames {}",
        text::grouped(writer.rows()), options_.seed,
        frames.own && frames.stacks == 0 ? "all different" : text::grouped(frames.stacks),
        text::grouped(frames.depth), frames.own ? ", each written anew" : "",
        frames.frames == 0 ? "of their own" : text::grouped(frames.frames) + ", shared"));
    return written;
  }

  static constexpr std::uint64_t kStacks = 500, kFrames = 2000;  // as in a training run
  trace::GenerateOptions options_;
  std::string out_ = "-", min_size_, max_size_, format_ = "emm";
  std::optional<std::uint64_t> stacks_, depth_, shared_;
  bool own_stacks_ = false;
};

}  // namespace

extern constinit const Command generate_command{
    "generate",
    "Make a synthetic trace, the same for the same seed",
    false,
    make_run<Generate>,
    Heading::traces,
    {{{"emmctl generate ramps ramps.jsonl --events 1000", "Makes a trace of 1,000 events."},
      {"emmctl generate comb comb.pickle --to torch --events 1000", "Makes a PyTorch snapshot."}}}};

}  // namespace emm
