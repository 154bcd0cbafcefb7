/* What libraries for PyTorch's and CuPy's pluggable allocators look like from outside, without a
 * device: addresses that are nobody's, given in order. The counts say how they were called. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

struct calls {
  uint64_t allocs, frees, bytes, inits, resets;
  int device;
  void* stream;
};
EXPORT struct calls foreign_calls;

static const uint64_t kBase = UINT64_C(0x7e0000000000);
static const uint64_t kLargest = UINT64_C(1) << 40;
static uint64_t next;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void* take(size_t size, int device, void* stream) {
  void* ptr = NULL;
  pthread_mutex_lock(&mutex);
  if (size > 0 && size <= kLargest) {
    ptr = (void*)(uintptr_t)(kBase + next);
    next += (size + 511) / 512 * 512;
    ++foreign_calls.allocs;
    foreign_calls.bytes += size;
    foreign_calls.device = device;
    foreign_calls.stream = stream;
  }
  pthread_mutex_unlock(&mutex);
  return ptr;
}

static void give(size_t size) {
  pthread_mutex_lock(&mutex);
  ++foreign_calls.frees;
  foreign_calls.bytes -= size;
  pthread_mutex_unlock(&mutex);
}

EXPORT void* torch_alloc(ssize_t size, int device, void* stream) {
  return take((size_t)size, device, stream);
}
EXPORT void torch_free(void* ptr, ssize_t size, int device, void* stream) {
  (void)ptr, (void)device, (void)stream;
  give((size_t)size);
}
EXPORT void torch_init(int device_count) { foreign_calls.inits += (uint64_t)device_count; }
EXPORT void torch_reset(void) { ++foreign_calls.resets; }

EXPORT void* cupy_malloc(void* param, size_t size, int device) {
  return param == NULL ? take(size, device, NULL) : NULL;
}
EXPORT void cupy_free(void* param, void* ptr, int device) {
  (void)param, (void)ptr, (void)device;
  give(0);
}
