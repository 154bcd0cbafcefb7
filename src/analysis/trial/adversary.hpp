#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/operation_sink.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

/// One request of a program on one thread and the default stream. It is freed just before the
/// request that comes `lifetime` requests later, or at the program's end. Any list of requests is a
/// program.
struct Request {
  std::uint64_t size = 1;
  std::uint32_t lifetime = 1;

  bool operator==(const Request&) const = default;
};
using Program = std::vector<Request>;

/// Writes a program as a trace, header to `end`. Errors are the sink's.
Status write(const Program& program, const std::string& name, trace::OperationSink& sink);
/// Takes the requests of a trace's first context. What streams and threads say about their order is
/// dropped.
Program program_of(const trace::Trace& trace);

struct AdversaryOptions {
  std::uint64_t seed = 1;
  std::uint64_t trials = 2'000;
  std::uint64_t requests = 400;                       ///< The most requests of a program.
  std::uint64_t size_max = std::uint64_t{1} << 30;    ///< The largest request.
  std::uint64_t live_least = std::uint64_t{1} << 30;  ///< A smaller live peak counts as this much.
  /// The simulated device's, raised if a program might need more. Making the device takes most of a
  /// short trial.
  std::uint64_t capacity = std::uint64_t{128} << 30;
  std::function<void(std::uint64_t trials, double worst)> progress{};  ///< After each trial.
};

/// The worst program that was found, and what it makes a manager reserve.
struct Adversary {
  Program program;
  std::string begun_from;  ///< The pattern of `emmctl generate` that it grew out of.
  std::uint64_t peak_live = 0, peak_reserved = 0;
  double ratio = 0;  ///< `peak_reserved` over the live peak or `live_least`, whichever is larger.
  double pattern_ratio = 0;  ///< The worst ratio of an unchanged pattern.
  std::uint64_t trials = 0, found_at = 0;
  /// Set if a trial failed, which is more than waste. The search ends there, with its program.
  std::optional<log::Summary> failed;
  bool interrupted = false;
};

/// Looks for a program that makes a manager reserve much more than is live. Begins with patterns of
/// `emmctl generate` with random sizes, and then changes the worst of them request by request. A
/// changed program is kept if its ratio is at least that of the mildest one kept. The same
/// arguments give the same program on every machine. Errors are those of a run that leaves nothing
/// to report.
Result<Adversary> find_adversary(const Setting& setting, const AdversaryOptions& options);

}  // namespace emm::trial
