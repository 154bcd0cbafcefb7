#include "trial/sweep/folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/run_files.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/csv_line.hpp"
#include "format/file_bytes.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"
#include "format/whole_file.hpp"

namespace emm::sweep {
namespace {

namespace fs = std::filesystem;

/// Names the scope of process ids. Containers of one machine may share a host name while each has
/// ids of its own.
std::string host() {
  char name[256]{}, space[64]{};
  std::string out = gethostname(name, sizeof name - 1) == 0 ? name : "host";
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) <= 0) return out;
  const std::string_view number = space;  // "pid:[4026531836]"
  const auto from = number.find('['), to = number.find(']');
  return from == std::string_view::npos || to == std::string_view::npos
             ? out
             : text::format("{}-{}", out, number.substr(from + 1, to - from - 1));
}

// The first line of sweep.jsonl begins so.
constexpr std::string_view kPlan = R"({"format":"emmctl-sweep")";
constexpr std::string_view kWho = "the sweep's";

Status write_whole(const std::string& path, std::string_view text) {
  return format::write_whole(path, text, kWho);
}

/// Calls `each` with the path of each entry of a folder, as far as the system lists them.
template <class Each>
void for_each_entry(const std::string& folder, Each each) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) each(entry->path());
}

/// Did the manager serve every request? "true" or "false", as `tune` says it; empty if not known.
std::string served(const format::JsonValue& json);

/// Returns a figure of a command's JSON: a member at its top, or of its first manager or ranking.
std::string figure(const format::JsonValue& json, std::string_view name) {
  const auto* value = json.find(name);
  if (name == "served") return served(json);
  for (const std::string_view list : {"managers", "ranking"}) {
    if (value != nullptr) break;
    const auto* rows = json.find(list);
    if (rows != nullptr && !rows->elements.empty()) value = rows->elements.front().find(name);
  }
  if (value == nullptr) return {};
  if (const auto* median = value->find("median")) value = median;
  if (const auto number = value->as_u64()) return text::format("{}", *number);
  if (const auto number = value->as_double()) return text::format("{}", *number);
  if (const auto yes = value->as_bool()) return *yes ? "true" : "false";
  return std::string(value->as_string().value_or(""));
}

// The columns of the table behind those of the matrix: what any of the commands answers.
constexpr std::string_view kFigures[] = {
    "peak_live_bytes", "peak_reserved_bytes", "capacity_bytes", "fit_bytes", "failures", "hazards",
    "leaked",          "ns_per_event",        "events",         "served"};

}  // namespace

namespace {

/// Returns what the command of a cell wrote, or nothing if it cannot be read.
std::optional<format::JsonValue> answer_of(const Folder& folder, const Cell& cell) {
  const auto text = format::file_bytes(folder.cell_path(cell.id), nullptr);
  if (!text) return std::nullopt;
  auto value = format::parse_json(*text, cell.id);
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

}  // namespace

bool Folder::is_one(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path + "/sweep.jsonl", error);
}

constexpr std::string_view kParts[] = {"/cells", "/failed", "/batches", "/logs", "/times"};

Status Folder::make() const {
  for (const auto part : kParts) {
    std::error_code error;
    fs::create_directories(path_ + std::string(part), error);
    if (error) return fail(Errc::io_error, "cannot make {}{}: {}", path_, part, error.message());
  }
  return {};
}

Status Folder::reserve() const {
  const auto path = path_ + "/sweep.jsonl";
  std::ifstream plan(path, std::ios::binary);
  std::string begin(kPlan.size(), '\0');
  plan.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (plan.gcount() != 0 && begin != kPlan)
    return fail(Errc::usage, "{} is there and is no plan of a sweep: expected another folder",
                path);
  if (auto apart = run_files::reserve(path, kWho); !apart) return apart;
  for (const auto part : kParts) {
    if (auto apart = run_files::reserve_folder(path_ + std::string(part), kWho, true); !apart)
      return apart;
  }
  return {};
}

Status Folder::write_plan(const std::string& command, const std::vector<Cell>& cells) const {
  std::string out;
  format::JsonWriter(out)
      .begin_object()
      .member("format", "emmctl-sweep")
      .member("version", "1.0")
      .member("command", command)
      .member("cells", std::uint64_t{cells.size()})
      .end_object();
  out += '\n';
  for (const auto& cell : cells) {
    format::JsonWriter json(out);
    json.begin_object().member("cell", cell.id).member("trace", cell.trace);
    json.member("manager", cell.manager).member("setting", cell.setting);
    json.member("capacity", cell.capacity).member("device", cell.device);
    json.member("stamp", cell.stamp).member("command", cell.command).end_object();
    out += '\n';
  }
  return write_whole(path_ + "/sweep.jsonl", out);
}

