#include "driver/cuda/cuda_platform.hpp"

namespace emm {

extern constinit const DeviceEntry cuda_cuda_device{
    .name = "cuda",
    .summary =
        "The CUDA devices of this machine, or as many as a trace has from the one whose number "
        "follows a colon",
    .options = "a device number",
    .open = open_cuda_platform,
};

}  // namespace emm
