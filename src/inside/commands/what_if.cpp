#include "commands/what_if.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "commands/named_ranks.hpp"
#include "commands/program_runs.hpp"
#include "commands/simulated_program.hpp"
#include "commands/swept_values.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "format/columns.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"

namespace emm::cli {
namespace {

constexpr std::size_t kWordsMost = 200;  // of what is shown of a program's own words

/// What one run came to.
struct Cell {
  std::vector<Setting> settings;
  std::string device;
  Outcome outcome = Outcome::not_run;
  int exit_code = 0;
  std::uint64_t refused = 0, peak = 0, capacity = 0;
  bool counts_libraries = false;  // what they take is in the peak
  int devices = 1;
  std::optional<std::uint64_t> rank{};        // the tightest
  std::uint64_t reserved = 0, allocated = 0;  // PyTorch's; 0: it has none
  std::string why{};                          // of a run that failed for another reason
};

/// One combination of the values that are no range, with the range if there is one.
struct Search {
  std::vector<Setting> settings;
  std::optional<LargestThatFits> range{};
  bool is_running = false;
  std::vector<std::size_t> cells{};  // into the list of all, in the order of the runs
};

/// The last line that the program itself said on stderr; empty if it said nothing.
std::string last_words(const std::string& errors) {
  std::string_view last;
  for (std::size_t begin = 0; begin < errors.size();) {
    const auto end = std::min(errors.find('\n', begin), errors.size());
    const auto line = std::string_view(errors).substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.front() != ' ' && !line.starts_with("emmctl: ")) last = line;
  }
  return text::printable(last, kWordsMost);
}

/// Did the program say that it was out of a device's memory, of which it had a limit of its own?
bool says_out_of_memory(const std::string& errors) {
  const auto words = text::lower(errors);
  for (const std::string_view one :
       {"cuda out of memory", "torch.outofmemoryerror", "cuda_error_out_of_memory",
        "cudaerrormemoryallocation", "cupy.cuda.memory.outofmemoryerror"}) {
    if (words.find(one) != words.npos) return true;
  }
  return false;
}

/// Takes what a run of `emmctl run --json` left.
void take_answer(Cell& cell, const EndedRun& run) {
  cell.exit_code = run.code;
  auto answer = format::parse_json(run.json);
  if (!answer || run.json.empty()) {
    cell.outcome = Outcome::failed;
    constexpr std::string_view kOurs = "emmctl: ";
    auto words = text::trim(run.errors);
    if (words.starts_with(kOurs)) words.remove_prefix(kOurs.size());
    cell.why = text::printable(words, kWordsMost);
    return;
  }
  if (const auto* const code = answer->find("exit_code"))
    cell.exit_code = static_cast<int>(code->as_i64().value_or(run.code));
  if (const auto* const devices = answer->find("devices")) {
    for (const auto& device : devices->elements) {
      cell.refused += format::count_of(device, "refused");
      cell.peak = std::max(cell.peak, format::count_of(device, "peak_bytes"));
      const auto* const libraries = device.find("libraries_bytes");
      cell.counts_libraries = libraries != nullptr && libraries->as_u64();
    }
  }
  if (const auto* const ranks = answer->find("ranks"); ranks && !ranks->elements.empty()) {
    const auto& first = ranks->elements.front();
    cell.rank = format::count_of(first, "rank");
    cell.peak = format::count_of(first, "peak_bytes");
    for (const auto& rank : ranks->elements) {
      cell.reserved = std::max(cell.reserved, format::count_of(rank, "pytorch_reserved_bytes"));
      cell.allocated = std::max(cell.allocated, format::count_of(rank, "pytorch_allocated_bytes"));
    }
  } else if (const auto* const peaks = answer->find("pytorch")) {
    for (const auto& peak : peaks->elements) {
      cell.reserved = std::max(cell.reserved, format::count_of(peak, "reserved_bytes"));
      cell.allocated = std::max(cell.allocated, format::count_of(peak, "allocated_bytes"));
    }
  }
  const auto* const fits = answer->find("fits");
  const auto known = fits != nullptr ? fits->as_bool() : std::nullopt;
  const bool is_cut = !format::text_of(*answer, "cut").empty();
  if (cell.exit_code != 0 && (cell.refused != 0 || says_out_of_memory(run.errors))) {
    cell.outcome = Outcome::too_small;
  } else if (is_cut || (cell.exit_code == 0 && !known)) {
    cell.outcome = Outcome::unknown;
  } else if (cell.exit_code == 0) {
    cell.outcome = *known ? Outcome::fits : Outcome::tight;
  } else {
    cell.outcome = Outcome::failed;
  }
  if (cell.outcome != Outcome::failed && cell.outcome != Outcome::unknown) return;
  cell.why = text::printable(format::text_of(*answer, "cut"), kWordsMost);
  if (cell.why.empty())
    cell.why = cell.outcome == Outcome::failed ? last_words(run.errors)
               : cell.peak == 0                ? "it used no device that emmctl sees"
                                               : "its processes took more than there is, together";
}

class Sweeping {
 public:
  Sweeping(Console& console, const WhatIf& asked) : console_(console), asked_(asked) {}

