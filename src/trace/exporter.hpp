#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/byte_sink.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Writes a trace as another tool's file, as it comes; what only the whole trace can tell is
/// written by finish().
class ExportSink : public OperationSink {
 public:
  /// What a person should know of what the format has no place for, a sentence each. After
  /// finish().
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 protected:
  /// "3 operations have no place in the format", where `count` is not 0.
  void note(std::uint64_t count, std::string_view words);

 private:
  std::vector<std::string> notes_;
};

/// One foreign format. The trace format itself is trace::make_writer's.
struct Exporter {
  std::string_view name;  ///< "rmm-csv", that of its importer where it has one.
  std::string_view summary;
  /// `out` outlives the sink, and is the caller's to close.
  std::unique_ptr<ExportSink> (*open)(format::ByteSink& out);
};

std::span<const Exporter* const> bundled_exporters();
/// Finds an exporter by its name. The usage error lists the known ones.
Result<const Exporter*> find_exporter(std::string_view name);

/// What the name of a file tells of its format, its ".gz" or ".zst" aside.
struct NamedFormat {
  std::string_view format{};  ///< "emm" or an exporter's; empty: the name tells nothing.
  std::string_view other{};   ///< One more format of that extension; empty where there is none.
};
NamedFormat format_named_by(std::string_view path);

}  // namespace emm::trace
