// Prints what a build without the CUDA toolkit answers to --device cuda.
#include <cstdio>

#include "driver/cuda/cuda_platform.hpp"

int main() {
  const auto platform = emm::open_cuda_platform("", {});
  std::printf("%s\n", platform ? "opened" : emm::describe(platform.error()).c_str());
}
