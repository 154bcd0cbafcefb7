#pragma once

#include <cstddef>
#include <cstdint>

/// Reads the Python frames of the calling thread in place. A thread inside a call owns its frames,
/// so they stay as they are whether or not it holds the interpreter's lock. Reading takes no
/// reference and no lock, and allocates nothing. The layouts of CPython 3.8 to 3.13 are known; the
/// first walk checks the layout with reads that cannot fault.
namespace emm::record {

struct PythonFrame {
  std::uint64_t code, file, name;  ///< Addresses of the code object and of its strings.
  std::int32_t first_line;
  std::int32_t offset;  ///< Position in its instructions, in bytes.
  bool in_place;        ///< Its memory stays valid while it is read.
};

/// Finds the interpreter of this process. Returns false when there is none or its version is not
/// known.
bool begin_python_frames() noexcept;
/// Calls `each` with at most `most` frames, innermost first. Returns false when the frames cannot
/// be read because their layout is another one. A thread without Python frames has none, and the
/// result is true. `stays` says that the interpreter cannot end meanwhile, as in its main thread.
bool walk_python_frames(bool stays, std::size_t most, void (*each)(void* of, const PythonFrame&),
                        void* of) noexcept;
/// Writes "file.py:7 function"; a long path is cut at its front.
void describe_python_frame(const PythonFrame& frame, char* text, std::size_t room) noexcept;

}  // namespace emm::record
