#include "driver/cuda/cuda_platform.hpp"

namespace emm {

Result<std::unique_ptr<Platform>> open_cuda_platform(std::string_view, const DeviceDefaults&) {
  return fail(Errc::no_device,
              "this build has no real devices (<cuda.h> was not found); --device sim needs none");
}

}  // namespace emm
