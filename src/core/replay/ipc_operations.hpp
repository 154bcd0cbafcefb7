#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "replay/peer.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// The operations on IPC handles, and the second processes that open them.
class IpcOperations {
 public:
  IpcOperations(ReplayCore& core, Stack& stack) noexcept : core_(core), stack_(stack) {}

  void get_handle(const trace::Event& event);
  void open_handle(const trace::Event& event);
  void close_handle(const trace::Event& event);
  Status close(const Import& import);
  /// Forgets the handles at the end of a pass. REQUIRES: no handle is open.
  void forget_handles() noexcept { exports_.clear(); }

 private:
  /// The handle that get_ipc_handle gave, or the outcome without one.
  struct Export {
    std::optional<IpcHandle> handle;
    AllocId of{};
    std::uint64_t start = 0;  ///< Bytes from the allocation's start to the exported part.
    ContextId context{};
    trace::Outcome outcome = trace::Outcome::ok;
  };

  Result<Import> open(const trace::Event& event, Export& exported);
  Result<Peer*> peer(std::uint32_t process, std::uint32_t device);
  /// Both processes write and read at either end of the exported memory, and must find each other's
  /// content.
  void exchange_content(const Export& exported, const Import& import);
  void compare_content(const Live& exporter, std::string_view who, std::span<const std::byte> found,
                       std::span<const std::byte> expected, std::uint64_t at);

  ReplayCore& core_;
  Stack& stack_;
  std::map<std::uint32_t, Export> exports_;  ///< By handle.
  /// By process and device.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Peer>> peers_;
};

}  // namespace emm::replay
