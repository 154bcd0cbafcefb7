#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emm::trace {

/// Whose code a frame of a call stack is, the program's own first: the lower, the more it tells a
/// reader.
enum class FrameKind : std::uint8_t {
  own,  ///< A line of the program: Python outside of installed packages, or native code with its
        ///< source line.
  library,    ///< Python of an installed package or of the standard library.
  native,     ///< Native code that is none of the below, of which no source line is known.
  framework,  ///< PyTorch's operators, autograd and bindings, and CUDA's libraries.
  plumbing,   ///< What stands between an operator and the allocator: dispatch, storage, tensors
              ///< without content.
  runtime,    ///< The Python interpreter, libc, threads; and a frame that names nothing.
  allocator,  ///< The allocator, and the recorder and the unwinder that it calls.
};

/// A call stack as it is shown.
struct CallSite {
  /// The innermost own line of the program first, then those that led to it. The frames of the
  /// allocator, the recorder, the framework and the interpreter are left out; of a stack that has
  /// no others, as those of autograd's threads, the innermost operator is first. Empty only where
  /// the stack is.
  std::vector<std::string_view> frames;
  std::string_view called;  ///< The innermost frame of Python, where it is inside of the first:
                            ///< what the program called.
};

/// Which frames of call stacks are shown. A frame is "file:line name", as in PyTorch's memory
/// snapshots; the innermost is first; what is shown are views into the stack given. Keeps the kinds
/// of the frames that it met, as many stacks share their frames. One thread at a time.
class CallSites {
 public:
  /// `all`: every frame, as recorded.
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
    bool interpreter;  // of Python, or of its interpreter
    bool main;         // a native main, which is the program's own or the interpreter's
  };

  static Seen see(std::string_view frame);
  /// Fills stack_ with the kinds of the frames, which partly depend on the whole stack.
  void look(std::span<const std::string_view> frames);
  std::size_t first() const;

  bool all_;
  std::unordered_map<std::string, Seen, Hash, std::equal_to<>> known_;
  std::vector<Seen> stack_;  // that is looked at
  bool python_ = false;      // it has frames of Python
};

}  // namespace emm::trace
