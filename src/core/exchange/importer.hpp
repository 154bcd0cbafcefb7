#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/operation_sink.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// What became of the rows of a file. rows = used + unmatched + duplicate + other + truncated.
struct ImportCounts {
  std::uint64_t rows = 0;       ///< Rows read, without headers.
  std::uint64_t used = 0;       ///< Became an operation (or part of one).
  std::uint64_t unmatched = 0;  ///< A free of memory whose allocation the file does not show.
  std::uint64_t duplicate = 0;  ///< A repetition of an earlier row.
  std::uint64_t other = 0;  ///< Rows without an allocation event, skipped on purpose; see notes.
  std::uint64_t truncated = 0;     ///< Damaged at the end of the file.
  std::vector<std::string> notes;  ///< Sentences for the user.
};

/// The `seq` of each request by the number that the recorder gave it.
using RequestPlaces = std::unordered_map<std::uint64_t, std::uint64_t>;

struct ImportOptions {
  bool partial = false;
  /// Given when the file records driver calls and goes beneath a recording of what frameworks asked
  /// for: the requests of that recording. The calls then keep their own `seq`, get the layer
  /// `backing`, and name the request that caused them as `parent`.
  const RequestPlaces* requests = nullptr;
};

/// One foreign format. The trace format itself is the importer `emm`.
struct Importer {
  std::string_view name;  ///< "rmm-csv"
  std::string_view summary;
  bool from_documentation;  ///< The format was never tried on a real sample.
  /// Confidence, 0 to 100, that a file with this beginning has the format. `prefix` is at most 64
  /// KiB.
  int (*sniff)(std::string_view prefix);
  Result<ImportCounts> (*read)(format::ByteSource& source, OperationSink& sink,
                               const ImportOptions& options);
  bool is_also_log = false;  ///< Messages of running out of memory may stand in such a file, too.
};

std::span<const Importer* const> bundled_importers();

/// The importer with the highest confidence in the file's content. unknown_format, with the
/// known formats, if none is confident. Consumes nothing.
Result<const Importer*> detect(format::ByteSource& source);
/// Finds an importer by its name.
Result<const Importer*> find_importer(std::string_view name);

}  // namespace emm::trace
