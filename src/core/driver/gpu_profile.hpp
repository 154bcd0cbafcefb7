#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm {

/// What a driver answered for CU_DEVICE_ATTRIBUTE_*.
struct GpuAttribute {
  int number = 0, value = 0;
};

/// What CUDA's libraries and PyTorch take of a card for themselves, outside of any allocator, in
/// bytes and whole granules. `tools/measure-libraries` prints such a row.
struct LibraryMemory {
  std::uint64_t blas_handle = 0;    ///< Each handle of cuBLAS.
  std::uint64_t dnn_handle = 0;     ///< Each handle of cuDNN.
  std::uint64_t solver_handle = 0;  ///< Each handle of cuSOLVER for dense matrices.
  std::uint64_t fft_first = 0;      ///< The first plan of cuFFT.
  /// What the first handle of these libraries takes besides, for what is small.
  std::uint64_t first_handle = 0;
  /// PyTorch's own kernels, once the first kernel runs.
  std::uint64_t pytorch_kernels = 0;
  /// What kernels of cuBLAS take once, after some tens of products. It counts at the first handle:
  /// so a program of a few products is said to take as much more than it does.
  std::uint64_t blas_kernels = 0;
  std::string_view source;  ///< Where they were measured.

  /// What a training of PyTorch's on one stream takes: a handle of cuBLAS forward and one backward.
  std::uint64_t of_training() const noexcept {
    return pytorch_kernels + first_handle + 2 * blas_handle + blas_kernels;
  }
  /// What so many streams of a context take together.
  static std::uint64_t of_streams(std::uint64_t streams) noexcept;
};

/// What a program can ask about a card, for the simulated device. 0 means that the figure is not
/// known of this card.
struct GpuProfile {
  std::string_view name;    ///< As in `--device sim:gpu=NAME`.
  std::string_view device;  ///< What cuDeviceGetName answers.
  std::uint64_t total = 0;  ///< Bytes, as cuDeviceTotalMem tells them.
  /// Bytes that are not free once a program has a context.
  std::uint64_t context = 0;
  int major = 0, minor = 0;  ///< Compute capability.
  int multiprocessors = 0;
  int clock_khz = 0;  ///< The highest clock of the multiprocessors.
  int memory_clock_khz = 0;
  int bus_bits = 0;
  std::uint64_t l2 = 0;     ///< Bytes of the L2 cache.
  std::string_view source;  ///< Where the size of the memory comes from.
  /// Null where it was not measured.
  const LibraryMemory* libraries = nullptr;
  /// All that a card's own driver answered, by number; empty for a card of the table.
  std::span<const GpuAttribute> attributes{};
  /// One of these; none if there is none of that number.
  std::optional<int> attribute(int number) const noexcept;

  // These follow from the compute capability (CUDA C++ Programming Guide, "Compute Capabilities").
  int threads_of_multiprocessor() const noexcept;
  int blocks_of_multiprocessor() const noexcept;
  int shared_of_multiprocessor() const noexcept;  ///< Bytes of shared memory.
  int shared_of_block_optin() const noexcept;     ///< Bytes of it that one block may ask for.
  int shared_reserved() const noexcept;           ///< Bytes of it that CUDA takes of each block.
};

/// The step of physical memory: cuMemGetAllocationGranularity, the same on all of these cards.
inline constexpr std::uint64_t kGpuGranule = std::uint64_t{2} << 20;

/// The first is the one that is simulated where nothing is said.
std::span<const GpuProfile> gpu_profiles();
/// Null if there is none of that name.
const GpuProfile* find_gpu_profile(std::string_view name);
/// "h200, h100, ...".
std::string gpu_profile_names();

}  // namespace emm
