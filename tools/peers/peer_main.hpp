#pragma once

#include <cstdlib>
#include <string_view>

#include "tools/peers/threads.hpp"

namespace emm::peers {

using namespace std::string_view_literals;

inline constexpr int kNotHere = 3;  ///< Exit code of a peer that is not on this machine.

/// The arguments of every peer's program:
///
///   PEER [--name NAME] [--warm N] [--latency N] [--differ one|own] [--kernel US]
///        [--scale] [--live N,..] [--threads] [--counts N,..] FILE.ops...
///
/// It prints a JSON object on a line for each measurement.
struct PeerArguments {
  std::string name;
  std::vector<std::string> files;
  Passes passes;
  bool scale = false, threads = false;
  Scaling scaling;
  std::vector<std::uint64_t> counts{1, 16};
  Threading threading;

  static std::vector<std::uint64_t> list(const char* text) {
    std::vector<std::uint64_t> numbers;
    char* end = nullptr;
    for (;;) {
      numbers.push_back(std::strtoull(text, &end, 10));
      if (*end != ',') return numbers;
      text = end + 1;
    }
  }

  /// Takes the arguments that it knows; `extra` gets each other one with its value.
  template <class Extra>
  bool parse(int argc, char** argv, const Extra& extra) {
    for (int at = 1; at < argc; ++at) {
      const std::string_view key = argv[at];
      if (!key.starts_with("--")) {
        files.emplace_back(key);
        continue;
      }
      if (key == "--scale" || key == "--threads") {
        (key == "--scale" ? scale : threads) = true;
        continue;
      }
      if (at + 1 == argc) return refuse(key);
      const char* const value = argv[++at];
      const auto number = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
      if (key == "--name") {
        name = value;
      } else if (key == "--warm") {
        passes.warm = number;
      } else if (key == "--latency") {
        passes.latency = number;
      } else if (key == "--differ" && (value == "one"sv || value == "own"sv)) {
        passes.differ = value == "one"sv ? Differ::by_one : Differ::by_own;
      } else if (key == "--kernel") {
        passes.kernel_ns = std::uint64_t{number} * 1'000;
      } else if (key == "--live") {
        scaling.live = list(value);
      } else if (key == "--counts") {
        counts = list(value);
      } else if (key == "--requests") {
        threading.requests = number;
      } else if (!extra(key, value)) {
        return refuse(key);
      }
    }
    return true;
  }
  static bool refuse(std::string_view key) {
    std::fprintf(stderr, "%s: not an option of this peer, or without its value\n",
                 std::string(key).c_str());
    return false;
  }
};

/// Measures all that was asked for. `make(streams)` returns an allocator, or null after it printed
/// the reason on stderr.
template <class Make>
int measure(const PeerArguments& arguments, const Make& make) {
  const TickScale scale(arguments.passes.latency > 0);
  for (const auto& file : arguments.files) {
    const auto requests = read_requests(file);
    if (!requests) return 1;
    if (requests->all.empty()) continue;
    if (!measure_trace(arguments.name, make, *requests, arguments.passes, scale)) return 1;
  }
  if (arguments.scale) measure_scaling(arguments.name, make, arguments.scaling);
  for (const auto count : arguments.threads ? arguments.counts : std::vector<std::uint64_t>{}) {
    auto threading = arguments.threading;
    threading.threads = count;
    measure_threads(arguments.name, make, threading);
  }
  return 0;
}

}  // namespace emm::peers
