#include <algorithm>
#include <chrono>
#include <memory>

#include "base/text.hpp"
#include "cli/command.hpp"
#include "cli/listing.hpp"
#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "exchange/exporter.hpp"
#include "exchange/importer.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "log/writer.hpp"
#include "plugin/child.hpp"
#include "plugin/plugin.hpp"
#include "trace/generate.hpp"

namespace emm {
namespace {

using namespace emm::cli;

std::string cell(std::string_view value) { return std::string(value); }

Rows managers() {
  Rows rows{{"manager", "what it is", "options", "promise", "device memory", "judged as"}};
  for (const auto* entry : bundled_managers()) {
    rows.push_back({cell(entry->name), cell(entry->summary), cell(entry->options),
                    cell(name(entry->promise)),
                    !entry->device_memory ? ""
                    : entry->fills_device ? "yes"
                                          : "a part",
                    text::join(judged_specs(*entry), " ")});
  }
  return rows;
}

Rows adaptors() {
  Rows rows{{"adaptor", "what it does", "options"}};
  for (const auto* entry : bundled_adaptors()) {
    rows.push_back({cell(entry->name), cell(entry->summary), cell(entry->options)});
  }
  return rows;
}

Rows devices() {
  Rows rows{{"device", "what it is", "options", "here"}};
  for (const auto* entry : bundled_devices()) {
    auto platform = entry->open("", {});
    std::string here;
    if (!platform) {
      here = describe(platform.error());
    } else if (entry->name == "sim") {
      here = "always";
    } else {
      here = text::format("{} found", (*platform)->device_count());
    }
    rows.push_back({cell(entry->name), cell(entry->summary), cell(entry->options), here});
  }
  return rows;
}

Rows formats() {
  Rows rows{{"format", "what it is", "read", "written"}};
  const auto exporters = trace::bundled_exporters();
  const auto written = [&](std::string_view name) {
    return name == "emm" || std::any_of(exporters.begin(), exporters.end(),
                                        [&](const auto* entry) { return entry->name == name; });
  };
  for (const auto* entry : trace::bundled_importers()) {
    rows.push_back({cell(entry->name), cell(entry->summary),
                    entry->from_documentation ? "written from documentation" : "yes",
                    written(entry->name) ? "yes" : ""});
  }
  for (const auto* entry : exporters) {
    if (trace::find_importer(entry->name)) continue;
    rows.push_back({cell(entry->name), cell(entry->summary), "", "yes"});
  }
  for (const auto* entry : log::bundled_logs()) {
    rows.push_back({cell(entry->name) + " (log)", cell(entry->summary), "",
                    "--log-format " + cell(entry->name)});
  }
  return rows;
}

Rows generators() {
  Rows rows{{"kind", "what it makes"}};
  for (const auto& kind : trace::generate_kinds())
    rows.push_back({cell(kind.name), cell(kind.summary)});
  return rows;
}

/// Lists the managers of a shared object. A child process loads it, since that may do harm.
Result<Rows> managers_in(const std::string& file) {
  constexpr std::chrono::seconds kDeadline{60};  // as --deadline has it where it is not given
  constexpr char kPart = '\1', kRow = '\2';
  const auto end = plugin::run_in_child(kDeadline, [&] {
    const auto all = plugin::managers_of(file);
    if (!all) return "E" + all.error().message;
    std::string bytes = "M";
    for (const auto& one : *all)
      bytes += one.name + kPart + one.summary + kPart + one.options + kRow;
    return bytes;
  });
  if (!end) return end.error();
  const bool answered = end->kind == plugin::ChildEnd::Kind::answered;
  if (!answered || end->bytes[0] == 'E') {
    return fail(Errc::usage, "list managers {}: {}", file,
                answered ? end->bytes.substr(1) : plugin::describe(*end, kDeadline));
  }
  Rows rows{{"manager", "what it is", "options"}};
  std::string_view rest = std::string_view(end->bytes).substr(1);
  while (!rest.empty()) {
    rows.emplace_back();
    for (const char stop : {kPart, kPart, kRow}) {
      const auto at = rest.find(stop);
      rows.back().push_back(cell(rest.substr(0, at)));
      rest.remove_prefix(at + 1);
    }
  }
  return rows;
}

constexpr Listing kListings[] = {{"managers", managers, 3, nullptr},
                                 {"adaptors", adaptors, 4, nullptr},
                                 {"devices", devices, 4, nullptr},
                                 {"formats", formats, 4, nullptr},
                                 {"generators", generators, 4, nullptr}};

/// These, and what the wings list.
std::vector<const Listing*> listings() {
  std::vector<const Listing*> all;
  for (const auto& listing : kListings) all.push_back(&listing);
  for (const auto* listing : listings_of_wings()) all.push_back(listing);
  return all;
}

std::vector<std::string> listing_names() {
  std::vector<std::string> names;
  for (const auto* listing : listings()) names.emplace_back(listing->name);
  return names;
}

/// The rows as JSON objects, with the words of the heading as keys.
std::string rows_to_json(std::string_view what, const Rows& rows) {
  format::JsonAnswer json("emmctl.list/1", 2);
  json.member("what", what).key("rows").begin_array();
  for (std::size_t row = 1; row < rows.size(); ++row) {
    json.begin_object();
    for (std::size_t i = 0; i < rows[row].size(); ++i) {
      auto key = rows[0][i];
      std::replace(key.begin(), key.end(), ' ', '_');
      json.member(key, rows[row][i]);
    }
    json.end_object();
  }
  json.end_array();
  return json.finish();
}

class List final : public CommandRun {
 public:
  explicit List(Arguments& arguments) {
    arguments.positional("WHAT", what_, text::join(listing_names(), ", "));
    arguments.input(
        "FILE", file_,
        "With managers: the shared object whose managers are listed, as --manager takes it", false);
    arguments.under(OptionHeading::shown)
        .flag("--more", more_, "With clauses: list each clause, not the groups");
    arguments.output("--json", json_, "Writes the rows as JSON (emmctl.list/1)");
  }

  Result<ExitCode> run(Console& console) override {
    for (const auto* found : listings()) {
      const auto& listing = *found;
      if (listing.name != what_) continue;
      if (!file_.empty() && what_ != "managers")
        return fail(Errc::usage, "list {}: it takes no file", what_);
      auto of_file = file_.empty() ? Result<Rows>(listing.rows()) : managers_in(file_);
      if (!of_file) return std::move(of_file).error();
      auto& rows = *of_file;
      if (auto written = console.write_if(json_, [&] { return rows_to_json(what_, rows); });
          !written)
        return written.error();
      for (auto& row : rows) row.resize(std::min(row.size(), listing.shown));
      const bool is_brief = listing.brief != nullptr && !more_;
      if (is_brief) rows = listing.brief();
      if (json_ != "-")
        console.result(format::columns(std::string(rows.front().size(), 'l'), rows, ""));
      if (is_brief && json_ != "-")
        console.result("--more lists each clause, and those that nobody is asked.\n");
      return ExitCode::fine;
    }
    return fail(Errc::usage, "list {}: expected one of {}", what_, text::join(listing_names()));
  }

 private:
  std::string what_, file_, json_;
  bool more_ = false;
};

}  // namespace

extern constinit const Command list_command{
    "list",
    "List managers, adaptors, devices, formats and others",
    false,
    make_run<List>,
    Heading::about,
    {{{"emmctl list managers", "Lists the bundled managers with their options."},
      {"emmctl list formats --json -", "Lists the formats, as JSON."}}}};

}  // namespace emm
