// A program of CUDA 12 or 11 (EMM_CUDA) with a shared cudart.
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
int cudaMalloc(void**, std::size_t);
int cudaRuntimeGetVersion(int*);
int cudaGetDeviceProperties_v2(void*, int);
int cudaGetDeviceProperties(void*, int);
int cudaStreamSynchronize_ptsz(void*);
int cudaWonderOfOld();
int cudaPointerGetAttributes(void*, const void*);
}

int main() {
  int version = 0;
  cudaRuntimeGetVersion(&version);
  // cudaDeviceProp of CUDA 12, which begins as that of CUDA 11 does: the members that are asked for
  // most, and where they are.
  static unsigned char properties[1032 + 64];
  std::memset(properties, 0xee, sizeof properties);
  const auto ask = EMM_CUDA == 11 ? cudaGetDeviceProperties : cudaGetDeviceProperties_v2;
  if (ask(properties, 0) != 0) return 1;
  const auto number = [&](std::size_t at) {
    int value = 0;
    std::memcpy(&value, properties + at, sizeof value);
    return value;
  };
  std::size_t total = 0, optin = 0;
  std::memcpy(&total, properties + 288, sizeof total);
  std::memcpy(&optin, properties + 696, sizeof optin);
  std::printf("version %d, %s, %zu bytes, sm_%d%d, %d multiprocessors, opt-in %zu, after it %x\n",
              version, reinterpret_cast<char*>(properties), total, number(360), number(364),
              number(388), optin, properties[1032]);
  void* memory = nullptr;
  const auto code = cudaMalloc(&memory, std::size_t{1} << 20);
  unsigned char attributes[24 + 8];
  std::memset(attributes, 0xee, sizeof attributes);
  cudaPointerGetAttributes(attributes, memory);
  std::printf("of type %d, after it %x\n", attributes[0], attributes[24]);
  std::printf("malloc %d, wonder %d, stream %d\n", code, cudaWonderOfOld(),
              cudaStreamSynchronize_ptsz(nullptr));
}
