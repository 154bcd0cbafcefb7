#include <sys/resource.h>

#include <cstdlib>
#include <memory>

#include "base/units.hpp"
#include "cli/defaults.hpp"
#include "cli/manager_choice.hpp"
#include "driver/gpu_profile_file.hpp"
#include "emm/context.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "replay/device_stack.hpp"

namespace emm {
namespace {

using namespace emm::cli;

struct Finding {
  enum class Kind : std::uint8_t { ok, absent, broken };
  std::string what;
  Kind kind = Kind::ok;
  std::string words{};
};

std::string_view name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::ok:
      return "ok";
    case Finding::Kind::absent:
      return "absent";
    case Finding::Kind::broken:
      return "broken";
  }
  return "broken";
}

Finding device(const DeviceEntry& entry) {
  Finding finding{.what = text::format("device {}", entry.name)};
  auto platform = entry.open("", {});
  if (!platform) {
    finding.kind =
        platform.error().code == Errc::no_device ? Finding::Kind::absent : Finding::Kind::broken;
    finding.words = describe(platform.error());
    return finding;
  }
  auto opened = (*platform)->open(0);
  if (!opened) {
    finding.kind = Finding::Kind::broken;
    finding.words = describe(opened.error());
    return finding;
  }
  const auto info = opened->driver->mem_get_info();
  finding.words =
      text::format("{}, {} of {} free, cudart {}", opened->driver->device_name(),
                   units::bytes(info ? info->free : 0), units::bytes(info ? info->total : 0),
                   opened->runtime ? "found" : "not found");
  return finding;
}

/// Exports memory of the simulated device to a second process and reads it there.
Status exchange_with_peer(const std::string& program) {
  auto manager = find_manager("default");
  if (!manager) return std::move(manager).error();
  auto stack = DeviceStack::create(
      {.device = "sim", .manager = std::move(*manager), .peer_program = program}, nullptr);
  if (!stack) return std::move(stack).error();
  auto context = (*stack)->make_context(0, nullptr);
  if (!context) return std::move(context).error();
  auto memory = (*context)->memalloc(4_KiB);
  if (!memory) return std::move(memory).error();
  if (auto set = (*context)->driver().memset_d8(memory->device_pointer(), 0x5a, 4_KiB); !set)
    return set;
  auto handle = (*context)->get_ipc_handle(*memory->view());
  if (!handle) return std::move(handle).error();
  auto peer = (*stack)->start_peer(0);
  if (!peer) return std::move(peer).error();
  auto opening = (*peer)->open(handle->fields());
  if (!opening) return std::move(opening).error();
  auto bytes = (*peer)->read(*opening, 0, 16);
  if (!bytes) return std::move(bytes).error();
  for (const auto byte : *bytes) EMM_ASSERT(byte == std::byte{0x5a});
  return (*peer)->close(*opening);
}

Finding ipc(const std::string& program) {
  const auto done = exchange_with_peer(program);
  if (!done)
    return {
        .what = "second process", .kind = Finding::Kind::broken, .words = describe(done.error())};
  return {.what = "second process", .words = "opens what this one exports, and reads its content"};
}

Finding locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return {.what = "locked memory",
          .words = limit.rlim_cur == RLIM_INFINITY ? "no limit"
                                                   : units::bytes(limit.rlim_cur) + " (ulimit -l)"};
}

Finding chosen_manager() {
  const char* named = std::getenv("EMM_MEMORY_MANAGER");
  if (named == nullptr || *named == '\0')
    return {.what = "EMM_MEMORY_MANAGER", .words = "not set: the manager is default"};
  constexpr std::chrono::seconds kDeadline{60};  // as --deadline has it where it is not given
  auto harm = Result<std::string>(std::string());
  if (is_foreign(named)) {
    harm = look_at_foreign(named, {}, kDeadline);
  } else if (const auto found = find_manager(named); !found) {
    harm = found.error();
  }
  if (!harm || !harm->empty()) {
    return {.what = "EMM_MEMORY_MANAGER",
            .kind = Finding::Kind::broken,
            .words = harm ? text::format("{}: {}", named, *harm) : describe(harm.error())};
  }
  return {.what = "EMM_MEMORY_MANAGER", .words = named};
}