  Status plan();
  Status run();
  ExitCode say();
  std::string to_json() const;

 private:
  Result<Cell> cell_of(const std::vector<Setting>& settings) const;
  Status begin(ProgramRuns& runs, std::size_t search);
  std::optional<std::vector<Setting>> next_of(const Search& search) const;
  void tell(std::size_t cell, const EndedRun& run);
  std::string table_of_cells() const;
  std::string table_of_ranges() const;
  void say_least_card() const;
  void say_ranges() const;
  /// Says what follows where so little is left that what does not count decides.
  void say_doubt(std::string_view of_it) const;
  void say_failures() const;
  std::string words_of_cell(const Cell& cell) const;
  void print(std::string_view words) const { console_.result(format::wrapped(words, kWidth)); }
  /// The names that make a card, in their order, and those of the program.
  std::vector<Setting> of_device(const std::vector<Setting>& settings, bool is) const;
  const Cell* cell_at(const Search& search, std::uint64_t number) const;

  static constexpr std::size_t kWidth = 80;  // columns of prose

  Console& console_;
  const WhatIf& asked_;
  std::vector<Swept> swept_;
  const Swept* range_ = nullptr;
  std::vector<Search> searches_;
  std::vector<Cell> cells_;
  std::vector<std::size_t> search_of_;  // of each cell
  std::set<std::string> own_ports_;     // variables that the user has set
};

Status Sweeping::plan() {
  for (const auto* name : {"PET_MASTER_PORT", "MASTER_PORT"}) {
    if (std::getenv(name) != nullptr) own_ports_.insert(name);
  }
  std::string program;
  for (const auto& word : asked_.program) program += word + '\n';
  for (const auto& given : asked_.sweeps) {
    auto one = Swept::parse(given);
    if (!one) return std::move(one).error();
    for (const auto& known : swept_) {
      if (known.name == one->name)
        return fail(Errc::usage, "--sweep {}: {} is swept already", given, one->name);
      if (known.is_range() && one->is_range())
        return fail(Errc::usage, "--sweep {}: expected one range; {} is another", given,
                    known.name);
    }
    const auto place = '{' + one->name + '}';
    if (!one->is_of_device() && program.find(place) == program.npos) {
      return fail(Errc::usage,
                  "--sweep {}: expected {} in the program's command line, or an option of the "
                  "device: gpu, profile, capacity, devices",
                  given, place);
    }
    swept_.push_back(*std::move(one));
  }
  for (const auto& swept : swept_) {
    if (swept.is_range()) range_ = &swept;
  }
  for (auto& settings : combinations(swept_)) {
    if (auto known = cell_of(settings); !known) return known.error();
    Search search{.settings = std::move(settings)};
    if (range_ != nullptr) search.range.emplace(range_->least, range_->most);
    searches_.push_back(std::move(search));
  }
  return {};
}

std::vector<Setting> Sweeping::of_device(const std::vector<Setting>& settings, bool is) const {
  std::vector<Setting> found;
  for (const auto& setting : settings) {
    const auto swept = std::find_if(swept_.begin(), swept_.end(),
                                    [&](const Swept& one) { return one.name == setting.first; });
    if (swept->is_of_device() == is) found.push_back(setting);
  }
  return found;
}

/// What a run with these values would be. Error: usage, of a device that there cannot be.
Result<Cell> Sweeping::cell_of(const std::vector<Setting>& settings) const {
  Cell cell{.settings = settings, .device = asked_.device};
  for (const auto& [name, value] : of_device(settings, true)) {
    cell.device += cell.device == "sim" ? ':' : ',';
    cell.device += name + '=' + value;
  }
  auto platform = open_platform(cell.device, {});
  if (!platform) return std::move(platform).error();
  const auto opened = (*platform)->open(0);
  if (!opened) return opened.error();
  const auto memory = opened->driver->mem_get_info();
  if (!memory) return memory.error();
  cell.capacity = memory->free;
  cell.devices = (*platform)->device_count();
  return cell;
}

std::optional<std::vector<Setting>> Sweeping::next_of(const Search& search) const {
  if (search.is_running) return std::nullopt;
  if (!search.range) return search.cells.empty() ? std::optional(search.settings) : std::nullopt;
  const auto number = search.range->next();
  if (!number) return std::nullopt;
  auto settings = search.settings;
  settings.emplace_back(range_->name, text::format("{}", *number));
  return settings;
}

Status Sweeping::begin(ProgramRuns& runs, std::size_t search) {
  auto& its = searches_[search];
  auto cell = cell_of(*next_of(its));
  if (!cell) return std::move(cell).error();
  const auto number = cells_.size();
  // Runs beside one another: torchrun, and what starts ranks by itself, else take one port.
  for (const auto* name : {"PET_MASTER_PORT", "MASTER_PORT"}) {
    if (own_ports_.count(name) != 0) continue;
    if (const auto port = free_port()) setenv(name, text::format("{}", *port).c_str(), 1);
  }
  std::vector<std::string> command{console_.program(), "run", "--device", cell->device};
  command.insert(command.end(), asked_.options.begin(), asked_.options.end());
  command.insert(command.end(), {"--json", runs.answer_of(number), "--"});
  for (const auto& word : asked_.program) command.push_back(with_values(word, cell->settings));
  if (auto begun = runs.begin(number, command); !begun) return begun;
  cells_.push_back(*std::move(cell));
  search_of_.push_back(search);
  its.cells.push_back(number);
  its.is_running = true;
  return {};
}

void Sweeping::tell(std::size_t number, const EndedRun& run) {
  auto& cell = cells_[number];
  auto& search = searches_[search_of_[number]];
  search.is_running = false;
  take_answer(cell, run);
  if (search.range)
    search.range->tell(*text::to_u64(cell.settings.back().second), cell.outcome, cell.peak,
                       cell.capacity);
}

Status Sweeping::run() {
  handle_interrupts();
  const auto processors = std::max(1U, std::thread::hardware_concurrency());
  auto runs = ProgramRuns::make(asked_.jobs.value_or(processors));
  if (!runs) return std::move(runs).error();
  for (std::size_t done = 0; !interrupted();) {
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      if (!next_of(searches_[i])) continue;
      if (!runs->has_room()) break;
      if (auto begun = begin(*runs, i); !begun) return begun;
    }
    if (runs->is_idle()) break;
    if (range_ != nullptr) {
      console_.step(
          text::format("{} runs done; {}", done, words_of_settings(cells_.back().settings)));
    } else {
      console_.progress("runs", done, searches_.size());
    }
    for (const auto& [number, run] : runs->ended()) {
      if (interrupted()) break;  // it may have ended because of that
      ++done;
      tell(number, run);
    }
  }
  if (interrupted()) end_in_own_time();
  runs->end_all();
  console_.end_progress();
  return {};
}

