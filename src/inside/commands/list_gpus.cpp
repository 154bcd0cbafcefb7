#include "base/text_format.hpp"
#include "base/units.hpp"
#include "cli/listing.hpp"
#include "driver/gpu_profile.hpp"

namespace emm {
namespace {

using namespace emm::cli;

std::string or_not_known(std::uint64_t bytes) {
  return bytes != 0 ? units::bytes(bytes) : "not known";
}

Rows gpus() {
  Rows rows{{"gpu", "memory", "sms", "capability", "memory from", "what it is", "bytes", "context",
             "shared of sm", "shared of block", "l2", "clock mhz", "memory clock mhz", "bus bits",
             "granule"}};
  for (const auto& gpu : gpu_profiles()) {
    const auto mhz = [](int khz) { return text::format("{}", khz / 1000); };
    rows.push_back(
        {std::string(gpu.name), units::bytes(gpu.total), text::format("{}", gpu.multiprocessors),
         text::format("{}.{}", gpu.major, gpu.minor), std::string(gpu.source),
         std::string(gpu.device), text::format("{}", gpu.total), or_not_known(gpu.context),
         or_not_known(static_cast<std::uint64_t>(gpu.shared_of_multiprocessor())),
         or_not_known(static_cast<std::uint64_t>(gpu.shared_of_block_optin())),
         or_not_known(gpu.l2), mhz(gpu.clock_khz), mhz(gpu.memory_clock_khz),
         text::format("{}", gpu.bus_bits), units::bytes(kGpuGranule)});
  }
  return rows;
}

}  // namespace

extern constinit const cli::Listing gpus_listing{"gpus", gpus, 6, nullptr};

}  // namespace emm
