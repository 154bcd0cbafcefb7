// A library of the shape of cuDNN: its cudart is linked in, and asks the driver for a table.
#include <dlfcn.h>

#include <cstdlib>

#pragma GCC visibility push(default)
extern "C" {
long cudnnGetVersion() { return 91002; }
int cudnnCreate(void**) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto ask =
      reinterpret_cast<int (*)(const void**, const void*)>(dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  return init(0) == 0 && ask(&table, "sixteen letters!") == 0 ? 0 : 1;  // NOT_INITIALIZED
}

// None of these may run where cuDNN is stood in for.
#define EMM_FAKE(name) \
  int name() { std::abort(); }
EMM_FAKE(cudnnGetProperty)
EMM_FAKE(cudnnDestroy)
EMM_FAKE(cudnnSetStream)
EMM_FAKE(cudnnGetStream)
EMM_FAKE(cudnnCreateTensorDescriptor)
EMM_FAKE(cudnnSetTensorNdDescriptor)
EMM_FAKE(cudnnDestroyTensorDescriptor)
EMM_FAKE(cudnnBackendCreateDescriptor)
EMM_FAKE(cudnnBackendDestroyDescriptor)
EMM_FAKE(cudnnBackendFinalize)
EMM_FAKE(cudnnBackendSetAttribute)
EMM_FAKE(cudnnBackendGetAttribute)
EMM_FAKE(cudnnBackendExecute)
EMM_FAKE(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)
EMM_FAKE(cudnnBatchNormalizationForwardTrainingEx)
EMM_FAKE(cudnnCreateRNNDescriptor)
}
#pragma GCC visibility pop
