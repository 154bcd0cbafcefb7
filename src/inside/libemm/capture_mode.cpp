#include "libemm/capture_mode.hpp"

#include <dlfcn.h>

namespace emm::libemm {
namespace {

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

using Exchange = int (*)(int* mode);

Exchange exchange_of_driver() noexcept {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  return reinterpret_cast<Exchange>(::dlsym(driver, "cuThreadExchangeStreamCaptureMode"));
}

Exchange exchange() noexcept {
  static const auto found = exchange_of_driver();
  return found;
}

}  // namespace

RelaxedCapture::RelaxedCapture(bool wanted) noexcept {
  if (!wanted || exchange() == nullptr) return;
  before_ = kRelaxed;
  exchanged_ = exchange()(&before_) == 0;
}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) exchange()(&before_);
}

}  // namespace emm::libemm
