#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "inspect/statistics.hpp"

namespace emm::inspect {

/// A row of nvidia-smi's CSV: what a GPU, or a process on it, holds at one moment.
struct SmiRow {
  std::string series{};                   ///< "GPU 0", "GPU GPU-1234, process 77 python"
  std::optional<std::uint32_t> device{};  ///< The number of the GPU, if the row has it.
  std::optional<Stated> used{}, total{};  ///< nvidia-smi rounds to whole MiB.
  std::string time{};                     ///< As printed; empty if it is not.
  std::optional<std::int64_t> time_ms{};  ///< The same, as if it were UTC, since 1970.
};

/// What is known once all rows were read.
struct SmiFile {
  bool of_processes = false;
  std::uint64_t cut = 0;  ///< Rows that end before the value.
};

/// Calls `each` for each row of a file that --query-gpu or --query-compute-apps wrote.
Result<SmiFile> each_smi_row(format::ByteSource& source,
                             const std::function<void(const SmiRow&)>& each);

}  // namespace emm::inspect
