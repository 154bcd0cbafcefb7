#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/operation.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

/// One request of a program on one thread and the default stream: its size, and how many requests
/// later it is freed, just before that request. What outlives the program is freed at its end. Any
/// list of these is a program.
struct Request {
  std::uint64_t size = 1;
  std::uint32_t lifetime = 1;

  bool operator==(const Request&) const = default;
};
using Program = std::vector<Request>;

/// Writes a program as a trace, header to `end`. Errors are the sink's.
Status write(const Program& program, const std::string& name, trace::OperationSink& sink);
/// What a trace's program asks of its first context, without what order streams and threads gave
/// it.
Program program_of(const trace::Trace& trace);

struct AdversaryOptions {
  std::uint64_t seed = 1;
  std::uint64_t trials = 2'000;
  std::uint64_t requests = 400;                       ///< A program has at most so many.
  std::uint64_t size_max = std::uint64_t{1} << 30;    ///< The largest request.
  std::uint64_t live_least = std::uint64_t{1} << 30;  ///< A peak of less counts as this much.
  /// The simulated device's, which is larger if a program might need it. Making the device takes
  /// most of a short trial.
  std::uint64_t capacity = std::uint64_t{128} << 30;
  std::function<void(std::uint64_t trials, double worst)> progress{};  ///< After each trial.
};

/// The worst that was found: a program and what it makes a manager reserve.
struct Adversary {
  Program program;
  std::string begun_from;  ///< The pattern of `emmctl generate` that it grew out of.
  std::uint64_t peak_live = 0, peak_reserved = 0;
  double ratio = 0;  ///< `peak_reserved` over the peak of what is live, or over `live_least`.
  double pattern_ratio = 0;  ///< The worst of the patterns, before any change.
  std::uint64_t trials = 0, found_at = 0;
  /// A trial that did not go well: not a matter of waste. The search ends there, with its program.
  std::optional<log::Summary> failed;
  bool interrupted = false;
};

/// Looks for a program that makes a manager reserve much more than is live: patterns of `emmctl
/// generate` with sizes drawn at random, of which the worst are then changed request by request,
/// and a change is kept that is no better for the manager than the mildest that is kept. The same
/// arguments give the same program on every machine. Errors are those of a run that leaves nothing
/// to report.
Result<Adversary> find_adversary(const Setting& setting, const AdversaryOptions& options);

}  // namespace emm::trial
