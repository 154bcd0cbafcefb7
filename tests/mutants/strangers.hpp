#pragma once

#include <span>
#include <string_view>

#include "wrong.hpp"

namespace emm::mutants {

/// A wrong manager that was written for no clause: some clause fails on it, whichever.
struct Stranger {
  std::string_view wrong;  ///< What it does, in a sentence.
  std::string_view over = "default";
  void (*make)(WrongManager& manager) = nullptr;
};

std::span<const Stranger> all_strangers();

/// Who is judged when a stranger is.
conformance::Subject subject_of(const Stranger& stranger);

}  // namespace emm::mutants
