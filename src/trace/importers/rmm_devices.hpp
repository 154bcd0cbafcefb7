#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trace/importer.hpp"

namespace emm::trace {

/// The log of one device of several that a program used.
struct DeviceLog {
  format::ByteSource* source = nullptr;
  std::uint32_t device = 0;
};

/// The device that RMM put in a log's name: 1 of "run.dev1.csv", also packed.
std::optional<std::uint32_t> device_of_log(std::string_view path);

/// Logs of RMM, one a device, as one trace in the order of their times of day. Logs whose first
/// rows are less than twelve hours apart are taken to begin on either side of the same midnight at
/// most. Errors: those of the importer rmm-csv.
Result<ImportCounts> read_rmm_devices(std::span<const DeviceLog> logs, OperationSink& sink,
                                      const ImportOptions& options);

}  // namespace emm::trace