/// "20.00 GiB of 24.00 GiB, on rank 3"
std::string Sweeping::words_of_cell(const Cell& cell) const {
  return text::format("{} of {}{}", units::bytes(cell.peak), units::bytes(cell.capacity),
                      cell.rank ? text::format(" on rank {}", *cell.rank) : std::string());
}

std::string Sweeping::table_of_cells() const {
  std::vector<std::vector<std::string>> rows(1);
  std::string sides;
  for (const auto& swept : swept_) {
    rows.front().push_back(swept.name);
    sides += 'l';
  }
  const auto has = [&](auto&& what) { return std::any_of(cells_.begin(), cells_.end(), what); };
  const bool has_torch = has([](const Cell& cell) { return cell.reserved != 0; });
  const bool has_ranks = has([](const Cell& cell) { return cell.rank.has_value(); });
  std::vector<std::string> heads{"", "peak"};
  if (has_torch) heads.insert(heads.end(), {"reserved", "allocated"});
  heads.emplace_back("refused");
  if (has_ranks) heads.emplace_back("rank");
  sides += 'l' + std::string(heads.size() - 1, 'r');
  rows.front().insert(rows.front().end(), heads.begin(), heads.end());
  for (const auto& search : searches_) {
    const Cell none{.settings = search.settings, .device = {}};
    const auto& cell = search.cells.empty() ? none : cells_[search.cells.front()];
    std::vector<std::string> row;
    for (const auto& [name, value] : cell.settings) row.push_back(text::printable(value, 12));
    const auto size = [](std::uint64_t bytes) {
      return bytes != 0 ? units::bytes(bytes) : std::string("-");
    };
    row.emplace_back(name_of(cell.outcome));
    row.push_back(size(cell.peak));
    if (has_torch) row.insert(row.end(), {size(cell.reserved), size(cell.allocated)});
    row.push_back(cell.outcome != Outcome::not_run ? text::grouped(cell.refused) : "-");
    if (has_ranks) row.push_back(cell.rank ? text::format("{}", *cell.rank) : "-");
    rows.push_back(std::move(row));
  }
  return format::columns(sides, rows);
}

