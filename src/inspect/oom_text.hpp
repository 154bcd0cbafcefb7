#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inspect/fit_check.hpp"
#include "inspect/oom.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {

/// What there is to say of the failure at `which`, for a person: a paragraph with the numbers, what
/// was live then, and what would have been enough.
std::string to_text(const Recording& recording, const Lifetimes& lifetimes, const OomReport& report,
                    std::size_t which, const Shown& shown);
/// What there is to say of a trace in which no request failed, of each device: would it fail with
/// `capacity`, where and why; or, of a state without history, what is held in it. `path` names the
/// trace in the commands that come next.
std::string to_text(const Recording& recording, const Lifetimes& lifetimes,
                    const std::vector<FitCheck>& fit_checks, std::string_view path,
                    const Shown& shown);
/// All of it, "emmctl.explain/2". Figures are of one device each: the outer ones of that of the
/// failure at `which`, or of the only one.
std::string to_json(const Recording& recording, const Lifetimes& lifetimes, const OomReport& report,
                    std::size_t which, const std::vector<FitCheck>& fit_checks, std::size_t top);

}  // namespace emm::inspect
