#include "trace/generate.hpp"

#include <memory>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "format/byte_sink.hpp"
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
    arguments.positional("OUT", out_, "The trace: .json is one document, else JSON Lines; .gz and .zst pack; - is standard output",
                         false);
    arguments.count("--events", options_.events, "Operations memalloc and free together");
    arguments.count("--seed", options_.seed, "The same seed gives the same trace on every machine");
    arguments.text("--min-size", min_size_, "BYTES", "Smallest allocation; the kind's own where not given");
    arguments.text("--max-size", max_size_, "BYTES", "Largest allocation");
    arguments.count("--live", options_.live, "N", "How many allocations live at once, at most");
    arguments.count("--threads", options_.threads, "N", "How many threads");
    arguments.count("--streams", options_.streams, "N", "How many streams");
    arguments.footer("See `emmctl list generators` for what each kind is like.");
  }

  Result<ExitCode> run(Console& console) override {
    for (const auto& [text, into] : {std::pair{&min_size_, &options_.min_size}, std::pair{&max_size_, &options_.max_size}}) {
      if (text->empty()) continue;
      auto size = units::parse_bytes(*text);
      if (!size) return std::move(size).error();
      *into = *size;
    }
    auto sink = format::ByteSink::open(out_);
    if (!sink) return std::move(sink).error();
    handle_interrupts();
    auto writer = trace::make_writer(**sink, form_of(out_));
    const auto made = trace::generate(options_, *watched(console, nullptr, *writer));
    console.end_progress();
    const auto closed = (*sink)->close();
    if (!made) return made.error();
    if (!closed) return closed.error();
    return ExitCode::fine;
  }

 private:
  trace::GenerateOptions options_;
  std::string out_ = "-", min_size_, max_size_;
};

}  // namespace

extern constinit const Command generate_command{
    "generate", "Make a synthetic trace, the same for the same seed", false,
    [](Arguments& arguments) -> std::unique_ptr<CommandRun> { return std::make_unique<Generate>(arguments); }};

}  // namespace emm
