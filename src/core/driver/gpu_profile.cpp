#include "driver/gpu_profile.hpp"

#include "base/units.hpp"

namespace emm {
namespace {

/// Bytes of a size in GiB that PyTorch prints with two decimals, in whole steps of 2 MiB and never
/// more than it.
constexpr std::uint64_t gib(double printed) {
  return static_cast<std::uint64_t>(printed * 512) * kGpuGranule;
}

// Where the size of a card's memory comes from. It was measured here, or a public report shows what
// deviceQuery or (to 0.01 GiB) PyTorch printed, or no report of it was found.
constexpr std::string_view kMeasured = "measured";
constexpr std::string_view kPrinted = "deviceQuery";
constexpr std::string_view kMessages = "PyTorch";
constexpr std::string_view kUnchecked = "not checked";

constexpr LibraryMemory kLibrariesOfH200{.blas_handle = 64_MiB,
                                         .dnn_handle = 8_MiB,
                                         .solver_handle = 96_MiB,
                                         .fft_first = 8_MiB,
                                         .first_handle = 2_MiB,
                                         .pytorch_kernels = 92_MiB,
                                         .blas_kernels = 2_MiB,
                                         .source = "CUDA 13, cuDNN 9 and PyTorch 2.11"};

// One row a card. Clocks, widths and caches were not checked. What a context
// takes was measured on the H200 alone.
constexpr GpuProfile kProfiles[] = {
    {.name = "h200",
     .device = "NVIDIA H200",
     .total = 150'109'880'320,
     .context = 150'109'880'320 - 149'557'477'376,
     .major = 9,
     .minor = 0,
     .multiprocessors = 132,
     .clock_khz = 1'980'000,
     .memory_clock_khz = 3'201'000,
     .bus_bits = 6144,
     .l2 = 60_MiB,
     .source = kMeasured,
     .libraries = &kLibrariesOfH200},
    {.name = "h100",
     .device = "NVIDIA H100 80GB HBM3",
     .total = gib(79.19),
     .major = 9,
     .minor = 0,
     .multiprocessors = 132,
     .clock_khz = 1'980'000,
     .memory_clock_khz = 2'619'000,
     .bus_bits = 5120,
     .l2 = 50_MiB,
     .source = kUnchecked},
    {.name = "b200",
     .device = "NVIDIA B200",
     .total = gib(178.35),
     .major = 10,
     .minor = 0,
     .multiprocessors = 148,
     .clock_khz = 1'965'000,
     .memory_clock_khz = 3'996'000,
     .bus_bits = 7680,
     .l2 = 129'536_KiB,
     .source = kMessages},
    {.name = "a100-80g",
     .device = "NVIDIA A100-SXM4-80GB",
     .total = gib(79.25),
     .major = 8,
     .minor = 0,
     .multiprocessors = 108,
     .clock_khz = 1'410'000,
     .memory_clock_khz = 1'593'000,
     .bus_bits = 5120,
     .l2 = 40_MiB,
     .source = kMessages},
    {.name = "a100-40g",
     .device = "NVIDIA A100-SXM4-40GB",
     .total = 42'298'834'944,
     .major = 8,
     .minor = 0,
     .multiprocessors = 108,
     .clock_khz = 1'410'000,
     .memory_clock_khz = 1'215'000,
     .bus_bits = 5120,
     .l2 = 40_MiB,
     .source = kPrinted},
    {.name = "l40s",
     .device = "NVIDIA L40S",
     .total = gib(44.40),
     .major = 8,
     .minor = 9,
     .multiprocessors = 142,
     .clock_khz = 2'520'000,
     .memory_clock_khz = 9'001'000,
     .bus_bits = 384,
     .l2 = 96_MiB,
     .source = kUnchecked},
    {.name = "l4",
     .device = "NVIDIA L4",
     .total = gib(22.03),
     .major = 8,
     .minor = 9,
     .multiprocessors = 58,
     .clock_khz = 2'040'000,
     .memory_clock_khz = 6'251'000,
     .bus_bits = 192,
     .l2 = 48_MiB,
     .source = kMessages},
    {.name = "rtx4090",
     .device = "NVIDIA GeForce RTX 4090",
     .total = gib(23.52),
     .major = 8,
     .minor = 9,
     .multiprocessors = 128,
     .clock_khz = 2'520'000,
     .memory_clock_khz = 10'501'000,
     .bus_bits = 384,
     .l2 = 72_MiB,
     .source = kMessages},
    {.name = "rtx3090",
     .device = "NVIDIA GeForce RTX 3090",
     .total = gib(23.69),
     .major = 8,
     .minor = 6,
     .multiprocessors = 82,
     .clock_khz = 1'695'000,
     .memory_clock_khz = 9'751'000,
     .bus_bits = 384,
     .l2 = 6_MiB,
     .source = kUnchecked},
    {.name = "t4",
     .device = "Tesla T4",
     .total = gib(14.56),
     .major = 7,
     .minor = 5,
     .multiprocessors = 40,
     .clock_khz = 1'590'000,
     .memory_clock_khz = 5'001'000,
     .bus_bits = 256,
     .l2 = 4_MiB,
     .source = kMessages},
    {.name = "v100",
     .device = "Tesla V100-SXM2-16GB",
     .total = gib(15.77),
     .major = 7,
     .minor = 0,
     .multiprocessors = 80,
     .clock_khz = 1'530'000,
     .memory_clock_khz = 877'000,
     .bus_bits = 4096,
     .l2 = 6_MiB,
     .source = kUnchecked},
};

struct Capability {
  int number;  // ten times the major part, and the minor one
  int threads, blocks, shared_kib, optin_kib;
};
constexpr Capability kCapabilities[] = {
    {70, 2048, 32, 96, 96},    {75, 1024, 16, 64, 64},  {80, 2048, 32, 164, 163},
    {86, 1536, 16, 100, 99},   {89, 1536, 24, 100, 99}, {90, 2048, 32, 228, 227},
    {100, 2048, 32, 228, 227},
};

const Capability& capability_of(const GpuProfile& gpu) noexcept {
  const auto number = gpu.major * 10 + gpu.minor;
  const Capability* found = kCapabilities;
  for (const auto& one : kCapabilities) {
    if (one.number <= number) found = &one;  // they are in order
  }
  return *found;
}

}  // namespace

std::optional<int> GpuProfile::attribute(int number) const noexcept {
  for (const auto& one : attributes) {
    if (one.number == number) return one.value;
  }
  return std::nullopt;
}
// An H200 had taken 2, 4, 8, 16, 34, 70 and 86 MiB once 2, 8, 16, 32, 64, 128 and 160 streams were
// made, and nothing for one. This gives each of these figures.
std::uint64_t LibraryMemory::of_streams(std::uint64_t streams) noexcept {
  constexpr std::uint64_t kShare = 4;     // streams share a granule
  constexpr std::uint64_t kFurther = 42;  // after so many there is one granule more
  const auto granules = streams / kShare + streams / kFurther;
  return (streams >= 2 && granules == 0 ? 1 : granules) * kGpuGranule;
}

int GpuProfile::threads_of_multiprocessor() const noexcept { return capability_of(*this).threads; }
int GpuProfile::blocks_of_multiprocessor() const noexcept { return capability_of(*this).blocks; }
int GpuProfile::shared_of_multiprocessor() const noexcept {
  return capability_of(*this).shared_kib * 1024;
}
int GpuProfile::shared_of_block_optin() const noexcept {
  return capability_of(*this).optin_kib * 1024;
}
int GpuProfile::shared_reserved() const noexcept { return major >= 8 ? 1024 : 0; }

std::span<const GpuProfile> gpu_profiles() { return kProfiles; }

const GpuProfile* find_gpu_profile(std::string_view name) {
  for (const auto& profile : kProfiles) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::string gpu_profile_names() {
  std::string names;
  for (const auto& profile : kProfiles) {
    if (!names.empty()) names += ", ";
    names += profile.name;
  }
  return names;
}

}  // namespace emm
