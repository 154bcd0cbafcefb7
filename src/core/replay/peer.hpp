#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "emm/ipc_handle.hpp"

namespace emm::replay {

/// The second process of an IPC section: a real process on the same device that opens this one's
/// exports. Calls block until it answers. If it has died, they return io_error with the cause. One
/// thread at a time.
class Peer {
 public:
  virtual ~Peer() = default;  ///< Closes everything and ends the process.

  /// Opens the handle there. Returns a number that names the opening.
  virtual Result<std::uint32_t> open(const IpcHandle::Fields& handle) = 0;
  /// The address of the opening there, for comparing two openings.
  virtual Result<std::uint64_t> address(std::uint32_t opening) = 0;
  /// Reads `size` bytes there, from `offset` of the view.
  virtual Result<std::vector<std::byte>> read(std::uint32_t opening, std::uint64_t offset,
                                              std::uint64_t size) = 0;
  /// Writes `bytes` there, at `offset` of the view.
  virtual Status write(std::uint32_t opening, std::uint64_t offset,
                       const std::vector<std::byte>& bytes) = 0;
  virtual Status close(std::uint32_t opening) = 0;
};

// A peer opens a device first, and many may do so at the same time.
inline constexpr int kPeerTimeoutMs = 30'000;

/// Runs `command` (a program and its arguments) with a socket as descriptor 3 for the protocol. If
/// an answer does not come within `timeout_ms`, that call and every later one return io_error.
Result<std::unique_ptr<Peer>> start_peer_process(const std::vector<std::string>& command,
                                                 int timeout_ms = kPeerTimeoutMs);

/// The other end: answers requests on descriptor `socket`, using `driver`, until the socket closes.
/// Returns an exit code: 0, or 70 after an invalid request.
int serve_peer(int socket, Driver& driver);

}  // namespace emm::replay
