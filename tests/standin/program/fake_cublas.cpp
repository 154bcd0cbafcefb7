// A library of the shape of cuBLAS: versions of its own, functions that emmctl answers and others
// that it never heard of. None of them may run.
#include <cstdlib>

#pragma GCC visibility push(default)
extern "C" {
int cublasCreate_v2(void**) { std::abort(); }
int cublasDestroy_v2(void*) { std::abort(); }
int cublasGetVersion_v2(void*, int*) { std::abort(); }
int cublasSetStream_v2(void*, void*) { std::abort(); }
int cublasGetStream_v2(void*, void**) { std::abort(); }
int cublasSgemm_v2() { std::abort(); }
int cublasWonder() { std::abort(); }
}
#pragma GCC visibility pop
