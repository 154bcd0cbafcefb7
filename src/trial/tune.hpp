#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/program.hpp"
#include "base/result.hpp"
#include "trace/trace.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;

/// A setting of PyTorch's allocator, or one of our managers, and what became of the program with
/// it.
struct Tuned {
  std::string manager;    ///< As --manager takes it.
  std::string how;        ///< How a program is told: an environment variable, a line of Python.
  bool is_today = false;  ///< What the recording was made with.
  bool served = false;    ///< At the capacity that was asked for.
  std::optional<std::uint64_t> fails_at{};  ///< The event of the first request without memory.
  std::uint64_t failed_size = 0;
  /// The smallest capacity that serves all; nothing where it was not searched.
  std::optional<std::uint64_t> fit_bytes{};
  std::uint64_t peak_reserved = 0;
  std::uint64_t retries = 0;
  std::optional<std::uint64_t> device_calls{};  ///< Of memory; nothing where they are not counted.
  bool interrupted = false;                     ///< Not all of this is known.
};

struct TuneOptions {
  std::uint64_t capacity = pytorch::kNoLimit;  ///< For the allocator, without what others hold.
  bool fit_all = false;  ///< Search the smallest capacity of every setting, not of the best five.
  std::size_t jobs = 0;  ///< Threads; 0: as many as there are processors.
  std::string peer_program{};
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
};

struct Tuning {
  std::uint64_t capacity = pytorch::kNoLimit;
  std::uint64_t peak_live = 0;  ///< Requested bytes: no allocator needs less.
  std::vector<Tuned> ranking;   ///< The best first.
  bool interrupted = false;

  const Tuned* today() const noexcept;
};

/// Every sensible setting of PyTorch's allocator, by its model, and the pool, by replays of `trace`
/// on simulated devices; ranked: what serves the program first, then by the smallest capacity that
/// serves it, then by what it reserves, retries and asks of the device. Errors are those of a
/// replay that leaves nothing to report.
Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options);

/// The smallest capacity at which the model serves all that was served when it was recorded, to
/// 2 MiB; nothing where a limit of its own refuses some at any.
std::optional<std::uint64_t> fit_of(const pytorch::Program& program,
                                    const pytorch::Settings& settings,
                                    const std::atomic<bool>* interrupted = nullptr);
/// "pytorch:max_split_size_mb=64", with PyTorch's names.
std::string spec_of(const pytorch::Settings& settings);
/// "PYTORCH_ALLOC_CONF=max_split_size_mb:64"
std::string how_of(const pytorch::Settings& settings);

/// For a person, at most `width` columns; `top` rows.
std::string to_text(const Tuning& tuning, const trace::Trace& trace, std::size_t top, int width);
std::string to_markdown(const Tuning& tuning, const trace::Trace& trace);
/// "emmctl.tune/1"
std::string to_json(const Tuning& tuning, const trace::Trace& trace);

}  // namespace emm::trial
