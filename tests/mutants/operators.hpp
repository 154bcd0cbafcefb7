#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/subject.hpp"
#include "conformance/suite.hpp"
#include "driver/types.hpp"

namespace emm::mutants {

/// One mechanical mistake: what is done to each driver call of one kind, of one bundled manager.
struct Operator {
  enum class Kind : std::uint8_t {
    drop,          ///< The call is not made, and answered with success.
    twice,         ///< Made twice; the first answer counts.
    late,          ///< Made with the next call of its kind; answered with success.
    ignore_error,  ///< An error is answered with success.
    invent_error,  ///< Success is answered with out of memory, for a request; for an end with
                   ///< invalid value.
    size_less,     ///< One byte less is asked for.
    size_more,     ///< One byte more.
    size_half,
    size_twice,
    next_address,  ///< The address in the call, or in its answer, is 512 bytes later.
    other_flags,   ///< The flags of the call are others.
    wrong_stream,  ///< The default stream is named.
  };

  std::string manager;
  Kind kind{};
  Call call{};
  std::uint64_t nth = 0;  ///< Only the n-th call, counted from 1; 0: all.

  std::string name() const;  ///< "pool: mem_free, late, all"
};

/// Every operator on every call that makes sense, over `default` and `pool`: the fixed list.
std::vector<Operator> all_operators();
/// Who is judged when an operator is.
conformance::Subject subject_of(const Operator& mistake);

/// The first of these clauses that fails on it, or that it breaks; null where it survives.
const conformance::Clause* first_that_fails(
    const conformance::Subject& subject,
    std::span<const conformance::Clause* const> clauses = conformance::select({}));

}  // namespace emm::mutants
