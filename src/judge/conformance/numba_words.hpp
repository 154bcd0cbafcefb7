#pragma once

#include <string_view>

namespace emm::conformance {

/// What a broken rule means for somebody who writes an NBEP 7 class.
struct NumbaWords {
  std::string_view id;        ///< The clause's.
  std::string_view then;      ///< What Numba, or its user, then sees.
  std::string_view sentence;  ///< What NBEP 7, or Numba's documentation of it, asks.
};

/// Null: nothing more is to be said than the clause's rule.
const NumbaWords* find_numba_words(std::string_view id) noexcept;

}  // namespace emm::conformance
