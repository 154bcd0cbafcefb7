// A library of the shape of cuDNN: its cudart is linked in, and asks the driver for a table.
#include <dlfcn.h>

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
}
#pragma GCC visibility pop
