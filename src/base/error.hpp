#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace emm {

/// Why something could not be done. What a caller may branch on; the wording is in Error.
enum class Errc : std::uint8_t {
  out_of_memory,
  invalid_value,  ///< An argument that the callee refuses.
  not_initialized,
  not_supported,  ///< A legal answer of a manager or device: it does not offer this.
  already_registered,
  not_registered,
  invalid_context,  ///< No such context, or it is not the one that is current.
  context_destroyed,
  not_found,
  dead_pointer,  ///< Memory that was freed, or that a reset ended.
  version_mismatch,
  parse_error,  ///< Damaged or malformed input.
  io_error,
  no_device,     ///< No driver, or no device.
  driver_error,  ///< Any other failure that the driver reports; see Error::native.
  usage,         ///< A person asked for something that does not exist.
  interrupted,
  internal,  ///< A bug of ours, met where asserting would lose data.
};

/// The words of an Error: a std::string whose copies, moves and end are calls. Every Result in the
/// tree moves one on a path that is not taken; inlined there, they are much of the code and of the
/// compiler's time.
class ErrorWords : public std::string {
 public:
  ErrorWords() noexcept = default;
  ErrorWords(std::string words) noexcept;  // NOLINT(google-explicit-constructor): it is a string
  ErrorWords(std::string_view words);
  ErrorWords(const char* words);
  ErrorWords(const ErrorWords& other);
  ErrorWords(ErrorWords&& other) noexcept;
  ErrorWords& operator=(const ErrorWords& other);
  ErrorWords& operator=(ErrorWords&& other) noexcept;
  ~ErrorWords();
};

/// A failure as a value. Making one that has no message allocates nothing: running out of device
/// memory is an ordinary outcome here.
struct Error {
  Errc code = Errc::internal;
  std::int32_t native = 0;     ///< The CUresult or cudaError_t behind it; 0 if there is none.
  const char* call = nullptr;  ///< The driver's name of the call that failed, a literal, or null.
  ErrorWords message{};  ///< Words for a person; may be empty when call and native say it all.
};

/// The error in one line, for a person: its message, else "Call to cuMemAlloc results in
/// CUDA_ERROR_...".
std::string describe(const Error& error);

/// The driver's name of a CUresult, "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA_ERROR_<n>" of one not in the
/// table.
std::string_view native_name(std::int32_t native);

/// An error with words. `words` is a literal in which each {} takes the next argument; every such
/// literal is a message that some golden in tests/golden/messages shows.
template <class... Args>
[[nodiscard]] Error fail(Errc code, std::string_view words, const Args&... args) {
  return Error{.code = code, .message = text::format(words, args...)};
}

}  // namespace emm
