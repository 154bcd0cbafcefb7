#pragma once

#include <memory>

#include "driver/cuda/cuda_context.hpp"
#include "driver/driver.hpp"

namespace emm {

/// cudart over the primary context of a real device. Uses a shared libcudart of this machine:
/// version 13, else 12, else any, found by the loader or in /usr/local/cuda/lib64. Null if there is
/// none. Any thread may call.
std::unique_ptr<Runtime> make_cudart_runtime(std::shared_ptr<CudaContext> context);

}  // namespace emm
