#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

/// A trace of JSON Lines: a header, and then `lines`.
struct Lines {
  std::string text;

  explicit Lines(std::string_view lines)
      : text("{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n" + std::string(lines)) {}

  Status read(trace::OperationSink& to) const {
    const auto source = format::ByteSource::memory(text, "x.jsonl");
    const auto done = trace::read(*source, to);
    return done ? Status() : Status(done.error());
  }
  trace::Trace trace() const {
    trace::Trace trace;
    trace.set_source("x.jsonl");
    const auto done = read(trace);
    EXPECT_TRUE(done) << describe(done.error());
    return trace;
  }
};

inline std::string alloc(std::string_view id, std::uint64_t size, std::string_view more = "") {
  return text::format("{\"op\":\"memalloc\",\"id\":\"{}\",\"size\":{}{}}\n", id, size, more);
}
inline std::string free(std::string_view id) {
  return text::format("{\"op\":\"free\",\"id\":\"{}\"}\n", id);
}

inline Setting with(std::string_view manager, const std::vector<std::string>& adaptors = {}) {
  auto found = find_manager(manager, adaptors);
  EXPECT_TRUE(found) << describe(found.error());
  return {.manager = std::move(*found)};
}

}  // namespace emm::trial
