#include "record/library/python_frames.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emm::record {
namespace {

/// Offsets in CPython's structures, taken from its headers (Include/cpython/pystate.h,
/// Include/internal/pycore_frame.h, Include/cpython/code.h, Include/cpython/unicodeobject.h).
struct Layout {
  int minor;
  int thread_frame;  ///< In PyThreadState: the innermost frame, or the _PyCFrame that points to it.
  int outer_frame;   ///< In _PyCFrame; negative: the thread state points to the frame itself.
  int code, previous, position;
  int position_unit;  ///< Bytes in one unit of f_lasti; 0: the position is an address.
  int owner;          ///< Tells who owns the frame; negative: there is no such member.
  int first_line, file, name;
  int instructions, first_traceable;
  int ascii, wide;  ///< In a string: where its characters begin, if all are ASCII and if not.

  constexpr std::size_t frame_bytes() const noexcept { return minor < 11 ? 112 : 72; }
  constexpr std::size_t code_bytes() const noexcept {
    return minor < 11 ? 120 : static_cast<std::size_t>(first_traceable) + 8;
  }
};
// One for each minor version of Python 3; another version is not walked.
constexpr Layout kLayouts[] = {
    {8, 24, -1, 32, 24, 104, 1, -1, 40, 104, 112, 0, -1, 48, 72},
    {9, 24, -1, 32, 24, 104, 1, -1, 40, 104, 112, 0, -1, 48, 72},
    {10, 24, -1, 32, 24, 96, 2, -1, 40, 104, 112, 0, -1, 48, 72},
    {11, 56, 8, 32, 48, 56, 0, 69, 72, 112, 120, 184, 168, 48, 72},
    {12, 56, 0, 0, 8, 56, 0, 70, 68, 112, 120, 192, 176, 40, 56},
    {13, 72, -1, 0, 8, 56, 0, 70, 68, 112, 120, 200, 184, 40, 56},
};
constexpr int kType = 8;     // in an object
constexpr int kLength = 16;  // in a string
constexpr int kState = 32;   // in a string
// Bits of a string's state, in PyASCIIObject.
constexpr std::uint32_t kCompact = 0x20, kAscii = 0x40;
constexpr char kByGenerator = 1, kByCStack = 3;             // values of `owner`
constexpr std::size_t kFrameBytes = 112, kCodeBytes = 192;  // upper bounds

constinit const Layout* layout = nullptr;
constinit std::uint64_t code_type = 0, string_type = 0;
using ThisThread = void* (*)();
using LineOf = int (*)(const void* code, int offset);
constinit ThisThread this_thread = nullptr;  // PyGILState_GetThisThreadState
constinit LineOf line_of = nullptr;          // PyCode_Addr2Line, which only reads

enum Trust : int { kUnproven, kProven, kRefuted };
constinit std::atomic<int> trust{kUnproven};

bool read(std::uint64_t from, void* to, std::size_t size, bool in_place) noexcept {
  if (from == 0) return false;
  if (in_place) {
    std::memcpy(to, reinterpret_cast<const void*>(from), size);
    return true;
  }
  iovec here{.iov_base = to, .iov_len = size};
  iovec there{.iov_base = reinterpret_cast<void*>(from), .iov_len = size};
  const auto wanted = static_cast<ssize_t>(size);
  const auto got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (got == wanted || errno == EFAULT) return got == wanted;
  // Some containers forbid process_vm_readv.
  const int memory = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (memory < 0) return false;
  const auto found = ::pread(memory, to, size, static_cast<off_t>(from));
  ::close(memory);
  return found == wanted;
}

template <class T = std::uint64_t>
T member(const unsigned char* bytes, int at) noexcept {
  T value{};
  std::memcpy(&value, bytes + at, sizeof value);
  return value;
}

enum class Found : std::uint8_t { frame, hidden, damaged };

/// Reads one frame and the address of its caller's.
Found look_at(std::uint64_t at, bool in_place, PythonFrame& found,
              std::uint64_t& previous) noexcept {
  const auto& in = *layout;
  unsigned char frame[kFrameBytes], code[kCodeBytes];
  if (!read(at, frame, in.frame_bytes(), in_place)) return Found::damaged;
  previous = member(frame, in.previous);
  // From 3.12 on, the interpreter puts a frame of its own between its nested loops.
  const char owner = in.owner < 0 ? char{0} : member<char>(frame, in.owner);
  if (in.minor >= 12 && owner == kByCStack) return Found::hidden;
  found.code = member(frame, in.code);
  if (!read(found.code, code, in.code_bytes(), in_place) || member(code, kType) != code_type)
    return Found::damaged;
  found.file = member(code, in.file);
  found.name = member(code, in.name);
  found.first_line = member<std::int32_t>(code, in.first_line);
  found.in_place = in_place;
  if (in.position_unit != 0) {
    found.offset = member<std::int32_t>(frame, in.position) * in.position_unit;
    return Found::frame;
  }
  const auto begin = found.code + static_cast<std::uint64_t>(in.instructions);
  found.offset = static_cast<std::int32_t>(member(frame, in.position) - begin);
  // The frame has not begun, so its caller is the one that runs.
  const auto first = 2 * member<std::int32_t>(code, in.first_traceable);
  return owner != kByGenerator && found.offset < first ? Found::hidden : Found::frame;
}

bool is_string(std::uint64_t at, bool in_place) noexcept {
  std::uint64_t type = 0;
  return read(at + kType, &type, sizeof type, in_place) && type == string_type;
}

std::size_t put_utf8(char* to, std::uint32_t c) noexcept {
  if (c < 0x80) return to[0] = static_cast<char>(c), 1;
  const std::size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr unsigned char kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  to[0] = static_cast<char>(kFirst[more] | c >> (6 * more));
  for (std::size_t i = 1; i <= more; ++i)
    to[i] = static_cast<char>(0x80u | ((c >> (6 * (more - i))) & 0x3fu));
  return more + 1;
}

/// Copies the end of a string as UTF-8.
bool copy_string(std::uint64_t string, char* to, std::size_t room, bool in_place) noexcept {
  unsigned char header[40];
  if (!read(string, header, sizeof header, in_place) || member(header, kType) != string_type)
    return false;
  const auto state = member<std::uint32_t>(header, kState);
  if ((state & kCompact) == 0) return false;
  const bool ascii = (state & kAscii) != 0;
  const std::uint64_t width = (state >> 2) & 7u;  // bytes in a character
  if (width != 1 && width != 2 && width != 4) return false;
  const auto length = member(header, kLength);
  const auto most = ascii ? room - 1 : (room - 1) / 4;
  const auto first = length - std::min<std::uint64_t>(length, most);
  const auto begin = string + static_cast<std::uint64_t>(ascii ? layout->ascii : layout->wide);
  std::size_t size = 0;
  for (auto at = first; at < length; ++at) {
    std::uint32_t c = 0;  // its first bytes, since the machine is little-endian
    if (!read(begin + at * width, &c, width, in_place)) return false;
    size += put_utf8(to + size, c);
  }
  to[size] = '\0';
  return true;
}

template <class Function>
bool find(Function& function, const char* symbol) noexcept {
  void* const found = dlsym(RTLD_DEFAULT, symbol);
  function = reinterpret_cast<Function>(found);
  return found != nullptr;
}

}  // namespace

