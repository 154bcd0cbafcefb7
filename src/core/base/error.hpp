#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text_format.hpp"

namespace emm {

/// The kind of a failure, for callers to branch on. Error has the wording.
enum class Errc : std::uint8_t {
  out_of_memory,
  invalid_value,  ///< An argument that the callee refuses.
  not_initialized,
  not_supported,  ///< A legal answer of a manager or device: it does not offer this.
  already_registered,
  not_registered,
  invalid_context,  ///< There is no such context, or it is not current.
  context_destroyed,
  not_found,
  dead_pointer,  ///< Memory that was freed, or that a reset ended.
  version_mismatch,
  parse_error,     ///< Damaged or malformed input.
  unknown_format,  ///< Input of another kind than any that is read.
  io_error,
  no_device,     ///< No driver, or no device.
  driver_error,  ///< Any other failure that the driver reports; see Error::native.
  usage,         ///< A person asked for something that does not exist.
  interrupted,
  internal,  ///< A bug of ours, found where an assertion would lose data.
};

/// The message of an Error: a std::string whose copy, move and destruction are not inlined. Every
/// Result moves one on its failure path. Inlined, these would be much of the code and of the
/// compile time.
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

/// A failure as a value. An Error without a message allocates nothing, since running out of device
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

/// The driver's name of a CUresult, "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA_ERROR_<n>" if the table lacks
/// it.
std::string_view native_name(std::int32_t native);

/// An error with a message. `words` is a literal in which each {} takes the next argument. A golden
/// file in tests/golden/messages shows every such message.
template <class... Args>
[[nodiscard]] Error fail(Errc code, std::string_view words, const Args&... args) {
  return Error{.code = code, .message = text::format(words, args...)};
}

}  // namespace emm
