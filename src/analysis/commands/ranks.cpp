#include "fleet/ranks.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>

#include "base/run_files.hpp"
#include "base/side_by_side.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/what_is.hpp"
#include "commands/ranks_logs.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Ranks final : public CommandRun {
 public:
  explicit Ranks(Arguments& arguments) {
    arguments.inputs(
        "FILE", paths_, "",
        "The recordings, one a rank, in any format of `emmctl list formats`, or the ranks' "
        "logs; a folder of them; or a glob");
    arguments.under(OptionHeading::input)
        .text("--from", format_, "FORMAT", "The format, if the content does not tell");
    arguments.under(OptionHeading::device)
        .text("--capacity", capacity_, "SIZE",
              "The memory of each device, if the recordings do not state it");
    arguments.count("--jobs", jobs_, "N", "Recordings to read at once (as many as processors)");
    more_.offer(arguments);
    arguments.under(OptionHeading::shown)
        .count("--top", top_, "How many entries of each list to show");
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.ranks/1)");
    arguments.footer(
        "Files whose names differ only in a number are the ranks of one run. The number of a rank "
        "stands after \"rank\" or before \"of\"; where neither word stands, it is the number that "
        "differs. The tightest "
        "rank is the one where a request failed; if none failed, the one with the least room; if "
        "no room is known, the one whose device held most. A JSON beside a recording, of the same "
        "name, may tell what the device held outside of the allocator "
        "(\"outside_allocator_bytes\", or \"device_used_bytes\" and PyTorch's \"stats\") and how "
        "many ranks there are (\"world\"). A rank that is damaged or missing is named, and the "
        "others are compared. Of logs it says which ranks ran out of memory, with what "
        "(emmctl.ranks-log/1). Exit codes: 0 fine; 2 usage; 3 no log has such a message; 4 a rank "
        "is damaged or missing; 128+n "
        "ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    const bool more = more_.apply();
    std::optional<std::uint64_t> capacity;
    if (!capacity_.empty()) {
      const auto bytes = units::parse_capacity(capacity_);
      if (!bytes) return bytes.error();
      capacity = *bytes;
    }
    const auto jobs = jobs_.value_or(std::max(1U, std::thread::hardware_concurrency()));
    if (jobs == 0 || jobs > kJobsMost)
      return fail(Errc::usage, "--jobs {}: expected at least 1 and at most {}", jobs, kJobsMost);
    const auto files = fleet::files_of(paths_);
    if (!files) return files.error();
    handle_interrupts();
    if (format_.empty() && are_logs(*files)) return ranks_of_logs(console, *files, json_, more);
    fleet::Sites sites(fleet::SameSite::line);
    std::vector<fleet::Comparison> compared;
    bool whole = true;
    auto sets = fleet::sets_of(*files);
    // If some recordings form a run of several ranks, a recording on its own is not a rank.
    const auto alone = std::stable_partition(
        sets.begin(), sets.end(), [](const fleet::RankSet& set) { return set.ranks.size() > 1; });
    if (alone != sets.begin()) {
      for (auto set = alone; set != sets.end(); ++set)
        console.say(text::format("{}: left out, as no other file has such a name",
                                 text::printable(set->ranks.front().path, 200)));
      sets.erase(alone, sets.end());
    }
    for (const auto& set : sets) {
      std::uint64_t world = 0;
      auto ranks = read(console, set, sites, capacity, jobs, world);
      if (interrupted()) return fail(Errc::interrupted, "interrupted while {}", "reading");
      for (const auto& rank : ranks) {
        if (!rank.fault.empty()) console.say(rank.fault);
      }
      auto comparison = fleet::compare(set.name, std::move(ranks), fleet::missing_of(set, world));
      comparison.missing_places = fleet::missing_places_of(set);
      const auto name = text::printable(set.name, 200);
      for (const auto number : comparison.missing)
        console.say(text::format("{}: rank {} is missing", name, number));
      for (const auto& label : comparison.missing_places)
        console.say(text::format("{}: rank {} is missing", name, text::printable(label, 60)));
      whole = whole && comparison.is_whole();
      compared.push_back(std::move(comparison));
    }
    std::string text;
    for (std::size_t i = 0; i < compared.size(); ++i) {
      std::vector<const fleet::Comparison*> family;
      for (std::size_t k = 0; k < sets.size(); ++k) {
        if (sets[k].family == sets[i].family) family.push_back(&compared[k]);
      }
      if (!text.empty()) text += '\n';
      if (family.size() > 1 && family.front() == &compared[i])
        text += fleet::tightest_of(family, sites) + '\n';
      text += fleet::to_text(compared[i], sites, {.top = static_cast<std::size_t>(top_)});
    }
    if (!json_.empty()) {
      const auto written = console.write(
          json_, fleet::to_json(compared, sites, {.top = static_cast<std::size_t>(top_)}));
      if (!written) return written.error();
    }
    if (json_ != "-") console.result(more ? text : format::to_text(fleet::brief(compared, sites)));
    return whole ? ExitCode::fine : ExitCode::damaged;
  }

 private:
  static constexpr std::uint64_t kJobsMost = 1024;  // threads: catches a slip of the hand

  /// Reads one recording. After the call only data that other recordings may share is kept.
  std::vector<fleet::Rank> read_one(const fleet::RankFile& file, fleet::Sites& sites,
                                    const fleet::Figures& figures,
                                    std::optional<std::uint64_t> capacity) const {
    const auto unread = [&](const Error& error) {
      std::vector<fleet::Rank> one(1);
      one[0].fault = describe(error);
      one[0].file = file;
      return one;
    };
    auto source = format::ByteSource::open(file.path, &interrupted());
    if (!source) return unread(source.error());
    auto importer = choose_importer(**source, format_);
    if (!importer) {
      auto one = unread(importer.error());
      // A log among recordings.
      const auto what = what_is(file.path);
      if (what && what->code == ExitCode::fine) one[0].fault = what->what;
      return one;
    }
    inspect::Recording recording;
    recording.set_source((*source)->name());
    auto counts = (*importer)->read(**source, recording, {.partial = false});
    if (!counts) return unread(counts.error());
    return fleet::ranks_of(recording, file, sites, figures, capacity);
  }

  std::vector<fleet::Rank> read(Console& console, const fleet::RankSet& set, fleet::Sites& sites,
                                std::optional<std::uint64_t> capacity, std::uint64_t jobs,
                                std::uint64_t& world) const {
    std::vector<std::vector<fleet::Rank>> ranks(set.ranks.size());
    std::size_t done = 0;
    std::mutex mutex;  // guards `done`, `world` and `console`
    side_by_side(jobs, ranks.size(), [&](std::size_t i) {
      if (interrupted()) return;
      const auto figures = fleet::figures_of(set.ranks[i].figures);
      ranks[i] = read_one(set.ranks[i], sites, figures, capacity);
      const std::lock_guard lock(mutex);
      world = std::max(world, figures.world);
      console.progress("ranks", ++done, ranks.size());
    });
    console.end_progress();
    std::vector<fleet::Rank> all;
    for (auto& file : ranks) {
      for (auto& rank : file) {
        if (rank.device) {
          const auto device = text::format("{}", *rank.device);
          rank.file.label = ranks.size() == 1 ? device : rank.file.label + '/' + device;
        }
        all.push_back(std::move(rank));
      }
    }
    return all;
  }

  std::vector<std::string> paths_;
  BriefOptions more_;
  std::string format_, capacity_, json_;
  std::optional<std::uint64_t> jobs_;
  std::uint64_t top_ = 10;
};

}  // namespace

extern constinit const Command ranks_command{
    "ranks",
    "Compare the recordings of all ranks of a run: the tightest, why, and where they part",
    false,
    make_run<Ranks>,
    Heading::ask,
    {{{"emmctl ranks 'ranks/rank*.jsonl'", "Says which rank is the tightest, and why."},
      {"emmctl ranks ranks --capacity 8GiB", "Says what each has left of 8 GiB."}}}};

}  // namespace emm