const Cell* Sweeping::cell_at(const Search& search, std::uint64_t number) const {
  for (const auto cell : search.cells) {
    if (text::to_u64(cells_[cell].settings.back().second) == number) return &cells_[cell];
  }
  return nullptr;
}

std::string Sweeping::table_of_ranges() const {
  std::vector<std::vector<std::string>> rows(1);
  std::string sides;
  for (const auto& swept : swept_) {
    if (swept.is_range()) continue;
    rows.front().push_back(swept.name);
    sides += 'l';
  }
  const bool has_torch = std::any_of(cells_.begin(), cells_.end(),
                                     [](const Cell& cell) { return cell.reserved != 0; });
  const bool has_ranks = std::any_of(cells_.begin(), cells_.end(),
                                     [](const Cell& cell) { return cell.rank.has_value(); });
  for (const auto* head : {"fits", "does not", "peak"}) rows.front().emplace_back(head);
  rows.front()[rows.front().size() - 3] = range_->name + " fits";
  if (has_torch) rows.front().insert(rows.front().end(), {"reserved", "allocated"});
  rows.front().insert(rows.front().end(), {"refused", "runs"});
  if (has_ranks) rows.front().emplace_back("rank");
  sides += std::string(rows.front().size() - sides.size(), 'r');
  for (const auto& search : searches_) {
    std::vector<std::string> row;
    for (const auto& [name, value] : search.settings) row.push_back(text::printable(value, 12));
    const auto largest = search.range->largest(), above = search.range->least_too_large();
    const auto* const cell = largest ? cell_at(search, *largest) : nullptr;
    row.push_back(largest ? text::grouped(*largest) : above ? "none" : "not known");
    row.push_back(above ? text::grouped(*above) : "-");
    const auto size = [&](std::uint64_t Cell::*bytes) {
      return cell != nullptr && cell->*bytes != 0 ? units::bytes(cell->*bytes) : std::string("-");
    };
    row.push_back(size(&Cell::peak));
    if (has_torch) row.insert(row.end(), {size(&Cell::reserved), size(&Cell::allocated)});
    row.push_back(cell != nullptr ? text::format("{}", cell->refused) : "-");
    row.push_back(text::format("{}", search.cells.size()));
    // Where none fits, the one that is refused.
    const auto* const first = cell != nullptr ? cell : above ? cell_at(search, *above) : nullptr;
    if (has_ranks)
      row.push_back(first != nullptr && first->rank ? text::format("{}", *first->rank) : "-");
    rows.push_back(std::move(row));
  }
  return format::columns(sides, rows);
}

