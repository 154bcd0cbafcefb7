// What LD_AUDIT loads into each process of a program that runs without a GPU. The loader asks it
// before it opens a library, whatever names that one: DT_NEEDED, an RPATH, a full path in a dlopen.
// It leads CUDA's libraries to their stand-ins in the folder that EMM_STANDIN_FOLDER names:
//
//   libcuda.so*, libnvidia-ml.so*   always: the real ones belong to a driver
//   those of kMade                  to a library that has exactly the functions of the one that the
//                                   loader found, which the command EMM_STANDIN_MAKER makes once
//   libcudart.so*                   likewise, and where the loader finds none to the folder's own
//
// It needs only libc. The loader gives it a namespace of its own.
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Libraries that have an answer for their main functions; see libraries/.
constexpr const char* kMade[] = {
    "libcudart",   "libcublas",   "libcublasLt",   "libcufft", "libcufftw", "libcurand",
    "libcusparse", "libcusolver", "libcusolverMg", "libcupti", "libnccl",
};
constexpr const char* kOfDriver[] = {"libcuda", "libnvidia-ml"};
constexpr const char* kOfFolder[] = {"libcudart"};
// Stood in for where a size of its workspaces is given; else its load is noted.
constexpr const char* kCudnn[] = {"libcudnn"};

const char* base_of(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

/// Is it "NAME.so", "NAME.so.VERSION" or, as wheels are packed, "NAME-HASH.so.VERSION" or
/// "NAME.HASH.so.VERSION"?
bool is_named(const char* base, const char* name) {
  const auto length = std::strlen(name);
  if (std::strncmp(base, name, length) != 0) return false;
  if (std::strncmp(base + length, ".so", 3) == 0) return true;
  return (base[length] == '-' || base[length] == '.') &&
         std::strstr(base + length, ".so") != nullptr && std::strchr(base, '/') == nullptr;
}
template <std::size_t kCount>
bool is_one_of(const char* base, const char* const (&names)[kCount]) {
  for (const auto* name : names) {
    if (is_named(base, name)) return true;
  }
  return false;
}

const char* folder() {
  static const char* const named = std::getenv("EMM_STANDIN_FOLDER");
  return named;
}

/// A path that the loader may keep. There are few.
char* kept(const char* path) { return strdup(path); }

/// The folder's library of that name; null if it has none.
char* in_folder(const char* base) {
  char path[PATH_MAX];
  const auto length = std::snprintf(path, sizeof path, "%s/%s", folder(), base);
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return nullptr;
  return access(path, R_OK) == 0 ? kept(path) : nullptr;
}

/// Tells emmctl that cuDNN is loaded.
void note_cudnn() {
  char path[PATH_MAX];
  const auto length = std::snprintf(path, sizeof path, "%s/loaded.cudnn", folder());
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) close(file);
}

constexpr std::size_t kStack = std::size_t{64} << 10;  // bytes; the maker only calls execve() on it

struct MakerCall {
  const char* maker;
  const char* real;
  const char* made;
  char* stack;  // of the maker, before it becomes another program
};
int become_maker(void* argument) {
  const auto& call = *static_cast<MakerCall*>(argument);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const char* const words[] = {call.maker, "stand-in-library", call.real, call.made, nullptr};
  char* const environment[] = {nullptr};  // neither this library nor the program's settings
  execve(call.maker, const_cast<char* const*>(words), environment);
  _exit(127);
}
/// A process whose end sends no signal, because it never becomes another program, waits for the one
/// that does.
int wait_for_maker(void* argument) {
  const auto& call = *static_cast<MakerCall*>(argument);
  const int child =
      clone(become_maker, call.stack + kStack, CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
  int status = -1;
  while (child > 0 && waitpid(child, &status, __WALL) < 0 && errno == EINTR) {
  }
  _exit(child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127);
}

/// Runs the maker, which no signal handler and no wait() of the program sees. True if it made it.
bool make(const char* real, const char* made) {
  const char* const maker = std::getenv("EMM_STANDIN_MAKER");
  auto* const stacks = static_cast<char*>(std::malloc(2 * kStack));
  if (maker == nullptr || stacks == nullptr) return false;
  // The program's handlers must not run in the processes that share its memory.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  MakerCall call{maker, real, made, stacks};
  const int child = clone(wait_for_maker, stacks + 2 * kStack, CLONE_VM | CLONE_VFORK, &call);
  int status = -1;
  while (child > 0 && waitpid(child, &status, __WCLONE) < 0 && errno == EINTR) {
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  std::free(stacks);
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::uint64_t hash_of(const char* path) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (; *path != '\0'; ++path) hash = (hash ^ static_cast<unsigned char>(*path)) * 1099511628211u;
  return hash;
}

/// The library that stands in for the one at `real`; null if none can be made.
char* made_for(const char* real) {
  char whole[PATH_MAX], path[PATH_MAX];
  if (realpath(real, whole) == nullptr) return nullptr;
  const auto length = std::snprintf(path, sizeof path, "%s/%016llx-%s", folder(),
                                    static_cast<unsigned long long>(hash_of(whole)), base_of(real));
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return nullptr;
  if (access(path, R_OK) != 0 && !make(whole, path)) return nullptr;
  return kept(path);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] unsigned la_version(unsigned version) {
  if (folder() == nullptr) return 0;  // not ours to lead
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

extern "C" [[gnu::visibility("default")]] char* la_objsearch(const char* name, std::uintptr_t*,
                                                             unsigned flag) {
  auto* const unchanged = const_cast<char*>(name);
  const auto* const base = base_of(name);
  if (std::strncmp(base, "lib", 3) != 0) return unchanged;
  const bool is_path = std::strchr(name, '/') != nullptr;
  const auto length = std::strlen(folder());
  if (is_path && std::strncmp(name, folder(), length) == 0) return unchanged;
  const auto before = errno;
  char* lead = nullptr;
  if (is_one_of(base, kOfDriver)) {
    // A stand-in's own path goes through: a recorder between the program and it opens that.
    const char* const own = std::getenv("EMM_STANDIN_DRIVER");
    if (!is_path || own == nullptr || std::strcmp(name, own) != 0) lead = in_folder(base);
  } else if (is_path && is_one_of(base, kCudnn) && access(name, R_OK) == 0) {
    if (std::getenv("EMM_STANDIN_CUDNN") != nullptr) {
      lead = made_for(name);
    } else {
      note_cudnn();
    }
  } else if (is_path && is_one_of(base, kMade)) {
    if (access(name, R_OK) == 0) {
      lead = made_for(name);
    } else if ((flag == LA_SER_DEFAULT || flag == LA_SER_ORIG) && is_one_of(base, kOfFolder)) {
      lead = in_folder(base);
    }
  }
  errno = before;
  return lead != nullptr ? lead : unchanged;
}
