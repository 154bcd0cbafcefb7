#pragma once

#include <cstddef>
#include <cstdint>

/// The Python frames of the calling thread, read in place. A thread that is inside a call owns its
/// frames, so they stay as they are whether or not it holds the interpreter's lock, and nothing is
/// taken, counted or allocated. The layout of frames differs by version: that of CPython 3.8 to
/// 3.13 is known, and is proven on the first walk by reads that cannot fault.
namespace emm::record {

struct PythonFrame {
  std::uint64_t code, file, name;  ///< Addresses of the code object and of its strings.
  std::int32_t first_line;
  std::int32_t offset;  ///< Bytes into its instructions.
  bool in_place;        ///< Its memory cannot go away.
};

/// Finds the interpreter of this process. False where there is none, or of another version.
bool begin_python_frames() noexcept;
/// Calls `each` with at most `most` frames, innermost first. False where they cannot be read: the
/// layout is another. A thread without Python frames has none, which is true. `stays`: the
/// interpreter cannot end meanwhile, as in its main thread.
bool walk_python_frames(bool stays, std::size_t most, void (*each)(void* of, const PythonFrame&),
                        void* of) noexcept;
/// "file.py:7 function", of a long path the end.
void describe_python_frame(const PythonFrame& frame, char* text, std::size_t room) noexcept;

}  // namespace emm::record