Result<std::vector<Cell>> Folder::read_plan() const {
  const auto path = path_ + "/sweep.jsonl";
  if (!is_one(path_)) return fail(Errc::usage, "{}: expected the folder of a sweep", path_);
  const auto text = format::file_bytes(path, nullptr);
  if (!text) return text.error();
  std::vector<Cell> cells;
  std::uint64_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const auto end = rest.find('\n');
    const auto line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (++number == 1) continue;
    const auto json = format::parse_json(line, path, number);
    if (!json) return json.error();
    Cell cell{.id = text_of(*json, "cell"),
              .trace = text_of(*json, "trace"),
              .manager = text_of(*json, "manager"),
              .setting = text_of(*json, "setting"),
              .capacity = text_of(*json, "capacity"),
              .device = text_of(*json, "device"),
              .command = {}};
    if (const auto* words = json->find("command")) {
      for (const auto& word : words->elements)
        cell.command.emplace_back(word.as_string().value_or(""));
    }
    cell.stamp = text_of(*json, "stamp");
    if (cell.id != id_of(cell.command, cell.stamp))
      return fail(Errc::parse_error, "{}:{}: expected a cell with its command", path, number);
    cells.push_back(std::move(cell));
  }
  return cells;
}

std::map<std::string, Attempts> Folder::attempts() const {
  std::map<std::string, Attempts> out;
  for_each_entry(path_ + "/cells", [&](const fs::path& path) {
    const auto name = path.filename().string();
    if (name.ends_with(".json") && !name.starts_with('.'))
      out[name.substr(0, name.size() - 5)].done = true;
  });
  for_each_entry(path_ + "/failed", [&](const fs::path& path) {
    const auto name = path.filename().string();
    if (name.ends_with(".txt") && !name.starts_with('.'))
      ++out[name.substr(0, name.find('.'))].failed;
  });
  return out;
}

std::string Folder::temporary_path(const std::string& id) const {
  return text::format("{}/cells/.{}.{}.{}.tmp", path_, id, host(), getpid());
}

bool Folder::is_done(const std::string& id) const {
  std::error_code error;
  return fs::is_regular_file(cell_path(id), error);
}

Status Folder::add_failure(const std::string& id, const std::string& words) const {
  for (std::uint64_t attempt = 1;; ++attempt) {
    const auto path = text::format("{}/failed/{}.{}.txt", path_, id, attempt);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return fail(Errc::io_error, "cannot write {}", path);
    const auto written = ::write(file, words.data(), words.size());
    if (close(file) != 0 || written != static_cast<ssize_t>(words.size()))
      return fail(Errc::io_error, "cannot write {}", path);
    return {};
  }
}

void Folder::add_time(const std::string& id, double seconds) const {
  const auto path = text::format("{}/times/{}.{}.txt", path_, host(), getpid());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  const auto line = text::format("{} {}\n", id, text::fixed(seconds, 3));
  [[maybe_unused]] const auto written = ::write(file, line.data(), line.size());
  close(file);
}

std::map<std::string, double> Folder::times() const {
  std::map<std::string, double> out;
  for_each_entry(path_ + "/times", [&](const fs::path& path) {
    std::ifstream file(path);
    std::string id;
    for (double seconds = 0; file >> id >> seconds;) out[id] = seconds;
  });
  return out;
}

void Folder::remove_answer(const std::string& id) const {
  std::error_code error;
  fs::remove(cell_path(id), error);
}

std::string Folder::last_failure(const std::string& id) const {
  std::string last;
  for (std::uint64_t attempt = 1;; ++attempt) {
    std::ifstream file(text::format("{}/failed/{}.{}.txt", path_, id, attempt));
    if (!file) return last;
    std::getline(file, last);
  }
}

void Folder::remove_leftovers() const {
  const auto own = text::format(".{}.", host());
  for_each_entry(path_ + "/cells", [&](const fs::path& path) {
    const auto name = path.filename().string();
    const auto at = name.find(own);
    if (!name.starts_with('.') || at == std::string::npos) return;
    const auto from = at + own.size();
    const auto pid = text::to_u64(std::string_view(name).substr(from, name.find('.', from) - from));
    if (!pid || kill(static_cast<pid_t>(*pid), 0) == 0 || errno != ESRCH) return;
    std::error_code error;
    fs::remove_all(path, error);
  });
}

Result<std::string> Folder::add_batch(const std::vector<std::vector<std::string>>& parts) const {
  std::string text;
  for (const auto& part : parts) text += text::join(part, " ") + '\n';
  // O_EXCL gives whoever submits at the same time another name.
  for (std::uint64_t number = 1;; ++number) {
    const auto name = text::format("{}", number);
    const auto path = batch_path(name) + ".txt";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return fail(Errc::io_error, "cannot write {}", path);
    close(file);
    if (auto written = write_whole(path, text); !written) return written.error();
    return name;
  }
}

