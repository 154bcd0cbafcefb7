#pragma once

#include "allocators/pytorch/recording.hpp"
#include "inspect/gap.hpp"

namespace emm::cli {

/// What the model of PyTorch's allocator knows of the blocks of a recording: the size and the pool
/// of each. Empty if PyTorch did not make the recording.
inspect::KnownBlocks known_blocks(const inspect::Recording& recording,
                                  const trace::Lifetimes& lifetimes,
                                  const allocators::pytorch::Recording& of_pytorch);

}  // namespace emm::cli
