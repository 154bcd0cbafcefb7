#include "conformance/clause.hpp"

namespace emm::conformance {
namespace {

constexpr Unjudged kUnjudged[] = {
    {"SEL-8", "One implementation for all contexts is the intended use.", "NBEP 7", "no requirement; SEL-6 shows mixtures"},
};

}  // namespace

std::span<const Unjudged> unjudged_clauses() noexcept { return kUnjudged; }

}  // namespace emm::conformance
