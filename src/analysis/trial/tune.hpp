#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/pytorch/program.hpp"
#include "base/result.hpp"
#include "format/brief.hpp"
#include "format/json_writer.hpp"
#include "trace/trace.hpp"
#include "trial/late_frees.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;
using allocators::Addresses;

/// The smallest capacity that serves a program. It is a range if free blocks of one size in two
/// segments compete: the lower address is taken, and the driver decides the addresses.
struct FitRange {
  bool is_exact = false;     ///< `high` serves in every order, and 2 MiB less in none.
  std::uint64_t low = 0;     ///< Serves in some order of addresses; no smaller one did.
  std::uint64_t likely = 0;  ///< Serves with the recorded addresses, and then the driver's rule.
  std::uint64_t high = 0;    ///< Serves in every order that was tried, as do larger ones.

  bool operator==(const FitRange&) const = default;
};

/// A setting of PyTorch's allocator, or one of our managers, and its results with the program.
struct Tuned {
  std::string manager;    ///< As --manager takes it.
  std::string how;        ///< How to tell a program: an environment variable, a line of Python.
  bool is_today = false;  ///< The setting of the recording.
  bool served = false;    ///< At the given capacity, whatever addresses the driver gives.
  /// It fails with some of the driver's addresses or moments of late frees, and passes with others.
  bool is_open = false;
  std::optional<std::uint64_t> fails_at{};  ///< The event of the first failed request.
  std::uint64_t failed_size = 0;
  /// The smallest capacity that serves all requests. Empty if it was not searched.
  std::optional<FitRange> fit{};
  std::optional<std::uint64_t> fit_bytes() const noexcept {
    return fit ? std::optional(fit->high) : std::nullopt;
  }
  std::uint64_t peak_reserved = 0;       ///< With late frees completed as recorded.
  Reserved reserved{};                   ///< Whenever they complete.
  std::uint64_t unlimited_reserved = 0;  ///< The peak of reserved bytes without any limit.
  Reserved unlimited{};                  ///< The same, whenever late frees complete.
  std::uint64_t retries = 0;
  std::optional<std::uint64_t> device_calls{};  ///< For memory. Empty if they are not counted.
  /// The time of the driver's calls at the capacity if that serves the program, else at `fit`, by
  /// the model of an H200. Empty if neither is known.
  std::optional<std::uint64_t> lost_ns{};
  std::size_t keys = 0;  ///< What a person has to set: keys of PYTORCH_ALLOC_CONF.
  /// How often the manager made a stream wait for another. PyTorch's allocator never does.
  std::uint64_t stream_waits = 0;
  bool interrupted = false;  ///< Some of this is unknown.
};

/// What bounds the allocator's memory: the device, or per_process_memory_fraction on a larger
/// device. With expandable segments, the first allows any piece that still fits, while the second
/// refuses by whole segments.
enum class Limit : std::uint8_t { device, fraction };

/// Where the capacity comes from that a program has to get by with.
enum class AskedBy : std::uint8_t {
  nobody,     ///< There is none: the question is who needs least.
  user,       ///< --capacity
  recording,  ///< The memory fraction that the recording states.
  inference,  ///< What was served and refused tells the memory fraction.
  refusal,    ///< What the allocator held when a request failed, and what the device had free.
};
std::string_view name(AskedBy by) noexcept;

/// What `tune`, `explain` and the page ask of every setting.
struct Question {
  std::uint64_t capacity = pytorch::kNoLimit;  ///< For the allocator, without what others hold.
  Limit limit = Limit::device;                 ///< What `capacity` limits.
  AskedBy by = AskedBy::nobody;
  std::uint64_t below = 0;  ///< An inferred limit is less than this. 0: `capacity` is the limit.
};
/// Returns the capacity that is known or inferred: the user's, else that of the recording, else
/// what it had at the refused request of `event`, or at the first one.
Question question_of(const pytorch::Recording& recording, const pytorch::Settings& settings,
                     std::optional<std::uint64_t> asked = {}, Limit limit = Limit::device,
                     std::optional<std::uint64_t> event = {});

/// How many capacities are tried around the one that halving finds.
enum class SearchDepth : std::uint8_t { about, closely };

struct TuneOptions {
  Question question{};
  /// Values of PYTORCH_ALLOC_CONF to try instead of the usual ones. REQUIRES: each can be read.
  std::vector<std::string> settings{};
  bool fit_all = false;  ///< Search all settings, not only the best five.
  /// Search only the best five where a setting serves the program at the capacity: the others do
  /// not change the ranking then.
  bool fit_few = false;
  std::size_t jobs = 0;  ///< Threads; 0: one per processor.
  std::string peer_program{};
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
};

/// A batch by which the program fits where no setting serves it as it is.
struct Smaller {
  std::uint64_t eighths = 0;  ///< What is taken off each request above kSmallSize.
  std::string manager, how;   ///< The setting that serves it then.
};
EMM_MEMBERS_OF(Smaller, eighths, manager, how)