Status Folder::set_job(const std::string& batch, const std::string& job) const {
  return write_whole(batch_path(batch) + ".job", job + '\n');
}

std::vector<Batch> Folder::batches() const {
  std::vector<Batch> out;
  for (std::uint64_t number = 1;; ++number) {
    const auto name = text::format("{}", number);
    std::ifstream file(batch_path(name) + ".txt");
    if (!file) return out;
    Batch batch{.name = name, .job = {}, .parts = {}};
    for (std::string line; std::getline(file, line);) {
      auto& part = batch.parts.emplace_back();
      for (std::size_t at = 0; at < line.size();) {
        const auto end = std::min(line.find(' ', at), line.size());
        if (end > at) part.push_back(line.substr(at, end - at));
        at = end + 1;
      }
    }
    std::ifstream job(batch_path(name) + ".job");
    std::getline(job, batch.job);
    out.push_back(std::move(batch));
  }
}

std::vector<Cell> pending(const std::vector<Cell>& cells,
                          const std::map<std::string, Attempts>& attempts, std::uint64_t tries) {
  std::vector<Cell> out;
  for (const auto& cell : cells) {
    const auto found = attempts.find(cell.id);
    if (found != attempts.end() && (found->second.done || found->second.failed >= tries)) continue;
    out.push_back(cell);
  }
  return out;
}

Progress progress_of(const Folder& folder, const std::vector<Cell>& cells, std::uint64_t tries,
                     const std::vector<std::string>& running) {
  const auto attempts = folder.attempts();
  Progress progress;
  progress.cells = cells.size();
  for (const auto& cell : cells) {
    const auto found = attempts.find(cell.id);
    if (found != attempts.end() && found->second.done) {
      ++progress.done;
    } else if (std::binary_search(running.begin(), running.end(), cell.id)) {
      ++progress.running;
    } else if (found != attempts.end() && found->second.failed >= tries) {
      ++progress.failed;
      progress.failures.emplace_back(cell, folder.last_failure(cell.id));
    }
  }
  return progress;
}

namespace {

/// The figures of each cell that is done, as far as they are shown.
struct Results {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t not_served = 0, left = 0;
};
Results results_of(const Folder& folder, const std::vector<Cell>& cells) {
  constexpr std::size_t kShown = 20;  // rows
  Results all;
  all.rows = {{"trace", "manager", "setting", "capacity", "device", "reserved", "fits", "served"}};
  for (const auto& cell : cells) {
    const auto json = folder.is_done(cell.id) ? answer_of(folder, cell) : std::nullopt;
    if (!json) continue;
    const auto bytes = [&](std::string_view name) {
      const auto value = text::to_u64(figure(*json, name));
      return value ? units::bytes(*value) : std::string("-");
    };
    const auto yes = figure(*json, "served");
    if (yes == "false") ++all.not_served;
    if (all.rows.size() > kShown) {
      ++all.left;
      continue;
    }
    const auto failures = figure(*json, "failures");
    const auto fits = bytes("capacity_bytes");
    all.rows.push_back({text::printable(cell.trace, 40), text::printable(cell.manager, 40),
                        text::printable(cell.setting, 40), cell.capacity,
                        text::printable(cell.device, 40), bytes("peak_reserved_bytes"),
                        fits == "-" ? bytes("fit_bytes") : fits,
                        yes == "true"                         ? "yes"
                        : yes.empty()                         ? "-"
                        : failures.empty() || failures == "0" ? "no"
                                                              : failures + " failed"});
  }
  return all;
}

}  // namespace

