#pragma once

#include <cstdint>

/// What a program on the simulated device leaves for `emmctl run --device sim`: a file for each
/// process that used a device, which the process maps and writes to as it runs. So a process that
/// is killed has reported, too.
namespace emm::standin {

struct DeviceReport {
  std::uint64_t total = 0;    ///< Bytes of the device.
  std::uint64_t context = 0;  ///< Bytes of total that are never free.
  /// The most that the process held at a time, with what libraries took for themselves.
  std::uint64_t peak = 0;
  std::uint64_t counts_libraries = 0;  ///< 1: what they take is known of this card.
  std::uint64_t libraries_now = 0;     ///< What they have.
  std::uint64_t libraries = 0;         ///< What they had at the peak.
  std::uint64_t refused = 0;           ///< Requests that were refused for want of memory.
  std::uint64_t first_refused_size = 0;
  std::uint64_t first_refused_held = 0;     ///< What the process held at that request.
  std::uint64_t first_refused_library = 0;  ///< 1: a library asked, and not the program.
};

/// A communicator of NCCL's that the process made.
struct CommunicatorReport {
  static constexpr std::uint32_t kCollectives = 1, kSends = 2;  // bits of `uses`
  std::uint32_t ranks = 0;
  std::uint32_t uses = 0;  ///< What it was used for.
};

struct ProcessReport {
  // Changes with the layout: a report of another version is left out.
  static constexpr std::uint64_t kVersion = 6;
  static constexpr int kMostDevices = 64;  // a report has a fixed size, as it lies in shared memory
  // Those beyond are counted and not described.
  static constexpr std::uint64_t kMostCommunicators = 64;

  std::uint64_t version = 0;
  std::uint64_t process = 0;
  std::uint64_t devices = 0;
  std::uint64_t kernels = 0;  ///< Launches that were answered, and not run.
  std::uint64_t unread = 0;   ///< Bytes that came to the device and were not kept.
  std::uint64_t tables = 0;   ///< Questions of a static cudart that were not answered.
  std::uint64_t waited = 0;   ///< Bytes that a loop read again and again; it was ended.
  std::uint64_t ranks = 0;    ///< How many the program has; 0: it is none of several.
  std::uint64_t rank = 0;     ///< That of the process among them.
  std::uint64_t copies = 0;   ///< Collectives that got its own values for those of absent ranks.
  std::uint64_t nothing = 0;  ///< Receives and roots of which absent ranks had the values.
  std::uint64_t communicators = 0;  ///< Those with several ranks; below, the first of them.
  std::uint64_t channels = 0;       ///< NCCL_MAX_NCHANNELS; 0: NCCL chooses.
  CommunicatorReport communicator[kMostCommunicators];
  char command[64] = {};  ///< The name of the program.
  DeviceReport device[kMostDevices];
};

/// The variable that names the folder of the reports. Where it is set, kernels are skipped.
inline constexpr const char* kProgramFolder = "EMM_STANDIN_PROGRAM";
/// A copy to the device that is larger than this keeps no content: the device reads as zero there.
inline constexpr std::uint64_t kKeptContent = std::uint64_t{1} << 20;
/// No copy keeps content while the devices' content takes more of the host than this.
inline constexpr std::uint64_t kMostContent = std::uint64_t{1} << 30;

/// A program that reads the same small piece this often, while nothing is written, waits in a loop
/// for what a kernel would write.
inline constexpr std::uint64_t kMostReads = 1'000'000;

}  // namespace emm::standin
