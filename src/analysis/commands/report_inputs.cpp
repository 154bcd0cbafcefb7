#include "commands/report_inputs.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/load.hpp"
#include "cli/recorded_settings.hpp"
#include "cli/tee_sink.hpp"
#include "commands/held_segments.hpp"
#include "commands/held_state.hpp"
#include "commands/known_blocks.hpp"
#include "format/json_value.hpp"
#include "inspect/oom.hpp"
#include "log/writer.hpp"
#include "replay/apart.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"
#include "report/page.hpp"
#include "report/page_file.hpp"
#include "trial/remedies.hpp"
#include "trial/sweep/folder.hpp"
#include "trial/tune.hpp"

namespace emm::cli {
namespace pytorch = allocators::pytorch;
namespace {

// It is held in memory, and goes into the page whole.
constexpr std::size_t kResultBytesMost = std::size_t{64} << 20;

/// Reads what another command wrote with --json. Nothing if the file is no such result.
Result<std::optional<format::JsonValue>> read_result(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  const auto key = begin.find("\"schema\"");
  if (begin.empty() || begin.front() != '{' || key == std::string::npos ||
      begin.find("\"emmctl.", key) > key + 16) {
    return std::optional<format::JsonValue>();
  }
  file.clear();
  file.seekg(0);
  std::string text;
  for (std::string piece(std::size_t{1} << 16, '\0');
       file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0;) {
    text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kResultBytesMost) {
      return fail(Errc::parse_error, "{}: more than {} bytes: expected the JSON of one result",
                  path, kResultBytesMost);
    }
  }
  auto value = format::parse_json(text, path);
  if (!value) return std::move(value).error();
  return std::optional(std::move(*value));
}

/// What the page shows of a path that is no trace: a sweep's folder, or what another command wrote
/// with --json. Nothing for others.
Result<std::optional<format::JsonValue>> result_at(const std::string& path) {
  if (!sweep::Folder::is_one(path))
    return path == "-" ? std::optional<format::JsonValue>() : read_result(path);
  const sweep::Folder folder(path);
  const auto cells = folder.read_plan();
  if (!cells) return cells.error();
  auto content = format::parse_json(sweep::to_page(folder, *cells), path);
  if (!content) return std::move(content).error();
  return std::optional(std::move(*content));
}

std::string first_line_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    return std::string(text::trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

report::Origin origin_of(std::string title) {
  report::Origin origin{.title = std::move(title),
                        .command = {},
                        .version = std::string(report::page_file("version")),
                        .machine = {},
                        .time = {}};
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  bool program = true;
  for (std::string argument; std::getline(file, argument, '\0');) {
    if (program) argument = "emmctl";
    program = false;
    const bool plain =
        !argument.empty() &&
        argument.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%") ==
            std::string::npos;
    if (!plain) {
      std::string quoted = "'";
      for (const char c : argument) quoted += c == '\'' ? "'\\''" : std::string(1, c);
      argument = quoted + "'";
    }
    origin.command += (origin.command.empty() ? "" : " ") + argument;
  }
  utsname system{};
  if (uname(&system) == 0) {
    origin.machine = text::format("{} {} {}", system.sysname, system.release, system.machine);
    if (const auto model = first_line_of("/proc/cpuinfo", "model name"); !model.empty())
      origin.machine += ", " + model;
  }
  // The convention of reproducible builds: with it, the same inputs give the same page.
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  const auto given = epoch != nullptr ? text::to_u64(epoch) : std::nullopt;
  const std::time_t now = given ? static_cast<std::time_t>(*given) : std::time(nullptr);
  std::tm utc{};
  char shown[32];
  if (gmtime_r(&now, &utc) != nullptr &&
      std::strftime(shown, sizeof shown, "%Y-%m-%d %H:%M UTC", &utc) != 0) {
    origin.time = shown;
  }
  return origin;
}

/// The capacity that is given for the device of replays. A state is asked about it, too.
Result<std::optional<std::uint64_t>> capacity_of(std::string_view device) {
  constexpr std::string_view kCapacity = "capacity=";
  const auto at = device.find(kCapacity);
  if (at == device.npos) return std::optional<std::uint64_t>();
  const auto words = device.substr(at + kCapacity.size());
  auto bytes = units::parse_capacity(words.substr(0, words.find(',')));
  if (!bytes) return std::move(bytes).error();
  return std::optional(*bytes);
}

}  // namespace

void ReportInputs::offer(Arguments& arguments) {
  arguments.inputs("INPUT", paths_, "",
                   "Traces and recordings in any format of `emmctl list formats`, what other "
                   "commands wrote with --json, and folders of sweeps; any mix of them");
  arguments.under(OptionHeading::manager)
      .list("--manager", managers_, "NAME|FILE[:key=value,...]",
            "Replay each trace on this manager too, and show what it reserved; repeatable");
  arguments.under(OptionHeading::device)
      .text(
          "--device", device_, "DEVICE",
          "The device of these replays, as replay takes it. For a state of PyTorch, the page also "
          "says which largest request its capacity would serve");
  deadline_.offer(arguments);
  arguments.under(OptionHeading::input)
      .text("--from", format_, "FORMAT", "The traces' format, if their content does not tell");
  arguments.under(OptionHeading::input)
      .flag("--partial", partial_, "Read a cut or damaged trace up to where the damage begins");
  arguments.flag("--tune", tune_,
                 "For recordings of PyTorch: also what other settings of its allocator would do, "
                 "as tune says it; done by itself where requests were refused");
  arguments.under(OptionHeading::output)
      .text("--title", title_, "TEXT", "The page's title (that of the first input)");
}

Result<std::string> ReportInputs::table() const {
  auto out = sweep::csv_header();
  for (const auto& path : paths_) {
    if (!sweep::Folder::is_one(path)) continue;
    const sweep::Folder folder(path);
    const auto cells = folder.read_plan();
    if (!cells) return cells.error();
    out += sweep::csv_rows(folder, *cells, 1);  // a report makes no further try
  }
  return out;
}

Result<ReportInputs::Replays> ReportInputs::replays() const {
  const auto deadline = deadline_.time();
  if (!deadline) return deadline.error();
  Replays replays{.deadline = *deadline};
  for (const auto& spec : managers_) {
    auto manager = choose_manager(spec, {}, *deadline);
    if (!manager) return std::move(manager).error();
    replays.managers.push_back(std::move(*manager));
  }
  auto capacity = capacity_of(device_);
  if (!capacity) return capacity.error();
  replays.capacity = *capacity;
  return replays;
}

Result<std::string> ReportInputs::page(Console& console) const {
  const auto replays = this->replays();
  if (!replays) return replays.error();
  handle_interrupts();

  PageParts parts;
  std::vector<std::string> names;
  for (const auto& path : paths_) {
    names.push_back(path.substr(path.rfind('/') + 1));
    auto result = result_at(path);
    if (!result) return std::move(result).error();
    if (*result) {
      parts.results.push_back(report::result_part(**result, path));
    } else if (auto added = add_trace(console, *replays, path, names.back(), parts); !added) {
      return added.error();
    }
  }
  auto title = title_.empty() ? names.front() : title_;
  if (title_.empty() && names.size() == 2) title += " and " + names.back();
  if (title_.empty() && names.size() > 2)
    title += text::format(" and {} more", text::grouped(names.size() - 1));
  console.step("page");
  return report::page(origin_of(std::move(title)), parts.traces, parts.results);
}

Status ReportInputs::add_trace(Console& console, const Replays& replays, const std::string& path,
                               const std::string& name, PageParts& parts) const {
  auto source = format::ByteSource::open(path, &interrupted());
  if (!source) return std::move(source).error();
  auto importer = choose_importer(**source, format_);
  if (!importer) return std::move(importer).error();
  report::Recorded recorded;
  recorded.set_source((*source)->name());
  pytorch::Recording of_pytorch;
  TeeSink sinks(recorded, &of_pytorch);
  auto counts = read_with_progress(console, **importer, **source, sinks, partial_);
  if (!counts) return std::move(counts).error();
  if ((*importer)->name != kTraceFormat) console.say(describe(**importer, *counts));
  for (const auto& note : counts->notes) console.say(note);
  if (of_pytorch.is_recording() && std::any_of(managers_.begin(), managers_.end(), is_pytorch)) {
    const auto program = program_of(of_pytorch, of_pytorch.settings());
    recorded.set_pool_steps(pool_steps_of(program, of_pytorch.device()));
  }
  const auto& trace = recorded.recording().trace();
  console.step(text::format("{}: lifetimes", name));
  const trace::Lifetimes lifetimes(trace);
  if (auto summed = lifetimes.can_be_summed(); !summed) return summed;

  std::vector<report::Replayed> replayed;
  for (std::size_t i = 0; i < replays.managers.size(); ++i) {
    auto manager = replays.managers[i];
    if (is_pytorch(managers_[i])) {
      // The model uses the recording's settings where none are given.
      auto with = choose_manager(with_recorded_settings(console, managers_[i], of_pytorch), {},
                                 replays.deadline);
      if (!with) return std::move(with).error();
      manager = std::move(*with);
    }
    auto& sink = replayed.emplace_back(trace, manager.name);
    if (auto good = replay(console, trace, manager, sink); !good) return good;
  }

  console.step(text::format("{}: curves and addresses", name));
  auto checks = inspect::fit_checks(recorded.recording(), lifetimes,
                                    trace.is_state() ? replays.capacity : std::nullopt);
  if (inspect::find_ooms(recorded.recording(), lifetimes).all.empty())
    describe_states(checks, of_pytorch);
  parts.traces.push_back(
      report::trace_part(recorded, lifetimes, replayed,
                         known_blocks(recorded.recording(), lifetimes, of_pytorch), checks, path));
  if (auto advised =
          advise(console, recorded.recording(), lifetimes, of_pytorch, parts.traces.back());
      !advised)
    return advised;
  return tune(console, trace, of_pytorch, path, parts.results);
}

Status ReportInputs::replay(Console& console, const trace::Trace& trace,
                            const ManagerFactory& manager, report::Replayed& sink) const {
  const auto work = [&](const RunEnvironment& at) -> Result<log::Summary> {
    HeldSegments held;
    auto stack = DeviceStack::create({.device = device_,
                                      .trace = &trace,
                                      .manager = held.watch(manager),
                                      .peer_program = console.program()},
                                     nullptr);
    if (!stack) return std::move(stack).error();
    auto summary = replay_logged(at, trace, **stack);
    at.words.push_back(held.to_text());
    return summary;
  };
  std::vector<std::string> words;
  auto summary = run_apart(
      {.trace = trace,
       .manager = manager,
       .interrupted = &interrupted(),
       .progress = console.progress_of("replay"),
       .open_log = [&](const log::LogOptions&) -> Result<log::RecordSink*> { return &sink; },
       .work = work},
      words);
  console.end_progress();
  if (!summary) return std::move(summary).error();
  if (summary->interrupted) return fail(Errc::interrupted, "interrupted while {}", "replaying");
  if (summary->abnormal) console.say(summary->abnormal->words);
  sink.summary = log::to_json(*summary);
  if (!words.empty()) sink.set_held(HeldSegments::from_text(words.front()));
  return {};
}

Status ReportInputs::advise(Console& console, const inspect::Recording& recording,
                            const trace::Lifetimes& lifetimes, const pytorch::Recording& of_pytorch,
                            report::PagePart& part) const {
  const auto ooms = inspect::find_ooms(recording, lifetimes);
  if (!of_pytorch.is_recording() || ooms.all.empty() ||
      ooms.all.front().device != of_pytorch.device())
    return {};
  const auto& oom = ooms.all.front();
  const auto advice = trial::advise(
      of_pytorch, recording.trace(), oom.event,
      trial::question_of(of_pytorch, of_pytorch.settings(), {}, trial::Limit::device, oom.event),
      {.peer_program = console.program(),
       .interrupted = &interrupted(),
       .progress = console.progress_of("remedies")});
  console.end_progress();
  if (!advice) return advice.error();
  part.json.insert(part.json.rfind('}'),
                   ",\"advice\":{" + trial::to_json_members(*advice, recording.trace()) + "}");
  return {};
}

Status ReportInputs::tune(Console& console, const trace::Trace& trace,
                          const pytorch::Recording& recording, const std::string& path,
                          std::vector<report::PagePart>& results) const {
  bool refused = false;
  for (std::size_t event = 0; event < trace.size() && !refused; ++event)
    refused = trace::is_refused(trace[event]);
  if (!recording.is_recording() || recording.allocations() == 0 || !(refused || tune_)) return {};
  const auto tuning = trial::tune(pytorch::program_of(recording, recording.settings()), trace,
                                  {.question = trial::question_of(recording, recording.settings()),
                                   .peer_program = console.program(),
                                   .interrupted = &interrupted(),
                                   .progress = console.progress_of("settings")});
  console.end_progress();
  if (!tuning) return tuning.error();
  const auto json = format::parse_json(trial::to_json(*tuning, trace), path);
  if (!json) return json.error();
  results.push_back(report::result_part(*json, path));
  return {};
}

}  // namespace emm::cli
