#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::trace {

inline constexpr std::string_view kHeaderLine =
    "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n";

/// Lines under the shortest header.
inline std::string with_header(std::string_view lines) {
  return std::string(kHeaderLine).append(lines);
}

/// Forgets what it is told.
class NullSink final : public OperationSink {
 public:
  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation&) override { return {}; }
};

/// The text as it comes out of the writer, or what is wrong with it.
inline std::string rewritten(std::string_view text, Form form, const ReadOptions& options = {}) {
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto writer = make_writer(*sink, form);
  const auto source = format::ByteSource::memory(text, "x.json");
  const auto summary = read(*source, *writer, options);
  return summary ? out : describe(summary.error());
}

/// What is wrong with the text, "" if nothing.
inline std::string refusal(std::string_view text, const ReadOptions& options = {}) {
  NullSink sink;
  const auto source = format::ByteSource::memory(text, "x.json");
  const auto summary = read(*source, sink, options);
  return summary ? "" : describe(summary.error());
}

inline Result<Trace> loaded(std::string_view text) {
  Trace trace;
  trace.set_source("x.json");
  const auto source = format::ByteSource::memory(text, "x.json");
  if (auto summary = read(*source, trace); !summary) return summary.error();
  return trace;
}

}  // namespace emm::trace
