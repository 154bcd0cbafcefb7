// libemm-python.so: a plugin whose manager is an allocator of a Python program in a separate
// process.
//
// The process is `python3 -m emmctl.serve NAME`, connected by a pair of sockets. A request is a
// Request. An answer is an Answer, followed by its words after a failure. One request is made at a
// time.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/abi.hpp"

namespace {

enum class Ask : std::uint32_t { initialize, memalloc, free, memory_info, reset, state, trim };
struct Request {
  Ask ask;
  std::uint32_t unused;
  std::uint64_t first, second;
};
struct Answer {
  std::int32_t status;
  std::uint32_t words;  // bytes of text that follow
  std::uint64_t first, second, third;
};
static_assert(sizeof(Request) == 24 && sizeof(Answer) == 32);

constexpr int kCannotStart = 127;  // the exit code that shells use

thread_local std::string last_words;

emm_status failed(emm_status status, std::string words) {
  last_words = std::move(words);
  return status;
}

bool put(int fd, const void* from, std::size_t size) noexcept {
  const auto* bytes = static_cast<const char*>(from);
  while (size != 0) {
    const auto sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool get(int fd, void* into, std::size_t size) noexcept {
  auto* bytes = static_cast<char*>(into);
  while (size != 0) {
    const auto got = ::recv(fd, bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

/// Returns NAME from "name=NAME", or nothing for any other options.
std::string_view name_of(std::string_view options) {
  constexpr std::string_view kName = "name=";
  if (options.substr(0, kName.size()) != kName || options.find(',') != std::string_view::npos)
    return {};
  return options.substr(kName.size());
}

}  // namespace

struct emm_manager {
  emm_manager(int end, pid_t process) : fd(end), child(process) {}
  ~emm_manager() {
    if (fd >= 0) end();  // a probe has no process
  }
  /// Closes the socket, which makes the process end. Returns its status from waitpid().
  int end() {
    int status = 0;
    ::close(std::exchange(fd, -1));
    ::waitpid(child, &status, 0);
    return status;
  }

  emm_status ask(Request request, Answer& answer) {
    const std::lock_guard lock(mutex);
    std::string words;
    if (!put(fd, &request, sizeof request) || !get(fd, &answer, sizeof answer))
      return failed(EMM_UNKNOWN_ERROR, "the Python process has ended");
    words.resize(answer.words);
    if (!get(fd, words.data(), words.size()))
      return failed(EMM_UNKNOWN_ERROR, "the Python process has ended");
    return answer.status == EMM_SUCCESS ? EMM_SUCCESS : failed(answer.status, std::move(words));
  }
  emm_status ask(Ask what, std::uint64_t first = 0, std::uint64_t second = 0) {
    Answer answer{};
    return ask({.ask = what, .unused = 0, .first = first, .second = second}, answer);
  }

  int fd;
  const pid_t child;
  std::mutex mutex;
};

namespace {

emm_status create(const emm_create_v1* create, emm_manager** self) {
  const std::string options = create->options != nullptr ? create->options : "";
  if (name_of(options).empty())
    return failed(EMM_INVALID_VALUE, "the options are '" + options +
                                         "': expected name=torch, name=cupy, name=rmm-pool, ...");
  int ends[2];
  if ((create->flags & EMM_CREATE_PROBE) != 0) {
    *self = new emm_manager(-1, -1);
    return EMM_SUCCESS;
  }
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return failed(EMM_UNKNOWN_ERROR, std::strerror(errno));
  const char* python = std::getenv("EMM_PYTHON");
  const auto fd = std::to_string(ends[1]);
  const auto device = std::to_string(create->device);
  const char* arguments[] = {python != nullptr ? python : "python3",
                             "-m",
                             "emmctl.serve",
                             options.c_str(),
                             device.c_str(),
                             fd.c_str(),
                             nullptr};
  const auto child = ::fork();
  if (child == 0) {
    ::fcntl(ends[1], F_SETFD, 0);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);  // keeps its output out of this program's results
    ::execvp(arguments[0], const_cast<char* const*>(arguments));
    ::_exit(kCannotStart);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return failed(EMM_UNKNOWN_ERROR, std::strerror(errno));
  }
  *self = new emm_manager(ends[0], child);
  if (const auto ready = (*self)->ask(Ask::initialize); ready != EMM_SUCCESS) {
    const auto status = (*self)->end();
    delete *self;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotStart)
      last_words = std::string(arguments[0]) + " cannot be started; EMM_PYTHON names another";
    return ready;
  }
  return EMM_SUCCESS;
}

constexpr emm_plugin_table_v1 kTable{
    .struct_size = sizeof(emm_plugin_table_v1),
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .flags = 0,
    .name = "python",
    .summary = "an allocator of Python's, in a process of its own",
    .options = "name",
    .create = create,
    .destroy = [](emm_manager* self) { delete self; },
    .last_error = [](emm_manager*, char* buffer,
                     std::size_t size) { return emm::plugin::put_text(last_words, buffer, size); },
    .initialize = nullptr,
    .memalloc = [](emm_manager* self, std::uint64_t size, emm_stream stream,
                   emm_memory* memory) -> emm_status {
      Answer answer{};
      const auto status =
          self->ask({.ask = Ask::memalloc, .unused = 0, .first = size, .second = stream}, answer);
      if (status != EMM_SUCCESS) return status;
      memory->token = answer.first;
      memory->device_pointer = answer.second;
      memory->host_pointer = nullptr;
      return EMM_SUCCESS;
    },
    .free = [](emm_manager* self, emm_token token, emm_stream stream) -> emm_status {
      return self->ask(Ask::free, token, stream);
    },
    .memhostalloc = nullptr,
    .mempin = nullptr,
    .memallocmanaged = nullptr,
    .get_ipc_handle = nullptr,
    .get_memory_info = [](emm_manager* self, emm_memory_info* info) -> emm_status {
      Answer answer{};
      const auto status =
          self->ask({.ask = Ask::memory_info, .unused = 0, .first = 0, .second = 0}, answer);
      info->free = answer.first;
      info->total = answer.second;
      return status;
    },
    .reset = [](emm_manager* self) { self->ask(Ask::reset); },
    .defer_cleanup = nullptr,
    .end_defer_cleanup = nullptr,
    .interface_version = nullptr,
    .flush = nullptr,
    .state =
        [](emm_manager* self, emm_state* state) {
          Answer answer{};
          if (self->ask({.ask = Ask::state, .unused = 0, .first = 0, .second = 0}, answer) != 0)
            return;
          state->live_bytes = answer.first;
          state->reserved_bytes = answer.second;
        },
    .report = [](emm_manager* self, char* buffer, std::size_t size) -> std::size_t {
      Answer answer{};
      std::string text;
      if (self->ask({.ask = Ask::state, .unused = 0, .first = 0, .second = 0}, answer) == 0 &&
          answer.second != EMM_NOT_KNOWN) {
        text = "python: reserved_bytes: " + std::to_string(answer.second) + " current, " +
               std::to_string(answer.third) + " peak\n";
      }
      return emm::plugin::put_text(text, buffer, size);
    },
    .trim = [](emm_manager* self, std::uint64_t keep) { return self->ask(Ask::trim, keep); },
    .statistics = nullptr,
};

}  // namespace

extern "C" const emm_plugin_table_v1* emm_plugin_v1() { return &kTable; }
