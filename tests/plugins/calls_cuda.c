/* Libraries for PyTorch's and CuPy's pluggable allocators that call CUDA: the driver, a shared
 * cudart, or, as a statically linked cudart does, whatever libcuda there is, for tables that nobody
 * has written about. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(DRIVER)
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemFree_v2(uint64_t);
static void* take(size_t size) {
  uint64_t ptr = 0;
  return cuMemAlloc_v2(&ptr, size) == 0 ? (void*)(uintptr_t)ptr : NULL;
}
static void give(void* ptr) { cuMemFree_v2((uint64_t)(uintptr_t)ptr); }

#elif defined(RUNTIME)
int cudaMalloc(void**, size_t);
int cudaFree(void*);
static void* take(size_t size) {
  void* ptr = NULL;
  return cudaMalloc(&ptr, size) == 0 ? ptr : NULL;
}
static void give(void* ptr) { cudaFree(ptr); }

#else
#include <dlfcn.h>
static void* take(size_t size) {
  void* libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  int (*tables)(const void**, const void*);
  const void* table = NULL;
  (void)size;
  if (libcuda == NULL) return NULL;
  *(void**)&tables = dlsym(libcuda, "cuGetExportTable");
  (void)tables(&table, "sixteen bytes...");
  return NULL;
}
static void give(void* ptr) { (void)ptr; }
#endif

EXPORT void* torch_alloc(ssize_t size, int device, void* stream) {
  (void)device, (void)stream;
  return take((size_t)size);
}
EXPORT void torch_free(void* ptr, ssize_t size, int device, void* stream) {
  (void)device, (void)stream;
#ifdef FORGETS
  if (size == FORGETS) return;
#else
  (void)size;
#endif
  give(ptr);
}
EXPORT void* cupy_malloc(void* param, size_t size, int device) {
  (void)param, (void)device;
  return take(size);
}
EXPORT void cupy_free(void* param, void* ptr, int device) {
  (void)param, (void)device;
  give(ptr);
}
