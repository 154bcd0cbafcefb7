#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/byte_sink.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// Writes a trace as another tool's file while the trace arrives. finish() writes what needs the
/// whole trace.
class ExportSink : public OperationSink {
 public:
  /// What the format could not hold, as sentences for the user. After finish().
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 protected:
  /// Adds the note "3 operations have no place in the format", unless `count` is 0.
  void note(std::uint64_t count, std::string_view words);

 private:
  std::vector<std::string> notes_;
};

/// One foreign format. trace::make_writer() writes the trace format itself.
struct Exporter {
  std::string_view name;  ///< "rmm-csv"; the same as its importer's, if there is one.
  std::string_view summary;
  /// A file of such a name is written in this format, unless the user names one. Where several
  /// formats have an extension, the one that is listed first is meant.
  std::array<std::string_view, 2> extensions{};
  /// `out` outlives the sink, and is the caller's to close.
  std::unique_ptr<ExportSink> (*open)(format::ByteSink& out);
};
/// Exporter::open of a class that is made of `out`.
template <class Sink>
std::unique_ptr<ExportSink> open_export(format::ByteSink& out) {
  return std::make_unique<Sink>(out);
}

std::span<const Exporter* const> bundled_exporters();
/// Finds an exporter by its name. The usage error lists the known ones.
Result<const Exporter*> find_exporter(std::string_view name);

/// What a file's name tells about its format, apart from ".gz" or ".zst".
struct NamedFormat {
  std::string_view
      format{};  ///< "emm" or an exporter's name; empty if the file's name tells nothing.
  std::string_view other{};  ///< A second format with this extension; empty if there is none.
};
NamedFormat format_named_by(std::string_view path);

}  // namespace emm::trace
