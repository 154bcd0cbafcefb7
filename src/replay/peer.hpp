#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "emm/ipc_handle.hpp"

namespace emm::replay {

/// The second process of an IPC section: a real one, on the same device, that opens what this one
/// exports. Calls block until it has answered; one that has died answers io_error with how it died.
/// One thread at a time.
class Peer {
 public:
  virtual ~Peer() = default;  ///< Closes everything and ends the process.

  /// Opens the handle there; the answer names the opening.
  virtual Result<std::uint32_t> open(const IpcHandle::Fields& handle) = 0;
  /// Where it is mapped there; for comparing two openings.
  virtual Result<std::uint64_t> address(std::uint32_t opening) = 0;
  /// Reads there `size` bytes from `offset` of the view.
  virtual Result<std::vector<std::byte>> read(std::uint32_t opening, std::uint64_t offset,
                                              std::uint64_t size) = 0;
  /// Writes there.
  virtual Status write(std::uint32_t opening, std::uint64_t offset,
                       const std::vector<std::byte>& bytes) = 0;
  virtual Status close(std::uint32_t opening) = 0;
};

inline constexpr int kPeerTimeoutMs = 30'000;

/// Runs `command` (a program and its arguments) with a socket as its descriptor 3 and speaks to it
/// there. An answer that does not come within `timeout_ms` is an io_error, and so is every call
/// after it.
Result<std::unique_ptr<Peer>> start_peer_process(const std::vector<std::string>& command,
                                                 int timeout_ms = kPeerTimeoutMs);

/// The other end: serves requests on descriptor `socket` over `driver` until it closes. Returns an
/// exit code: 0, or 70 where what came was not a request.
int serve_peer(int socket, Driver& driver);

}  // namespace emm::replay