struct Tuning {
  Question question{};
  std::uint64_t total = 0;      ///< Bytes of the device; 0 if unknown.
  std::uint64_t peak_live = 0;  ///< Requested bytes: no allocator needs less.
  /// Held and live before the first row. It lies where the recording found it under every setting.
  std::uint64_t before_reserved = 0, before_live = 0;
  std::vector<Tuned> ranking;  ///< The best first.
  Lateness lateness{};
  std::uint64_t caught = 0;         ///< See caught_failures().
  std::string_view pool_untried{};  ///< From why_no_pool().
  bool interrupted = false;
  /// The limit that the recording implies but does not state. The caller sets it.
  std::optional<pytorch::InferredLimit> inferred_limit{};
  std::optional<Smaller> smaller{};
  /// The framework that the recording names, if it is not PyTorch: no setting changes its program.
  std::string other_framework{};
  /// Does the recording tell under which setting PyTorch ran? torch.profiler's do not.
  bool knows_today = true;

  const Tuned* today() const noexcept;
  /// The setting that needs the least capacity. It may rank behind one that needs a little more.
  const Tuned* least() const noexcept;
};

/// What to do first. `tune`, `explain` and the page have it from here, so that they agree.
struct FirstAdvice {
  bool serves = false;       ///< The program, at the capacity that is asked about.
  bool is_today = false;     ///< Nothing is to be changed.
  bool says_today = false;   ///< The words say how today's setting fares.
  std::string manager, how;  ///< The setting; `how` has lines to paste.
  std::string words;         ///< In at most two sentences.
};
FirstAdvice first_advice(const Tuning& tuning);

/// Tries every sensible setting of PyTorch's allocator by its model, and the pool by replays of
/// `trace` on simulated devices. Ranks first what serves the program at the capacity; without one,
/// and among what does not, by the smallest capacity that does; but up to 10 % more ranks before it
/// if its driver calls take less than a tenth of the time. Figures within 3 % of the best are
/// equal; among equals the order is by the time of driver calls, by what is reserved without a
/// limit, by the number of keys to set, and by PyTorch's own recommendation. Errors are those of a
/// replay that leaves nothing to report.
Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options);

/// Writes the member "inferred_limit" of a JSON answer: null if there is none.
void write_inferred_limit(format::JsonWriter& json,
                          const std::optional<pytorch::InferredLimit>& limit);

/// Says in a sentence why the pool is not tried; empty if it is.
std::string_view why_no_pool(const pytorch::Program& program, const trace::Trace& trace) noexcept;
/// Returns our pool, for replays that fail if a refused request is refused again. kHowPool says how
/// a program uses it.
Result<Setting> pool_setting(const TuneOptions& options);
inline constexpr std::string_view kHowPool = "import emmctl.torch; emmctl.torch.use(\"pool\")";

/// Returns the smallest capacity, to 2 MiB, at which the model serves every request, those that the
/// recording refused included. Empty if a limit of the setting refuses one at any capacity.
std::optional<FitRange> fit_of(const pytorch::Program& program, const pytorch::Settings& settings,
                               Limit limit = Limit::device,
                               SearchDepth depth = SearchDepth::closely,
                               const std::atomic<bool>* interrupted = nullptr);
/// Returns the settings to try: the recording's first, then those of the options or of the
/// documentation.
std::vector<pytorch::Settings> candidates(const pytorch::Program& program,
                                          const TuneOptions& options);
/// Returns how to run a setting if the allocator has `capacity`; kNoLimit: all that it asks for.
pytorch::RunOptions run_options(const pytorch::Settings& settings, std::uint64_t capacity,
                                Limit limit);
/// The orders of addresses to try if the driver's are unknown, the likeliest first.
inline constexpr Addresses kOrders[] = {Addresses::recorded, Addresses::driver,
                                        Addresses::first_fit, Addresses::descending};
/// For example "pytorch:max_split_size_mb=64", with PyTorch's names. --manager takes it as this
/// setting, beside a recording made with the setting `recorded`.
std::string spec_of(const pytorch::Settings& settings, const pytorch::Settings& recorded);
/// "PYTORCH_ALLOC_CONF=max_split_size_mb:64"
std::string how_of(const pytorch::Settings& settings);
/// "torch.cuda.set_per_process_memory_fraction(0.412)": the fraction of `total` that allows
/// `capacity`, to 2 MiB. If `total` is 0, the program divides by it.
std::string fraction_line(std::uint64_t capacity, std::uint64_t total);
/// Returns the program with every request above kSmallSize made smaller by `eighths`.
pytorch::Program smaller(const pytorch::Program& program, std::uint64_t eighths);

/// Splits a manager's options into lines, one for each option.
std::vector<std::string> lines_of(const std::string& spec);
/// Writes at most `width` columns and `top` rows for a person.
std::string to_text(const Tuning& tuning, const trace::Trace& trace, std::size_t top, int width);
/// The same in one breath.
format::Brief brief(const Tuning& tuning, const trace::Trace& trace);
std::string to_markdown(const Tuning& tuning, const trace::Trace& trace);
/// Writes the member "advice" of a JSON answer: what first_advice() says.
void write_advice(format::JsonWriter& json, const Tuning& tuning);
/// "emmctl.tune/1"
std::string to_json(const Tuning& tuning, const trace::Trace& trace);

}  // namespace emm::trial
