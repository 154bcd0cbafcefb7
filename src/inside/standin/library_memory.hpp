#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

/// What CUDA's libraries and PyTorch's kernels take of the device for themselves, outside of any
/// allocator (GpuProfile::libraries). It is taken where a card would take it, so that what is free,
/// and what is refused, is as there. Nothing is taken where the card's row has no figures, or
/// `--device sim` was told a capacity and no card.
namespace emm::standin {

/// Who takes.
enum LibraryTaker : int { blas_handle, dnn_handle, solver_handle, fft_plan };

/// What a context's libraries have taken so far.
struct LibraryUse {
  std::mutex mutex;
  bool has_handle = false, has_blas = false, has_plan = false;
  std::atomic<bool> has_pytorch{false};
  std::uint64_t streams = 0;  ///< Those that live.
  std::uint64_t most = 0;     ///< The most that lived at a time: CUDA keeps their memory.
  std::uint64_t bytes = 0;    ///< Of all takers.
};

/// A kernel is about to run in the calling thread's context. Returns a CUresult, as the others do:
/// 2 if there is no room for what PyTorch's first kernel loads.
std::int32_t take_for_kernel();
/// A stream is about to be made there, was made, or has ended. Only in a context that has ended is
/// none made, and what that counts does not matter.
std::int32_t take_for_stream();
void begin_stream(std::uint64_t stream);
void end_stream(std::uint64_t stream);

}  // namespace emm::standin

// Not CUDA functions. The answers to the libraries call them.
extern "C" {
/// `holder`: what to give to emm_standin_release_of_library; null if nothing was taken.
std::int32_t emm_standin_take_for_library(int taker, void** holder);
void emm_standin_release_of_library(int taker, void* holder);
}
