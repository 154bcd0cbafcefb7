// A library of the shape of an older libcudart. None of its functions may run.
#include <cstddef>
#include <cstdlib>

#pragma GCC visibility push(default)
extern "C" {
int cudaMalloc(void**, std::size_t) { std::abort(); }
int cudaFree(void*) { std::abort(); }
int cudaMemGetInfo(std::size_t*, std::size_t*) { std::abort(); }
int cudaRuntimeGetVersion(int*) { std::abort(); }
int cudaGetDeviceProperties(void*, int) { std::abort(); }
int cudaGetDeviceProperties_v2(void*, int) { std::abort(); }
int cudaStreamSynchronize_ptsz(void*) { std::abort(); }
int cudaPointerGetAttributes(void*, const void*) { std::abort(); }
int cudaWonderOfOld() { std::abort(); }
}
#pragma GCC visibility pop
