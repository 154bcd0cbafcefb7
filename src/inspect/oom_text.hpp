#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inspect/fit_check.hpp"
#include "inspect/oom.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {

/// Describes the failure at `which` for a person: a paragraph with the numbers, what was live then,
/// and what would have been enough.
std::string to_text(const Recording& recording, const Lifetimes& lifetimes, const OomReport& report,
                    std::size_t which, const Shown& shown);
/// Describes each device of a trace in which no request failed: whether one would fail with
/// `capacity`, where and why; or what a state without history holds. `path` names the trace in the
/// commands that the text suggests.
std::string to_text(const Recording& recording, const Lifetimes& lifetimes,
                    const std::vector<FitCheck>& fit_checks, std::string_view path,
                    const Shown& shown);
/// Writes all of it as "emmctl.explain/2". The outer figures are those of the device of the failure
/// at `which`, or of the only device.
std::string to_json(const Recording& recording, const Lifetimes& lifetimes, const OomReport& report,
                    std::size_t which, const std::vector<FitCheck>& fit_checks, std::size_t top);

}  // namespace emm::inspect
