#include "contract/peer.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/assert.hpp"
#include "driver/device_entry.hpp"

namespace emm {
namespace {

template <class T>
bool receive(int fd, T& value) {
  auto* at = reinterpret_cast<char*>(&value);
  for (std::size_t done = 0; done < sizeof value;) {
    const auto got = ::read(fd, at + done, sizeof value - done);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

template <class T>
bool send(int fd, const T& value) {
  return ::write(fd, &value, sizeof value) == static_cast<ssize_t>(sizeof value);
}

template <class T>
std::int32_t native(const Result<T>& result) {
  return result ? 0 : result.error().native;
}

PeerReply answer(Driver& driver, const PeerRequest& request) {
  PeerReply reply;
  switch (request.kind) {
    case PeerRequest::open: {
      const auto opened = driver.ipc_open_mem_handle(request.handle);
      reply.native = native(opened);
      if (opened) reply.address = *opened;
      break;
    }
    case PeerRequest::close:
      reply.native = native(driver.ipc_close_mem_handle(request.address));
      break;
    case PeerRequest::read_u32:
      reply.native = native(
          driver.memcpy_dtoh(std::as_writable_bytes(std::span(&reply.value, 1)), request.address));
      break;
    case PeerRequest::write_u32:
      reply.native = native(driver.memset_d32(request.address, request.value, 1));
      break;
  }
  return reply;
}

}  // namespace

Peer::Peer(const std::string& spec) {
  int to[2], from[2];
  EMM_ASSERT(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  std::string self = "/proc/self/exe", flag = kPeerFlag, text = spec;
  char* argv[] = {self.data(), flag.data(), text.data(), nullptr};
  EMM_ASSERT(posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = from[0];
}

Peer::~Peer() {
  ::close(to_);
  ::close(from_);
  waitpid(pid_, nullptr, 0);
}

PeerReply Peer::ask(const PeerRequest& request) {
  PeerReply reply{.native = -1};
  if (send(to_, request)) receive(from_, reply);
  return reply;
}

int run_peer(const char* spec) {
  auto platform = open_platform(spec, {});
  if (!platform) return 1;
  auto device = (*platform)->open(0);
  if (!device) return 1;
  for (PeerRequest request; receive(0, request);) {
    if (!send(1, answer(*device->driver, request))) return 1;
  }
  return 0;
}

}  // namespace emm
