#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emm::trace {

/// Whose code a frame of a call stack is. Lower values tell a reader more.
enum class FrameKind : std::uint8_t {
  own,  ///< A line of the program: Python outside of installed packages, or native code with its
        ///< source line.
  library,    ///< Python of an installed package or of the standard library.
  native,     ///< Native code without a known source line that fits none of the kinds below.
  framework,  ///< PyTorch's operators, autograd and bindings, and CUDA's libraries.
  plumbing,   ///< Code between an operator and the allocator: dispatch, storage, tensors without
              ///< content.
  runtime,    ///< The Python interpreter, libc, threads, and frames that name nothing.
  allocator,  ///< The allocator, and the recorder and the unwinder that it calls.
};

/// A call stack as a report shows it.
struct CallSite {
  /// The innermost line of the program's own code, then its callers. Frames of the allocator, the
  /// recorder, the framework and the interpreter are left out. If nothing else is in the stack, as
  /// in autograd's threads, the innermost operator comes first. Empty only if the stack is empty.
  std::vector<std::string_view> frames;
  std::string_view called;  ///< The innermost Python frame if it is deeper than frames[0]: the
                            ///< function that the program called.
};

/// Chooses the frames of call stacks that are shown. A frame is "file:line name", as in PyTorch's
/// memory snapshots, innermost first. Results are views into the given stack. Caches the kinds of
/// frames, since many stacks share them. One thread at a time.
class CallSites {
 public:
  /// `all`: show every frame as recorded.
  explicit CallSites(bool all = false) : all_(all) {}

  CallSite of(std::span<const std::string_view> frames);
  std::vector<std::string> shown(const std::vector<std::string>& frames);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };
  static constexpr std::size_t kKept = std::size_t{1} << 16;  // frames

  struct Seen {
    FrameKind kind;
    bool python;       // a frame of Python
    bool interpreter;  // of Python code or of its interpreter
    bool main;         // a native main(), the program's own or the interpreter's
  };

  static Seen see(std::string_view frame);
  /// Fills stack_ with the kinds of the frames, some of which depend on the whole stack.
  void look(std::span<const std::string_view> frames);
  std::size_t first() const;

  bool all_;
  std::unordered_map<std::string, Seen, Hash, std::equal_to<>> known_;
  std::vector<Seen> stack_;  // the stack that look() was given
  bool python_ = false;      // stack_ has Python frames
};

}  // namespace emm::trace
