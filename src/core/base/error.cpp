#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace emm {
namespace {

// The CUresults that memory management may return. cudart uses the same numbers for these meanings.
constexpr std::array<std::pair<std::int32_t, std::string_view>, 28> kNatives{{
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, "CUDA_ERROR_DEINITIALIZED"},
    {34, "CUDA_ERROR_STUB_LIBRARY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {205, "CUDA_ERROR_MAP_FAILED"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {999, "CUDA_ERROR_UNKNOWN"},
}};

constexpr std::string_view words_of(Errc code) {
  switch (code) {
    case Errc::out_of_memory:
      return "out of memory";
    case Errc::invalid_value:
      return "invalid value";
    case Errc::not_initialized:
      return "not initialized";
    case Errc::not_supported:
      return "not supported";
    case Errc::already_registered:
      return "host memory is already registered";
    case Errc::not_registered:
      return "host memory is not registered";
    case Errc::invalid_context:
      return "invalid context";
    case Errc::context_destroyed:
      return "the context is destroyed";
    case Errc::not_found:
      return "not found";
    case Errc::dead_pointer:
      return "dead memory";
    case Errc::version_mismatch:
      return "version mismatch";
    case Errc::parse_error:
      return "damaged input";
    case Errc::unknown_format:
      return "unknown format";
    case Errc::io_error:
      return "input or output failed";
    case Errc::no_device:
      return "no device";
    case Errc::driver_error:
      return "the driver failed";
    case Errc::usage:
      return "usage";
    case Errc::interrupted:
      return "interrupted";
    case Errc::internal:
      return "a bug of ours";
  }
  return "a bug of ours";
}

}  // namespace

std::string_view native_name(std::int32_t native) {
  const auto found = std::find_if(kNatives.begin(), kNatives.end(),
                                  [&](const auto& row) { return row.first == native; });
  return found == kNatives.end() ? "a CUDA error without a name here" : found->second;
}

ErrorWords::ErrorWords(std::string words) noexcept : std::string(std::move(words)) {}
ErrorWords::ErrorWords(std::string_view words) : std::string(words) {}
ErrorWords::ErrorWords(const char* words) : std::string(words) {}
ErrorWords::ErrorWords(const ErrorWords& other) = default;
ErrorWords::ErrorWords(ErrorWords&& other) noexcept = default;
ErrorWords& ErrorWords::operator=(const ErrorWords& other) = default;
ErrorWords& ErrorWords::operator=(ErrorWords&& other) noexcept = default;
ErrorWords::~ErrorWords() = default;

std::string describe(const Error& error) {
  if (!error.message.empty()) return error.message;
  if (error.call != nullptr && error.native != 0) {
    return text::format("[{}] Call to {} results in {}", error.native, error.call,
                        native_name(error.native));
  }
  return std::string(words_of(error.code));
}

}  // namespace emm
