#pragma once

namespace emm::libemm {

/// While this exists, this thread may request memory from the driver although a stream is being
/// captured into a CUDA graph (cuThreadExchangeStreamCaptureMode, relaxed). PyTorch's own allocator
/// does the same. Does nothing if libcuda is not loaded.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(bool wanted) noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  bool exchanged_ = false;
  int before_ = 0;
};

}  // namespace emm::libemm
