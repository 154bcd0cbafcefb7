#pragma once

#include <functional>
#include <string_view>

namespace emm::conformance {

/// Calls `cell` for each cell of the generated matrices, in the order in which the clauses ask
/// them. The tables that drive the clauses are the only source, so docs/conformance.md cannot show
/// a pair that nobody asks.
using CombinationCell =
    std::function<void(std::string_view clause, std::string_view row, std::string_view column)>;
void for_each_state_cell(const CombinationCell& cell);     ///< clauses/states.cpp
void for_each_handover_cell(const CombinationCell& cell);  ///< clauses/handovers.cpp
void for_each_refusal_cell(const CombinationCell& cell);   ///< clauses/refusals.cpp

}  // namespace emm::conformance