std::string to_text(const Progress& progress, const Folder& folder,
                    const std::vector<Cell>& cells) {
  const auto results = results_of(folder, cells);
  auto out =
      text::format("{}: {} cells: {} done{}, {} without an answer, {} on the cluster, {} to do\n",
                   text::printable(folder.path(), 200), text::grouped(progress.cells),
                   text::grouped(progress.done),
                   results.not_served == 0 ? std::string()
                                           : text::format(", {} of them with requests that failed",
                                                          text::grouped(results.not_served)),
                   text::grouped(progress.failed), text::grouped(progress.running),
                   text::grouped(progress.waiting()));
  // One mistake often fails many cells, so failures are grouped by their words.
  std::vector<std::pair<std::string, std::vector<const Cell*>>> by_words;
  for (const auto& failure : progress.failures) {
    const auto& cell = failure.first;
    const auto& words = failure.second;
    const auto same = std::find_if(by_words.begin(), by_words.end(),
                                   [&](const auto& each) { return each.first == words; });
    if (same != by_words.end()) {
      same->second.push_back(&cell);
    } else {
      by_words.push_back({words, {&cell}});
    }
  }
  constexpr std::size_t kShown = 10, kCellsShown = 3;  // failures, and cells of each
  for (std::size_t i = 0; i < std::min(kShown, by_words.size()); ++i) {
    const auto& [words, failed] = by_words[i];
    out += text::format("  {} failed: {}\n", text::grouped(failed.size()),
                        text::printable(words, 300));
    for (std::size_t k = 0; k < std::min(kCellsShown, failed.size()); ++k) {
      out += text::format("    {} emmctl", failed[k]->id);
      for (const auto& word : failed[k]->command) out += ' ' + text::shell_word(word);
      out += '\n';
    }
    if (failed.size() > kCellsShown)
      out += text::format("    and {} more\n", text::grouped(failed.size() - kCellsShown));
  }
  if (by_words.size() > kShown)
    out += text::format("  and {} other failures\n", text::grouped(by_words.size() - kShown));
  if (results.rows.size() > 1) out += '\n' + format::filled_columns("llllrrrl", results.rows);
  if (results.left != 0)
    out += text::format("  ... and {} more, which --csv writes\n", text::grouped(results.left));
  return out;
}

std::string to_json(const Progress& progress, const std::string& folder) {
  format::JsonAnswer json("emmctl.sweep/1", 2);
  json.member("folder", folder).member("cells", progress.cells).member("done", progress.done);
  json.member("failed", progress.failed).member("running", progress.running);
  json.member("waiting", progress.waiting());
  json.objects("failures", progress.failures, [&](const auto& failure) {
    const auto& [cell, words] = failure;
    json.member("cell", cell.id).member("command", text::join(cell.command, " "));
    json.member("words", words);
  });
  return json.finish();
}

namespace {

std::string served(const format::JsonValue& json) {
  const auto yes = [](bool all) { return std::string(all ? "true" : "false"); };
  if (const auto* ranking = json.find("ranking"); ranking && !ranking->elements.empty()) {
    const auto* value = ranking->elements.front().find("served");
    const auto all = value ? value->as_bool() : std::nullopt;
    return all ? yes(*all) : std::string();
  }
  if (const auto* capacity = json.find("capacity_bytes"))
    return yes(capacity->as_u64().has_value());
  const auto failures = text::to_u64(figure(json, "failures"));
  if (!failures) return {};
  const auto* outcomes = json.find("outcomes");
  return yes(*failures == 0 && (outcomes == nullptr || count_of(*outcomes, "fails_fails") == 0));
}

}  // namespace

std::string csv_header() {
  std::string out = "cell,state,trace,manager,setting,capacity,device,command";
  for (const auto name : kFigures) {
    out += ',';
    out += name;
  }
  return out + '\n';
}

std::string csv_rows(const Folder& folder, const std::vector<Cell>& cells, std::uint64_t tries) {
  std::string out;
  const auto attempts = folder.attempts();
  for (const auto& cell : cells) {
    const auto found = attempts.find(cell.id);
    const bool done = found != attempts.end() && found->second.done;
    const bool failed = !done && found != attempts.end() && found->second.failed >= tries;
    out += text::format("{},{},{},{},{},{},{},{}", cell.id,
                        done     ? "done"
                        : failed ? "failed"
                                 : "to do",
                        format::csv_field(cell.trace), format::csv_field(cell.manager),
                        format::csv_field(cell.setting), format::csv_field(cell.capacity),
                        format::csv_field(cell.device), format::csv_field(cell.command.front()));
    const auto json = done ? answer_of(folder, cell) : std::nullopt;
    for (const auto name : kFigures) {
      out += ',';
      if (json) out += format::csv_field(figure(*json, name));
    }
    out += '\n';
  }
  return out;
}

std::string to_page(const Folder& folder, const std::vector<Cell>& cells) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("schema", "emmctl.sweep/1").member("folder", folder.path());
  json.objects("cells", cells, [&](const Cell& cell) {
    json.member("trace", cell.trace).member("manager", cell.manager);
    json.member("setting", cell.setting).member("capacity", cell.capacity);
    json.member("device", cell.device);
    const auto answer = folder.is_done(cell.id) ? answer_of(folder, cell) : std::nullopt;
    json.member("done", answer.has_value());
    for (const auto name : kFigures) {
      const auto value = answer ? figure(*answer, name) : std::string();
      if (const auto number = text::to_u64(value)) json.member(name, *number);
    }
  });
  json.end_object();
  return out;
}

}  // namespace emm::sweep
