#pragma once

#include "allocators/pytorch/recording.hpp"
#include "inspect/gap.hpp"

namespace emm::cli {

/// What the model of PyTorch's allocator knows of the blocks of a recording: how large each was,
/// and in which pool. Empty where the recording is none of PyTorch's.
inspect::KnownBlocks known_blocks(const inspect::Recording& recording,
                                  const inspect::Lifetimes& lifetimes,
                                  const allocators::pytorch::Recording& of_pytorch);

}  // namespace emm::cli
