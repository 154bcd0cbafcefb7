#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// What a synthetic trace looks like. What is not said is the kind's own.
struct GenerateOptions {
  std::string kind{};
  std::uint64_t events =
      100'000;  ///< Operations memalloc and free together: this many, or one less to end paired.
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> min_size{}, max_size{};  ///< Bytes, both included.
  std::optional<std::uint64_t> live{};  ///< How many allocations live at once, at most.
  std::optional<std::uint64_t> threads{}, streams{};  ///< How many.
};

/// A pattern of allocation, as `emmctl generate <name>` makes it.
struct GenerateKind {
  std::string_view name;
  std::string_view summary;
  // These are the defaults of the options:
  std::uint64_t min_size = 256;
  std::uint64_t max_size = std::uint64_t{16} << 20;
  std::uint64_t live = 1000;
  std::uint64_t threads = 1;
  std::uint64_t streams = 1;  ///< 1 is the default stream alone.
  bool tight = false;  ///< The trace names a device with little more than what lives at once.
};

std::span<const GenerateKind> generate_kinds();

/// Makes the trace, header to `end`, in memory bounded by what lives at once. Everything is freed
/// at its end. The same options give the same trace on every machine. Errors: usage, of an unknown
/// kind and of options that contradict each other; the sink's.
Status generate(const GenerateOptions& options, OperationSink& sink);

}  // namespace emm::trace
