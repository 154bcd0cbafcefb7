#pragma once

#include <cstdint>
#include <string>

#include "exchange/importers/torch_pickle_baseline.hpp"
#include "format/pickle.hpp"

namespace emm::trace {

/// The JSON of source.options: the allocator's settings in the snapshot and the totals of the state
/// at the end.
std::string torch_pickle_options(const format::Pickle& pickle, format::PickleValue settings,
                                 const TorchState& state);

}  // namespace emm::trace
