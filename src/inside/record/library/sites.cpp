#include "record/library/sites.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "record/library/python_frames.hpp"

namespace emm::record {
namespace {

// Entries of each table. They take address space, and memory only where a page has entries.
constexpr std::size_t kSlots = std::size_t{1} << 18;
constexpr std::size_t kTextMost = 256;  // bytes of a frame's text, which is cut there
constexpr std::size_t kPayload = 4 * sizeof(std::uint64_t);  // address, size, stream and extra
constexpr std::uint32_t kOurs = ~std::uint32_t{0};           // marks a frame of the recorder itself

// Numbers are never reused, so that each has one meaning.
constinit std::atomic<std::uint32_t> last_number{0};

/// A hash table from hashes to numbers, with open addressing. Nothing is removed. The thread that
/// inserts a hash also sets its number; others wait for the short time that this takes.
struct Table {
  struct Slot {
    std::atomic<std::uint64_t> hash{0};
    std::atomic<std::uint32_t> number{0};
  };
  Slot* slots = nullptr;

  bool begin() noexcept {
    void* const room = mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    slots = static_cast<Slot*>(room);
    return true;
  }
  void clear() noexcept {
    if (slots != nullptr) (void)madvise(slots, kSlots * sizeof(Slot), MADV_DONTNEED);
  }
  /// Returns the number of a hash, or 0 when the table is full. For a new hash, `define` gets the
  /// new number and returns the number to store: the same one, or kOurs.
  template <class Define>
  std::uint32_t find_or_define(std::uint64_t hash, Define define) noexcept {
    hash |= 1;
    for (std::size_t tried = 0, at = (hash >> 20) % kSlots; tried < 64;
         ++tried, at = (at + 1) % kSlots) {
      auto& slot = slots[at];
      auto found = slot.hash.load(std::memory_order_acquire);
      if (found == 0 && slot.hash.compare_exchange_strong(found, hash)) {
        const auto made = define(last_number.fetch_add(1) + 1);
        slot.number.store(made, std::memory_order_release);
        return made;
      }
      if (found != hash) continue;
      for (;;) {
        const auto known = slot.number.load(std::memory_order_acquire);
        if (known != 0) return known;
        sched_yield();
      }
    }
    return 0;
  }
};

/// The frames and stacks that have been defined. A ring overwrites definitions, so from time to
/// time all are made again. This uses the other pair of tables, because a thread may still be using
/// the current pair.
struct Tables {
  Table frames, stacks;
};
constinit Tables tables[2];
constinit std::atomic<std::uint32_t> epoch{0};
constinit bool wants_python = false, wants_native = false;
constinit std::size_t depth = 16;
constinit const void* own_base = nullptr;

/// The functions of CPython that are called, when the program has them.
struct Python {
  using Object = void*;
  void* (*this_thread)() = nullptr;     // PyGILState_GetThisThreadState
  void* (*current_thread)() = nullptr;  // _PyThreadState_UncheckedGet
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  Object (*frame)() = nullptr;
  Object (*back)(Object) = nullptr;
  Object (*code)(Object) = nullptr;
  int (*line)(Object) = nullptr;
  Object (*attribute)(Object, const char*) = nullptr;
  const char* (*text)(Object) = nullptr;
  void (*drop_reference)(Object) = nullptr;
  void (*hold)(Object) = nullptr;
  bool usable = false;
};
constinit Python python;
constinit bool frames_in_place = false;

template <class Function>
bool find(Function& function, const char* symbol, const char* otherwise = nullptr) noexcept {
  void* found = dlsym(RTLD_DEFAULT, symbol);
  if (found == nullptr && otherwise != nullptr) found = dlsym(RTLD_DEFAULT, otherwise);
  function = reinterpret_cast<Function>(found);
  return found != nullptr;
}

void find_python() noexcept {
  auto& p = python;
  p.usable = find(p.this_thread, "PyGILState_GetThisThreadState") &&
             find(p.current_thread, "PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet") &&
             find(p.is_initialized, "Py_IsInitialized") &&
             find(p.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
             find(p.ensure, "PyGILState_Ensure") && find(p.release, "PyGILState_Release") &&
             find(p.frame, "PyEval_GetFrame") && find(p.back, "PyFrame_GetBack") &&
             find(p.code, "PyFrame_GetCode") && find(p.line, "PyFrame_GetLineNumber") &&
             find(p.attribute, "PyObject_GetAttrString") && find(p.text, "PyUnicode_AsUTF8") &&
             find(p.drop_reference, "Py_DecRef") && find(p.hold, "Py_IncRef");
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9fb21c651e98df25u;
  return hash ^ (hash >> 32);
}

/// Writes a definition in pieces. A reader can assemble them in any order.
void define(Call what, std::uint32_t number, const void* data, std::size_t size, std::size_t units,
            void (*put)(const CallRecord&)) noexcept {
  for (std::size_t at = 0, piece = 0; at < size || piece == 0; at += kPayload, ++piece) {
    CallRecord record{};
    record.call = what;
    record.ticks = number;
    record.duration = static_cast<std::uint32_t>(units);
    record.flags = static_cast<std::uint32_t>(piece);
    const auto part = size - at < kPayload ? size - at : kPayload;
    std::uint64_t payload[kPayload / sizeof(std::uint64_t)] = {};
    std::memcpy(payload, static_cast<const char*>(data) + at, part);
    record.address = payload[0];
    record.size = payload[1];
    record.stream = payload[2];
    record.extra = payload[3];
    put(record);
  }
}

std::uint32_t define_text(std::uint32_t number, const char* text,
                          void (*put)(const CallRecord&)) noexcept {
  const auto size = strnlen(text, kTextMost);
  define(Call::frame_text, number, text, size, size, put);
  return number;
}

/// Defines "libfoo.so:0 function", which is how PyTorch writes a native frame without a known line.
std::uint32_t native_frame(Table& frames, std::uint64_t address,
                           void (*put)(const CallRecord&)) noexcept {
  return frames.find_or_define(mix(1, address), [&](std::uint32_t number) -> std::uint32_t {
    char text[kTextMost];
    Dl_info about{};
    if (dladdr(reinterpret_cast<const void*>(address), &about) == 0 || about.dli_fname == nullptr)
      return define_text(number, "??:0 ??", put);
    if (about.dli_fbase == own_base) return kOurs;
    const char* const slash = std::strrchr(about.dli_fname, '/');
    const char* const file = slash != nullptr ? slash + 1 : about.dli_fname;
    if (about.dli_sname != nullptr) {
      std::snprintf(text, sizeof text, "%s:0 %s", file, about.dli_sname);
    } else {
      std::snprintf(text, sizeof text, "%s:0 %s+0x%llx", file, file,
                    static_cast<unsigned long long>(
                        address - reinterpret_cast<std::uint64_t>(about.dli_fbase)));
    }
    return define_text(number, text, put);
  });
}

struct Stack {
  std::uint32_t frames[2 * kDepthMost];
  std::size_t count = 0;
  std::uint64_t hash = 2;
  Tables* in = nullptr;
  void (*put)(const CallRecord&) = nullptr;

  void add(std::uint32_t frame) noexcept {
    if (frame == 0 || frame == kOurs) return;
    frames[count++] = frame;
    hash = mix(hash, frame);
  }
};

/// Walks the stack with glibc's backtrace(), which loads the machine's own unwinder. One linked
/// into this library would need a newer glibc than the rest of the library does.
void walk_native(Stack& stack) noexcept {
  constexpr int kOwnMost = 8;  // at most so many frames of this library, which are left out
  // Each frame takes 150 ns to walk, so the real number is learned.
  static constinit std::atomic<int> own_most{0};
  const int known = own_most.load(std::memory_order_relaxed);
  const int own = known == 0 ? kOwnMost : known;
  void* at[kDepthMost + kOwnMost];
  const int found = backtrace(at, static_cast<int>(depth) + own);
  const auto end = stack.count + depth;
  int ours = 0;
  for (int i = 0; i < found && stack.count < end; ++i) {
    // The address is the one that the call returns to, so the call is before it.
    const auto address = reinterpret_cast<std::uint64_t>(at[i]);
    const auto frame = address != 0 ? native_frame(stack.in->frames, address - 1, stack.put) : 0;
    if (frame == kOurs) ++ours;
    stack.add(frame);
  }
  if (ours > known && ours <= kOwnMost) own_most.store(ours, std::memory_order_relaxed);
}

/// Defines the frame of a code object. The object is kept for ever, so that its address stays its
/// own and Python keeps its names. The interpreter's lock must be held.
std::uint32_t python_frame(Table& frames, void* code, int line,
                           void (*put)(const CallRecord&)) noexcept {
  const auto hash = mix(mix(3, reinterpret_cast<std::uint64_t>(code)), static_cast<unsigned>(line));
  return frames.find_or_define(hash, [&](std::uint32_t number) {
    python.hold(code);  // one more reference for each definition
    char text[kTextMost];
    const auto file = python.attribute(code, "co_filename");
    const auto name = python.attribute(code, "co_name");
    const char* const file_text = file != nullptr ? python.text(file) : nullptr;
    const char* const name_text = name != nullptr ? python.text(name) : nullptr;
    // The end of a long path tells more than its front.
    const char* shown = file_text != nullptr ? file_text : "?";
    const auto size = std::strlen(shown);
    constexpr std::size_t kPathMost = 180;  // leaves room for the line and the name in kTextMost
    if (size > kPathMost) shown += size - kPathMost;
    std::snprintf(text, sizeof text, "%s:%d %s", shown, line,
                  name_text != nullptr ? name_text : "?");
    if (file != nullptr) python.drop_reference(file);
    if (name != nullptr) python.drop_reference(name);
    return define_text(number, text, put);
  });
}

/// Answers whether the call came through Python's ctypes, which uses libffi. ctypes has released
/// the interpreter's lock and holds no other one, so the lock may be taken here. Other callers may
/// hold a lock that the interpreter's owner waits for.
bool is_ctypes(const void* caller) noexcept {
  Dl_info about{};
  return dladdr(caller, &about) != 0 && about.dli_fname != nullptr &&
         (std::strstr(about.dli_fname, "libffi") != nullptr ||
          std::strstr(about.dli_fname, "_ctypes") != nullptr);
}

std::uint64_t hash_of(const char* text) noexcept {
  std::uint64_t hash = 4;
  for (; *text != '\0'; ++text) hash = mix(hash, static_cast<unsigned char>(*text));
  return hash;
}

/// Adds a frame that was read in place. Nothing keeps the code object alive after the call, so
/// another one may get its address. The hash therefore covers everything that tells them apart.
void add_frame_in_place(void* of, const PythonFrame& frame) {
  auto& stack = *static_cast<Stack*>(of);
  auto hash = mix(mix(5, frame.code), mix(frame.file, frame.name));
  hash = mix(hash, static_cast<std::uint64_t>(frame.first_line) << 32 |
                       static_cast<std::uint32_t>(frame.offset));
  auto& frames = stack.in->frames;
  stack.add(frames.find_or_define(hash, [&](std::uint32_t) {
    char text[kTextMost];
    describe_python_frame(frame, text, sizeof text);
    // Several positions in one line are the same frame.
    return frames.find_or_define(
        hash_of(text), [&](std::uint32_t number) { return define_text(number, text, stack.put); });
  }));
}

void walk_python(Stack& stack, const void* caller) noexcept {
  auto& p = python;
  if (frames_in_place) {
    const bool alive = p.is_initialized() != 0 && p.is_finalizing() == 0;
    // Only the main thread, or a thread that holds the interpreter's lock, ends the interpreter.
    static thread_local const bool is_main = getpid() == static_cast<pid_t>(syscall(SYS_gettid));
    if (!alive || walk_python_frames(is_main, depth, add_frame_in_place, &stack)) return;
  }
  if (!p.usable || p.is_initialized() == 0 || p.is_finalizing() != 0) return;
  void* const mine = p.this_thread();
  if (mine == nullptr) return;
  const bool held = p.current_thread() == mine;
  if (!held && !is_ctypes(caller)) return;
  const int before = held ? 0 : p.ensure();
  const auto end = stack.count + depth;
  void* frame = p.frame();  // borrowed
  if (frame != nullptr) p.hold(frame);
  while (frame != nullptr && stack.count < end) {
    void* const code = p.code(frame);
    if (code != nullptr) {
      stack.add(python_frame(stack.in->frames, code, p.line(frame), stack.put));
      p.drop_reference(code);
    }
    void* const back = p.back(frame);
    p.drop_reference(frame);
    frame = back;
  }
  if (frame != nullptr) p.drop_reference(frame);
  if (!held) p.release(before);
}

}  // namespace

void begin_sites() noexcept {
  const char* const given = setting("EMM_RECORD_STACKS");
  if (given == nullptr) return;
  wants_python = std::strstr(given, "python") != nullptr;
  wants_native = std::strstr(given, "native") != nullptr;
  if (const char* const most = setting("EMM_RECORD_DEPTH")) {
    depth = std::strtoull(most, nullptr, 10);
    if (depth == 0 || depth > kDepthMost) depth = kDepthMost;
  }
  Dl_info about{};
  if (dladdr(reinterpret_cast<const void*>(&begin_sites), &about) != 0) own_base = about.dli_fbase;
  for (auto& one : tables) {
    if (!one.frames.begin() || !one.stacks.begin()) return;
  }
  if (wants_python) {
    find_python();
    frames_in_place = python.is_initialized != nullptr && python.is_finalizing != nullptr &&
                      begin_python_frames();
  }
  // The first walk loads the unwinder, which takes locks of the loader. That must not happen inside
  // a call.
  if (void* first = nullptr; wants_native) (void)backtrace(&first, 1);
  shared.mode |= mode::annotating;
}

std::uint32_t current_site(const void* caller, void (*put)(const CallRecord&)) noexcept {
  if (tables[1].stacks.slots == nullptr) return 0;
  Stack stack;
  stack.in = &tables[epoch.load(std::memory_order_acquire) % 2];
  stack.put = put;
  if (wants_native) walk_native(stack);
  if (wants_python) walk_python(stack, caller);
  if (stack.count == 0) return 0;
  return stack.in->stacks.find_or_define(stack.hash, [&](std::uint32_t number) {
    define(Call::stack, number, stack.frames, stack.count * sizeof stack.frames[0], stack.count,
           put);
    return number;
  });
}

void forget_sites() noexcept {
  if (tables[1].stacks.slots == nullptr) return;
  auto now = epoch.load(std::memory_order_relaxed);
  auto& next = tables[(now + 1) % 2];
  next.frames.clear();
  next.stacks.clear();
  (void)epoch.compare_exchange_strong(now, now + 1, std::memory_order_release);
}

void reset_sites_in_child() noexcept {
  for (auto& one : tables) {
    one.frames.clear();
    one.stacks.clear();
  }
}

}  // namespace emm::record
