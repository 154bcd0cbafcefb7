#include "replay/peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "replay/peer_protocol.hpp"

extern char** environ;

namespace emm::replay {
namespace {

using protocol::Reader;
using protocol::Request;
using protocol::Writer;

constexpr int kGraceMs = 2000;  ///< How long a peer may take to end after its socket has closed.

void pause_ms(long ms) noexcept {
  const timespec pause{.tv_sec = 0, .tv_nsec = ms * 1'000'000};
  nanosleep(&pause, nullptr);
}

Error peer_error(std::string_view what) {
  return fail(Errc::io_error, "the second process of an IPC section {}", what);
}

class PeerProcess final : public Peer {
 public:
  PeerProcess(pid_t pid, int socket, int timeout_ms)
      : pid_(pid), socket_(socket), timeout_ms_(timeout_ms) {}
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() override {
    ::close(socket_);
    if (pid_ == 0) return;
    int status = 0;
    for (int waited = 0; waited < kGraceMs; ++waited) {
      if (waitpid(pid_, &status, WNOHANG) != 0) return;
      pause_ms(1);
    }
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }

  Result<std::uint32_t> open(const IpcHandle::Fields& handle) override {
    auto answer = ask(Writer().put(Request::open).handle(handle));
    if (!answer) return std::move(answer).error();
    return value<std::uint32_t>(*answer);
  }
  Result<std::uint64_t> address(std::uint32_t opening) override {
    auto answer = ask(Writer().put(Request::address).put(opening));
    if (!answer) return std::move(answer).error();
    return value<std::uint64_t>(*answer);
  }
  Result<std::vector<std::byte>> read(std::uint32_t opening, std::uint64_t offset,
                                      std::uint64_t size) override {
    auto answer = ask(Writer().put(Request::read).put(opening).put(offset).put(size));
    if (!answer) return std::move(answer).error();
    if (answer->left() != size) return failed("answers what was not asked");
    return answer->rest();
  }
  Status write(std::uint32_t opening, std::uint64_t offset,
               const std::vector<std::byte>& bytes) override {
    auto answer = ask(
        Writer().put(Request::write).put(opening).put(offset).bytes(bytes.data(), bytes.size()));
    if (!answer) return std::move(answer).error();
    return {};
  }
  Status close(std::uint32_t opening) override {
    auto answer = ask(Writer().put(Request::close).put(opening));
    if (!answer) return std::move(answer).error();
    return {};
  }

 private:
  Result<Reader> ask(Writer& request) {
    if (!broken_.empty()) return peer_error(broken_);
    const auto frame = request.take();
    EMM_ASSERT(frame.size() <= protocol::kFrameMax);
    if (auto sent = send_all(frame); !sent) return std::move(sent).error();
    std::uint32_t size = 0;
    if (auto got = receive(&size, sizeof size); !got) return std::move(got).error();
    if (size == 0 || size > protocol::kFrameMax) return failed("answers what was not asked");
    std::vector<std::byte> answer(size);
    if (auto got = receive(answer.data(), size); !got) return std::move(got).error();
    Reader reader(std::move(answer));
    if (reader.get<std::uint8_t>() != 0) return reader.error();
    return reader;
  }

  template <class T>
  Result<T> value(Reader& answer) {
    const auto got = answer.get<T>();
    if (!answer.good()) return failed("answers what was not asked");
    return got;
  }

  /// Refuses all later requests, since an answer could belong to an earlier one.
  Error failed(std::string why) {
    broken_ = std::move(why);
    return peer_error(broken_);
  }

  Error ended() {
    int status = 0;
    // The socket closes shortly before waitpid() can collect the process.
    for (int waited = 0; waited < kGraceMs && pid_ != 0; ++waited) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) pid_ = 0;
      if (pid_ != 0) pause_ms(1);
    }
    if (pid_ != 0) return failed("closed its socket");
    if (WIFSIGNALED(status)) {
      return failed(text::format("was ended by signal {} ({})", WTERMSIG(status),
                                 sigdescr_np(WTERMSIG(status))));
    }
    constexpr int kInconclusive = 3,
                  kNotLoaded = 127;  // the process or the loader prints the reason
    if (WEXITSTATUS(status) == kInconclusive || WEXITSTATUS(status) == kNotLoaded)
      return failed("could not go on: its words are above");
    return failed(text::format("ended with exit code {}", WEXITSTATUS(status)));
  }

  Status ready(short events) {
    pollfd wanted{.fd = socket_, .events = events, .revents = 0};
    for (;;) {
      const int got = poll(&wanted, 1, timeout_ms_);
      if (got > 0) return {};
      if (got == 0) return failed(text::format("does not answer within {} ms", timeout_ms_));
      if (errno != EINTR)
        return failed(text::format("cannot be waited for: {}", strerrordesc_np(errno)));
    }
  }

  Status send_all(const std::vector<std::byte>& frame) {
    for (std::size_t sent = 0; sent < frame.size();) {
      if (auto writable = ready(POLLOUT); !writable) return writable;
      const auto count = send(socket_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (count > 0) {
        sent += static_cast<std::size_t>(count);
      } else if (errno != EINTR && errno != EAGAIN) {
        return ended();
      }
    }
    return {};
  }

  Status receive(void* into, std::size_t size) {
    for (std::size_t got = 0; got < size;) {
      if (auto readable = ready(POLLIN); !readable) return readable;
      const auto count = recv(socket_, static_cast<std::byte*>(into) + got, size - got, 0);
      if (count > 0) {
        got += static_cast<std::size_t>(count);
      } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
        return ended();
      }
    }
    return {};
  }

  pid_t pid_;  ///< 0 once waitpid() has collected it.
  int socket_;
  int timeout_ms_;
  std::string broken_;
};

}  // namespace

Result<std::unique_ptr<Peer>> start_peer_process(const std::vector<std::string>& command,
                                                 int timeout_ms) {
  EMM_ASSERT(!command.empty());
  const auto refused = [&](int error) {
    return peer_error(
        text::format("cannot be started as {}: {}", command.front(), strerrordesc_np(error)));
  };
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return refused(errno);
  std::vector<char*> arguments;
  for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return refused(error);
  }
  return std::make_unique<PeerProcess>(pid, ends[0], timeout_ms);
}

}  // namespace emm::replay