/// Is the one on less memory, and as much on fewer devices?
bool is_less(const Cell& one, const Cell* other) {
  return other == nullptr ||
         std::pair(one.capacity, one.devices) < std::pair(other->capacity, other->devices);
}

/// Does what libraries take, which does not count, decide whether it fits?
bool is_scarce(const Cell& cell) {
  const auto left = cell.capacity - std::min(cell.capacity, cell.peak);
  return !cell.counts_libraries && SimulatedProgram::is_scarce(left, cell.capacity);
}

void Sweeping::say_doubt(std::string_view of_it) const {
  print(
      text::format("A card's libraries and kernels take some hundred MiB besides, which are not "
                   "counted: there, {}.",
                   of_it));
}

/// Names the least card on which the program fits, for each program that was swept.
void Sweeping::say_least_card() const {
  std::vector<std::vector<Setting>> programs;
  for (const auto& search : searches_) {
    auto program = of_device(search.settings, false);
    if (std::find(programs.begin(), programs.end(), program) == programs.end())
      programs.push_back(std::move(program));
  }
  for (const auto& program : programs) {
    const Cell *least = nullptr, *tight = nullptr;
    std::size_t judged = 0, of_it = 0;
    for (const auto& cell : cells_) {
      if (of_device(cell.settings, false) != program) continue;
      ++of_it;
      judged += passes(cell.outcome) || cell.outcome == Outcome::too_small ? 1 : 0;
      if (cell.outcome == Outcome::fits && is_less(cell, least)) least = &cell;
      if (cell.outcome == Outcome::tight && is_less(cell, tight)) tight = &cell;
    }
    if (of_it == 0) continue;
    const auto which = program.empty() ? std::string() : words_of_settings(program) + ": ";
    const auto card = [&](const Cell& cell) {
      const auto words = words_of_settings(of_device(cell.settings, true));
      return words.empty() ? asked_.device : words;
    };
    if (least != nullptr) {
      print(text::format("{}the least on which {} is {}: at most {}", which,
                         least->rank ? "all ranks fit" : "it fits", card(*least),
                         words_of_cell(*least)));
      if (is_scarce(*least)) say_doubt("it may not fit");
    } else if (tight == nullptr && judged != 0) {
      print(text::format("{}it fits on none of {}", which, judged));
    }
    if (tight != nullptr && is_less(*tight, least))
      print(text::format("{}on {} it was refused {} {}, and ended well all the same", which,
                         card(*tight), text::grouped(tight->refused),
                         tight->refused == 1 ? "request" : "requests"));
  }
}

void Sweeping::say_ranges() const {
  bool has_scarce = false, has_tight = false;
  for (const auto& search : searches_) {
    const auto& range = *search.range;
    const auto* const cell = range.largest() ? cell_at(search, *range.largest()) : nullptr;
    has_scarce = has_scarce || (cell != nullptr && range.least_too_large() && is_scarce(*cell));
    has_tight = has_tight || (cell != nullptr && cell->outcome == Outcome::tight);
    const auto where =
        search.settings.empty() ? std::string() : words_of_settings(search.settings) + ": ";
    if (const auto both = range.not_monotone()) {
      print(
          text::format("{}{}={} fits, and {}={} does not, which is less: the outcome is not "
                       "monotone, and what lies between was not all tried",
                       where, range_->name, both->second, range_->name, both->first));
    }
    if (range.largest() == range_->most && !range.not_monotone())
      print(text::format("{}{}={} is the end of the range, and fits", where, range_->name,
                         range_->most));
  }
  if (has_scarce) say_doubt("the largest that fits can be less");
  if (has_tight) {
    print(
        "Where `refused` is not 0, the program was refused memory, gave idle memory back and went "
        "on. On a card, whose addresses leave other gaps, it may fail.");
  }
}