/// The configuration file and what each command takes from it.
struct Configuration {
  Finding finding{.what = "defaults"};
  std::string file;
  std::vector<std::pair<std::string_view, Defaults>> commands;
};

Configuration configuration() {
  Configuration found;
  std::string words;
  for (const auto* command : bundled_commands()) {
    if (command->hidden) continue;
    auto defaults = defaults_of(page_of(*command));
    if (!defaults) {
      found.finding.kind = Finding::Kind::broken;
      found.finding.words = describe(defaults.error());
      return found;
    }
    found.file = defaults->path;
    if (defaults->path.empty()) {
      found.finding.words = "no configuration file: " + defaults->why;
      return found;
    }
    if (defaults->options.empty()) continue;
    words += text::format("{}{}", words.empty() ? ": " : "; ", command->name);
    for (const auto& [name, value] : defaults->options)
      words += text::format(" {}{}{}", name, value.empty() ? "" : " ", value);
    found.commands.emplace_back(command->name, std::move(*defaults));
  }
  found.finding.words = found.file + words;
  return found;
}

std::string to_json(const std::vector<Finding>& findings, const Configuration& configuration) {
  format::JsonAnswer json("emmctl.doctor/1", 2);
  json.objects("findings", findings, [&](const Finding& finding) {
    json.member("what", finding.what).member("state", finding.kind);
    json.member("words", finding.words);
  });
  json.key("defaults").begin_object().member("file", configuration.file);
  json.key("commands").begin_object();
  for (const auto& [command, defaults] : configuration.commands) {
    json.objects(command, defaults.options, [&](const auto& given) {
      json.member("option", given.first).member("value", given.second);
    });
  }
  json.end_object().end_object();
  return json.finish();
}

class Doctor final : public CommandRun {
 public:
  explicit Doctor(Arguments& arguments) {
    arguments.output("--json", json_, "Writes the findings as JSON (emmctl.doctor/1)");
    arguments.output("--profile", profile_,
                     "Writes what this machine's first GPU is, for emmctl run --device "
                     "sim:profile=FILE elsewhere; nothing else is looked at");
    arguments.footer(
        "Exit code 1 if something is broken. A device that is absent is not: the simulated one is "
        "always there.");
  }

  Result<ExitCode> run(Console& console) override {
    if (!profile_.empty()) {
      auto text = profile_of_this_gpu();
      if (!text) return std::move(text).error();
      if (auto written = console.write(profile_, *text); !written) return written.error();
      return ExitCode::fine;
    }
    std::vector<Finding> findings;
    for (const auto* entry : bundled_devices()) findings.push_back(device(*entry));
    findings.push_back(ipc(console.program()));
    findings.push_back(locked_memory());
    const auto configured = configuration();
    findings.push_back(configured.finding);
    findings.push_back(chosen_manager());

    std::vector<std::vector<std::string>> rows;
    bool broken = false;
    for (auto& finding : findings) {
      broken |= finding.kind == Finding::Kind::broken;
      rows.push_back({std::string(name(finding.kind)), finding.what, finding.words});
    }
    if (auto written = console.write_if(json_, [&] { return to_json(findings, configured); });
        !written)
      return written.error();
    if (json_ != "-") console.result(format::columns("lll", rows, ""));
    return broken ? ExitCode::failure : ExitCode::fine;
  }

 private:
  std::string json_, profile_;
};

}  // namespace

extern constinit const Command doctor_command{
    "doctor",
    "What works on this machine, and what is missing",
    false,
    make_run<Doctor>,
    Heading::about,
    {{{"emmctl doctor", "Says what works on this machine, and which defaults are set."},
      {"emmctl doctor --profile gpu.txt",
       "Writes what this GPU is, to run programs without it elsewhere."}}}};

}  // namespace emm
