#pragma once

#include <cstdint>
#include <string>

#include "format/pickle.hpp"
#include "trace/importers/torch_pickle_baseline.hpp"

namespace emm::trace {

/// What a snapshot says beside its rows, for source.options: the allocator's settings as they stand
/// there, and the state at the end, added up.
std::string torch_pickle_options(const format::Pickle& pickle, format::PickleValue settings,
                                 const TorchState& state);

}  // namespace emm::trace
