#include <memory>

#include "cli/command.hpp"
#include "driver/device_entry.hpp"
#include "replay/peer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// The second process of an IPC section. A replay starts it with its socket as descriptor 3.
class IpcPeer final : public CommandRun {
 public:
  explicit IpcPeer(Arguments& arguments) {
    arguments.positional("DEVICE", device_, "The platform, as the replay has it");
    arguments.count("--ordinal", ordinal_, "Which of its devices");
  }

  Result<ExitCode> run(Console&) override {
    constexpr int kSocket = 3;  // the descriptor that start_peer_process() leaves
    const auto ordinal = static_cast<int>(ordinal_);
    auto platform = open_platform(device_, {.devices = ordinal + 1});
    if (!platform) return std::move(platform).error();
    auto opened = (*platform)->open(ordinal);
    if (!opened) return std::move(opened).error();
    return static_cast<ExitCode>(replay::serve_peer(kSocket, *opened->driver));
  }

 private:
  std::string device_;
  std::uint64_t ordinal_ = 0;
};

}  // namespace

extern constinit const Command ipc_peer_command{
    "ipc-peer", "Serves the other side of an IPC section", true, make_run<IpcPeer>, Heading::about};

}  // namespace emm
