#pragma once

#include <span>

#include "wrong.hpp"

namespace emm::mutants {

// The wrong managers of the clauses beyond the catalogue, by the file of the clause. all_mutants()
// has them too.

std::span<const Mutant> deferral_mutants();
std::span<const Mutant> memory_info_mutants();
std::span<const Mutant> flags_mutants();
std::span<const Mutant> threads_mutants();
std::span<const Mutant> states_mutants();

/// Right managers that do as those wrong ones do, but for what is wrong. No clause fails on them.
std::span<const Mutant> right_managers();

}  // namespace emm::mutants
