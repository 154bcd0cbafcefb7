#include "plugin/abi.hpp"

#include <algorithm>

#include "driver/call.hpp"

namespace emm::plugin {

emm_status status_of(const Error& error) noexcept {
  if (error.native != 0) return error.native;
  switch (error.code) {
    case Errc::out_of_memory:
      return EMM_OUT_OF_MEMORY;
    case Errc::not_supported:
      return EMM_NOT_SUPPORTED;
    case Errc::invalid_value:
    case Errc::dead_pointer:
    case Errc::usage:
    case Errc::parse_error:
    case Errc::unknown_format:
      return EMM_INVALID_VALUE;
    case Errc::not_initialized:
      return EMM_NOT_INITIALIZED;
    case Errc::already_registered:
      return EMM_HOST_MEMORY_ALREADY_REGISTERED;
    case Errc::not_registered:
      return EMM_HOST_MEMORY_NOT_REGISTERED;
    case Errc::invalid_context:
      return EMM_INVALID_CONTEXT;
    case Errc::context_destroyed:
      return EMM_CONTEXT_IS_DESTROYED;
    case Errc::not_found:
      return EMM_NOT_FOUND;
    case Errc::no_device:
      return EMM_NO_DEVICE;
    case Errc::version_mismatch:
    case Errc::io_error:
    case Errc::driver_error:
    case Errc::interrupted:
    case Errc::internal:
      return EMM_UNKNOWN_ERROR;
  }
  return EMM_UNKNOWN_ERROR;
}

Errc meaning_of(emm_status status) noexcept { return driver_error(Call::mem_alloc, status).code; }

HostAllocFlags host_alloc_flags(std::uint32_t bits) noexcept {
  return {.mapped = (bits & EMM_HOST_MAPPED) != 0,
          .portable = (bits & EMM_HOST_PORTABLE) != 0,
          .wc = (bits & EMM_HOST_WRITE_COMBINED) != 0};
}

HostRegisterFlags host_register_flags(std::uint32_t bits) noexcept {
  return {.mapped = (bits & EMM_PIN_MAPPED) != 0,
          .portable = (bits & EMM_PIN_PORTABLE) != 0,
          .read_only = (bits & EMM_PIN_READ_ONLY) != 0,
          .io = (bits & EMM_PIN_IO) != 0};
}

std::size_t put_text(const std::string& text, char* buffer, std::size_t size) noexcept {
  if (buffer != nullptr && size > 0) {
    const auto length = std::min(text.size(), size - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return text.size();
}

}  // namespace emm::plugin
