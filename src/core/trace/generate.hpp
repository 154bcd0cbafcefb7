#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// Describes a synthetic trace. A field that is not set takes the default of the kind.
struct GenerateOptions {
  std::string kind{};
  std::uint64_t events = 100'000;  ///< Number of memalloc and free together; one fewer if that is
                                   ///< needed to end paired.
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> min_size{}, max_size{};  ///< Bytes, both included.
  std::optional<std::uint64_t> live{};                  ///< The most allocations that live at once.
  std::optional<std::uint64_t> threads{}, streams{};    ///< How many.
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
  bool tight = false;         ///< The device has little more capacity than the peak live bytes.
};

std::span<const GenerateKind> generate_kinds();

/// Generates the trace from the header to `end`. Memory is bounded by the live allocations.
/// Everything is freed at the end. The same options give the same trace on every machine. Errors:
/// usage, for an unknown kind or options that contradict each other; the sink's.
Status generate(const GenerateOptions& options, OperationSink& sink);

}  // namespace emm::trace
