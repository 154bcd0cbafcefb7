#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// What became of the rows of a file. rows = used + unmatched + duplicate + other + truncated.
struct ImportCounts {
  std::uint64_t rows = 0;          ///< Read, headers not counted.
  std::uint64_t used = 0;          ///< Became an operation (or part of one).
  std::uint64_t unmatched = 0;     ///< A free of something never allocated here.
  std::uint64_t duplicate = 0;     ///< Said again what an earlier row said.
  std::uint64_t other = 0;         ///< Rows that carry no allocation event, by intent; see notes.
  std::uint64_t truncated = 0;     ///< Damaged at the end of the file.
  std::vector<std::string> notes;  ///< What a person should know, a sentence each.
};

/// The `seq` of each request by the number that the recorder gave it.
using RequestPlaces = std::unordered_map<std::uint64_t, std::uint64_t>;

struct ImportOptions {
  bool partial = false;
  /// Of a recording of the driver's calls that goes beneath a recording of what frameworks asked
  /// for: its requests. The calls then have their own `seq`, the layer `backing` and the `parent`
  /// that caused them.
  const RequestPlaces* requests = nullptr;
};

/// One foreign format. The trace format itself is the importer `emm`.
struct Importer {
  std::string_view name;  ///< "rmm-csv"
  std::string_view summary;
  bool from_documentation;  ///< No real sample was there to try it on.
  /// How sure, 0 to 100, that a file which begins so is of this format. `prefix` is at most 64 KiB.
  int (*sniff)(std::string_view prefix);
  Result<ImportCounts> (*read)(format::ByteSource& source, OperationSink& sink,
                               const ImportOptions& options);
};

std::span<const Importer* const> bundled_importers();

/// The importer that is surest of the file, by content; parse_error naming the file and the known
/// formats where none is sure. Does not consume anything.
Result<const Importer*> detect(format::ByteSource& source);
/// Finds an importer by its name.
Result<const Importer*> find_importer(std::string_view name);

}  // namespace emm::trace
