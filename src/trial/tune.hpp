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
#include "format/json_writer.hpp"
#include "trace/trace.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;
using allocators::Addresses;

/// Free blocks of one size in two segments are taken by address, which the driver decides: what
/// serves a program is a range where that matters.
struct FitRange {
  bool is_exact = false;     ///< `high` serves in every order, and 2 MiB less in none.
  std::uint64_t low = 0;     ///< Serves in some order of addresses; no less did.
  std::uint64_t likely = 0;  ///< Serves with the recorded addresses, and then the driver's rule.
  std::uint64_t high = 0;    ///< Serves in every order that was tried, and so did more.

  bool operator==(const FitRange&) const = default;
};

/// A setting of PyTorch's allocator, or one of our managers, and what became of the program with
/// it.
struct Tuned {
  std::string manager;    ///< As --manager takes it.
  std::string how;        ///< How a program is told: an environment variable, a line of Python.
  bool is_today = false;  ///< What the recording was made with.
  bool served =
      false;  ///< At the capacity that was asked for, whatever addresses the driver gives.
  bool is_open = false;  ///< It fails in one order of the driver's addresses and passes in another.
  std::optional<std::uint64_t> fails_at{};  ///< The event of the first request without memory.
  std::uint64_t failed_size = 0;
  /// The smallest capacity that serves all; nothing where it was not searched.
  std::optional<FitRange> fit{};
  std::optional<std::uint64_t> fit_bytes() const noexcept {
    return fit ? std::optional(fit->high) : std::nullopt;
  }
  std::uint64_t peak_reserved = 0;
  std::uint64_t retries = 0;
  std::optional<std::uint64_t> device_calls{};  ///< Of memory; nothing where they are not counted.
  /// How often the manager made a stream wait for another. PyTorch's allocator never does.
  std::uint64_t stream_waits = 0;
  bool interrupted = false;  ///< Not all of this is known.
};

/// What ends the allocator's memory: the device's, or per_process_memory_fraction on a device that
/// has more. Expandable segments are mapped up to the first, and refused a whole segment by the
/// second.
enum class Limit : std::uint8_t { device, fraction };

/// How many capacities are tried around the one that a search by halves finds.
enum class Look : std::uint8_t { about, closely };

struct TuneOptions {
  std::uint64_t capacity = pytorch::kNoLimit;  ///< For the allocator, without what others hold.
  Limit limit = Limit::device;                 ///< What `capacity` is of.
  /// Values of PYTORCH_ALLOC_CONF to try instead of the usual ones; each can be read.
  std::vector<std::string> settings{};
  bool fit_all = false;  ///< Search the smallest capacity of every setting, not of the best five.
  std::size_t jobs = 0;  ///< Threads; 0: as many as there are processors.
  std::string peer_program{};
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
  /// Where not empty, called with the settings and the pool in their order, the best first, until
  /// it answers that no more are wanted. The ranking has these, today's setting and the managers
  /// of `also`; of a range of capacities only its upper end is searched, and of the other settings
  /// no more than says that they come later.
  std::function<bool(const Tuned&)> wants{};
  std::vector<std::string> also{};
};

struct Tuning {
  std::uint64_t capacity = pytorch::kNoLimit;
  Limit limit = Limit::device;
  std::uint64_t own_limit = pytorch::kNoLimit;  ///< Of the recording.
  std::uint64_t peak_live = 0;                  ///< Requested bytes: no allocator needs less.
  std::vector<Tuned> ranking;                   ///< The best first.
  std::string_view pool_untried{};              ///< As why_no_pool() says.
  bool interrupted = false;
  /// What the recording tells of a limit that it does not name. The caller sets it.
  std::optional<pytorch::InferredLimit> inferred_limit{};

  const Tuned* today() const noexcept;
};

/// Every sensible setting of PyTorch's allocator, by its model, and the pool, by replays of `trace`
/// on simulated devices; ranked: what serves the program first, then by the smallest capacity that
/// serves it, then by what it reserves, retries and asks of the device. Errors are those of a
/// replay that leaves nothing to report.
Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options);

/// The member "inferred_limit" of a JSON answer: null where there is none.
void write_inferred_limit(format::JsonWriter& json,
                          const std::optional<pytorch::InferredLimit>& limit);

/// Why the pool is not tried, a sentence; empty where it is.
std::string_view why_no_pool(const pytorch::Program& program, const trace::Trace& trace) noexcept;
/// Our pool, for replays that fail where a request that was refused is refused again; and how a
/// program is told to use it.
Result<Setting> pool_setting(const TuneOptions& options);
inline constexpr std::string_view kHowPool = "emmctl.torch.use(\"pool\"), of the package emmctl";

/// The smallest capacity at which the model serves all that was served when it was recorded, to
/// 2 MiB; nothing where a limit of its own refuses some at any.
std::optional<FitRange> fit_of(const pytorch::Program& program, const pytorch::Settings& settings,
                               Limit limit = Limit::device, Look look = Look::closely,
                               const std::atomic<bool>* interrupted = nullptr);
/// The settings that are tried: the recording's first, then those of the options or what the
/// documentation names.
std::vector<pytorch::Settings> candidates(const pytorch::Program& program,
                                          const TuneOptions& options);
/// How a setting is run where the allocator has `capacity`. kNoLimit: as much as it asks for.
pytorch::RunOptions run_options(const pytorch::Settings& settings, std::uint64_t capacity,
                                Limit limit);
/// The orders of addresses that are tried where the driver's are not known, the likeliest first.
inline constexpr Addresses kOrders[] = {Addresses::recorded, Addresses::driver,
                                        Addresses::first_fit, Addresses::descending};
/// "pytorch:max_split_size_mb=64", with PyTorch's names.
std::string spec_of(const pytorch::Settings& settings);
/// "PYTORCH_ALLOC_CONF=max_split_size_mb:64"
std::string how_of(const pytorch::Settings& settings);

/// A manager's options a line each, as far as they are several.
std::vector<std::string> lines_of(const std::string& spec);
/// For a person, at most `width` columns; `top` rows.
std::string to_text(const Tuning& tuning, const trace::Trace& trace, std::size_t top, int width);
std::string to_markdown(const Tuning& tuning, const trace::Trace& trace);
/// "emmctl.tune/1"
std::string to_json(const Tuning& tuning, const trace::Trace& trace);

}  // namespace emm::trial
