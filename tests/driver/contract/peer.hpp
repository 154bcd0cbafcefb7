#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "driver/types.hpp"

namespace emm {

inline constexpr const char* kPeerFlag = "--peer";

/// What a test asks of the other process, and what comes back. Plain bytes over a pipe.
struct PeerRequest {
  enum Kind : std::uint32_t { open, close, read_u32, write_u32 } kind = open;
  std::uint32_t value = 0;
  DevicePtr address{};
  IpcMemHandle handle{};
};
struct PeerReply {
  std::int32_t native = 0;
  std::uint32_t value = 0;
  DevicePtr address{};
};

/// A second process, of this same program, that has opened the same devices.
class Peer {
 public:
  explicit Peer(const std::string& spec);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  PeerReply ask(const PeerRequest& request);

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

/// The other process: answers requests on standard input until it ends. Returns an exit code.
int run_peer(const char* spec);

}  // namespace emm
