#include "commands/load_recording.hpp"

#include "base/text.hpp"
#include "cli/tee_sink.hpp"

namespace emm::cli {

Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument,
                                          trace::OperationSink* also,
                                          std::unique_ptr<format::ByteSource> opened) {
  if (opened == nullptr) {
    auto source = format::ByteSource::open(argument.path, &interrupted());
    if (!source) return std::move(source).error();
    opened = *std::move(source);
  }
  auto importer = choose_importer(*opened, argument.format);
  if (!importer) return std::move(importer).error();

  inspect::Recording recording;
  recording.set_source(opened->name());
  TeeSink tee(recording, also);
  auto counts = read_with_progress(console, **importer, *opened, tee, argument.partial);
  if (!counts) return std::move(counts).error();
  if ((*importer)->name != kTraceFormat) console.say(describe(**importer, *counts));
  for (const auto& note : counts->notes) console.say(note);
  return recording;
}

void say_cut_stacks(Console& console, const inspect::Recording& recording) {
  if (recording.stacks_cut() == 0) return;
  console.say(text::format(
      "{} call stacks are kept only in their most telling frames, because there are too many",
      text::grouped(recording.stacks_cut())));
}

}  // namespace emm::cli
