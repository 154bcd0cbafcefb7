#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/byte_source.hpp"
#include "inspect/recording.hpp"
#include "trace/reader.hpp"

namespace emm::inspect {

/// A recording of lines under a header with `members` ("" or starting with a comma).
inline std::unique_ptr<Recording> recorded(std::string_view lines, std::string_view members = "") {
  auto text =
      std::string("{\"format\":\"emmctl-trace\",\"version\":\"1.0\"").append(members) + "}\n";
  text.append(lines);
  auto recording = std::make_unique<Recording>();
  recording->set_source("x.jsonl");
  const auto source = format::ByteSource::memory(text, "x.jsonl");
  const auto read = trace::read(*source, *recording);
  EMM_ASSERT(read.has_value());
  return recording;
}

}  // namespace emm::inspect
