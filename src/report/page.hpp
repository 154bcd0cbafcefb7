#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/json_value.hpp"
#include "inspect/gap.hpp"
#include "inspect/lifetimes.hpp"
#include "report/recorded.hpp"
#include "report/replayed.hpp"

namespace emm::report {

/// One trace or result as the page has it.
struct Part {
  std::string json;     ///< An object: what is shown at once.
  std::string payload;  ///< A trace's events, packed; the page unpacks it when it is looked at.
  std::string places;   ///< Where its memory lay, the same; unpacked after all else is shown.
};

/// A trace, and the managers that it was replayed on. The events go into the payload as columns,
/// from which the page works out every number for itself, exactly. `known` is what a model knows of
/// the recorded manager's blocks. `path` names the trace in the commands that the page suggests.
Part trace_part(const Recorded& recorded, const inspect::Lifetimes& lifetimes,
                const std::vector<Replayed>& managers, const inspect::KnownBlocks& known,
                std::string_view path);
/// What another command wrote with --json. `value` names its schema.
Part result_part(const format::JsonValue& value, std::string_view path);

/// How the page was made.
struct Origin {
  std::string title, command, version, machine, time;
};

/// The whole page: HTML with its style, its programs and its data inside. It asks for nothing else,
/// and a Content-Security-Policy holds it to that.
std::string page(const Origin& origin, const std::vector<Part>& traces,
                 const std::vector<Part>& results);

/// A file of src/report/page; "dygraph.js"; or the "version" of emmctl.
std::string_view page_file(std::string_view name);

}  // namespace emm::report
