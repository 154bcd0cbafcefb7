#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "exchange/importer.hpp"

namespace emm::trace {

/// The log of one of several devices that a program used.
struct DeviceLog {
  format::ByteSource* source = nullptr;
  std::uint32_t device = 0;
};

/// The device number that RMM put into a log's name: 1 for "run.dev1.csv", also if it is
/// compressed.
std::optional<std::uint32_t> device_of_log(std::string_view path);

/// Merges RMM logs, one per device, into one trace in the order of their times of day. Logs whose
/// first rows are less than twelve hours apart may begin on either side of one midnight. Errors are
/// those of the importer rmm-csv.
Result<ImportCounts> read_rmm_devices(std::span<const DeviceLog> logs, OperationSink& sink,
                                      const ImportOptions& options);

}  // namespace emm::trace
