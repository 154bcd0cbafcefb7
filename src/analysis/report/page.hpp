#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/members.hpp"
#include "format/json_value.hpp"
#include "inspect/fit_check.hpp"
#include "inspect/gap.hpp"
#include "report/recorded.hpp"
#include "report/replayed.hpp"
#include "trace/lifetimes.hpp"

namespace emm::report {

/// One trace or result in the form that the page holds.
struct PagePart {
  std::string json;     ///< An object: what the page shows at once.
  std::string payload;  ///< A trace's events, packed. The page unpacks them on demand.
  std::string places;   ///< Where the memory lay, packed. The page unpacks it last.
};

/// Builds the part of a trace and of the managers that it was replayed on. The events go into the
/// payload as columns, from which the page computes every number exactly. `known` is what a model
/// knows of the recorded manager's blocks, `checks` are fit_checks() of the recording. `path` names
/// the trace in the commands that the page suggests.
PagePart trace_part(const Recorded& recorded, const trace::Lifetimes& lifetimes,
                    const std::vector<Replayed>& managers, const inspect::KnownBlocks& known,
                    const std::vector<inspect::FitCheck>& checks, std::string_view path);
/// Builds the part of a result that another command wrote with --json. `value` names its schema.
PagePart result_part(const format::JsonValue& value, std::string_view path);

/// How and where the page was made.
struct Origin {
  std::string title, command, version, machine, time;
};
EMM_MEMBERS_OF(Origin, title, command, version, machine, time)

/// The whole page: HTML that contains its style, its programs and its data. It loads nothing else,
/// and a Content-Security-Policy enforces that.
std::string page(const Origin& origin, const std::vector<PagePart>& traces,
                 const std::vector<PagePart>& results);

}  // namespace emm::report