/// The runs that tell nothing of memory, and why; each reason once.
void Sweeping::say_failures() const {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const auto& cell : cells_) {
    if (cell.outcome != Outcome::failed && cell.outcome != Outcome::unknown) continue;
    const auto how =
        cell.outcome == Outcome::failed
            ? text::format("failed with exit code {}, and not for want of memory", cell.exit_code)
            : std::string("ended, and nothing is known of its memory");
    const auto reason = how + (cell.why.empty() ? std::string() : ": " + cell.why);
    auto known = std::find_if(reasons.begin(), reasons.end(),
                              [&](const auto& one) { return one.first == reason; });
    if (known == reasons.end()) known = reasons.insert(reasons.end(), {reason, {}});
    const auto words = words_of_settings(cell.settings);
    known->second.push_back(words.empty() ? cell.device : words);
  }
  for (const auto& [reason, which] : reasons) {
    print(text::format(
        "{}{} {}", which.front(),
        which.size() > 1 ? text::format(" and {} more", which.size() - 1) : std::string(), reason));
  }
}

ExitCode Sweeping::say() {
  bool fits = false, is_whole = true;
  for (const auto& search : searches_) {
    is_whole = is_whole && !next_of(search) && !search.is_running;
    if (!search.range) continue;
    const auto largest = search.range->largest(), above = search.range->least_too_large();
    is_whole = is_whole && (largest ? *largest == range_->most || above == *largest + 1
                                    : above == range_->least);
  }
  for (const auto& cell : cells_) {
    fits = fits || passes(cell.outcome);
    if (range_ == nullptr)
      is_whole = is_whole && (passes(cell.outcome) || cell.outcome == Outcome::too_small);
  }
  if (asked_.json != "-") {
    if (range_ == nullptr) say_least_card();
    console_.result(range_ == nullptr ? table_of_cells() : table_of_ranges());
    if (range_ != nullptr) say_ranges();
    say_failures();
    if (interrupted()) print("interrupted: this is what is known so far");
  }
  if (interrupted()) return static_cast<ExitCode>(128 + interrupting_signal());
  if (!is_whole) return ExitCode::inconclusive;
  return fits ? ExitCode::fine : ExitCode::failure;
}

std::string Sweeping::to_json() const {
  format::JsonAnswer json("emmctl.what-if/1", 2);
  const auto add = [&](const std::vector<Setting>& settings) {
    json.objects("settings", settings, [&](const Setting& setting) {
      json.member("name", setting.first).member("value", setting.second);
    });
  };
  json.member("device", asked_.device).member("interrupted", interrupted().load());
  json.objects("cells", cells_, [&](const auto& cell) {
    add(cell.settings);
    json.member("device", cell.device).member("outcome", name_of(cell.outcome));
    json.member("exit_code", cell.exit_code).member("capacity_bytes", cell.capacity);
    json.member("peak_bytes", cell.peak).member("refused", cell.refused).member("rank", cell.rank);
    json.member("pytorch_reserved_bytes", cell.reserved);
    json.member("pytorch_allocated_bytes", cell.allocated).member("why", cell.why);
  });
  json.key("ranges").begin_array();
  for (const auto& search : searches_) {
    if (!search.range) continue;
    json.begin_object();
    add(search.settings);
    json.member("name", range_->name).member("least", range_->least).member("most", range_->most);
    json.member("largest_that_fits", search.range->largest());
    json.member("least_that_does_not", search.range->least_too_large());
    json.member("monotone", !search.range->not_monotone().has_value()).end_object();
  }
  json.end_array();
  return json.finish();
}

}  // namespace

Result<ExitCode> run_what_if(Console& console, const WhatIf& asked) {
  if (asked.device != "sim" && !asked.device.starts_with("sim:"))
    return fail(Errc::usage, "--device {}: expected sim, or sim:OPTIONS", asked.device);
  if (asked.jobs == 0) return fail(Errc::usage, "--jobs 0: expected at least 1");
  Sweeping sweeping(console, asked);
  if (auto planned = sweeping.plan(); !planned) return planned.error();
  if (auto ran = sweeping.run(); !ran) return ran.error();
  const auto code = sweeping.say();
  if (!asked.json.empty()) {
    if (auto written = console.write(asked.json, sweeping.to_json()); !written)
      return written.error();
  }
  return code;
}

}  // namespace emm::cli