bool begin_python_frames() noexcept {
  const char* (*version)() = nullptr;
  code_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyCode_Type"));
  string_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyUnicode_Type"));
  if (code_type == 0 || string_type == 0 || !find(version, "Py_GetVersion") ||
      !find(this_thread, "PyGILState_GetThisThreadState") || !find(line_of, "PyCode_Addr2Line"))
    return false;
  const char* const words = version();  // "3.11.2 (main, ..."
  if (words == nullptr || std::strncmp(words, "3.", 2) != 0 ||
      std::strstr(words, "free-threading") != nullptr)
    return false;
  const int minor = std::atoi(words + 2);
  for (const auto& one : kLayouts) {
    if (one.minor == minor) layout = &one;
  }
  return layout != nullptr;
}

bool walk_python_frames(bool stays, std::size_t most, void (*each)(void* of, const PythonFrame&),
                        void* of) noexcept {
  const int trusted = trust.load(std::memory_order_relaxed);
  if (layout == nullptr || trusted == kRefuted) return false;
  const auto thread = reinterpret_cast<std::uint64_t>(this_thread());
  if (thread == 0) return true;
  const bool in_place = stays && trusted == kProven;
  const auto refute = [] {
    int unproven = kUnproven;  // a layout that was proven can only fail for a thread that is ending
    trust.compare_exchange_strong(unproven, kRefuted);
    return false;
  };
  std::uint64_t frame = 0;
  if (!read(thread + static_cast<std::uint64_t>(layout->thread_frame), &frame, sizeof frame,
            in_place))
    return refute();
  if (layout->outer_frame >= 0 && !read(frame + static_cast<std::uint64_t>(layout->outer_frame),
                                        &frame, sizeof frame, in_place))
    return refute();
  std::size_t count = 0;
  // Hidden frames stand between others, few for each visible one, so the limit ends only a damaged
  // chain.
  for (std::size_t seen = 0; frame != 0 && count < most && seen < 4 * most; ++seen) {
    PythonFrame found{};
    std::uint64_t previous = 0;
    const auto what = look_at(frame, in_place, found, previous);
    if (what == Found::damaged) return refute();
    if (what == Found::frame) {
      if (trusted == kUnproven && !(is_string(found.name, false) && is_string(found.file, false)))
        return refute();
      each(of, found);
      ++count;
    }
    frame = previous;
  }
  if (count != 0 && trusted == kUnproven) {
    int unproven = kUnproven;
    trust.compare_exchange_strong(unproven, kProven);
  }
  return true;
}

void describe_python_frame(const PythonFrame& frame, char* text, std::size_t room) noexcept {
  char file[181] = "?", name[64] = "?";
  if (!copy_string(frame.file, file, sizeof file, frame.in_place)) std::strcpy(file, "?");
  if (!copy_string(frame.name, name, sizeof name, frame.in_place)) std::strcpy(name, "?");
  const auto* const code = reinterpret_cast<const void*>(frame.code);
  std::snprintf(text, room, "%s:%d %s", file, line_of(code, frame.offset), name);
}

}  // namespace emm::record
