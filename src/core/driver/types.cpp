#include "driver/types.hpp"

#include "driver/call.hpp"

namespace emm {
namespace {

/// The usual faults that calls.def names.
struct Fault {
  enum : std::int32_t {
    invalid_value = 1,
    out_of_memory = 2,
    invalid_device = 101,
    invalid_context = 201,
    map_failed = 205,
    invalid_handle = 400,
    not_found = 500,
    not_registered = 713,
  };
};

constexpr std::array<CallInfo, kCallCount> kCalls{{
#define EMM_CALL(result, name, cuda, shape, fault, ...) {#name, #cuda, shape, Fault::fault},
#define EMM_RUNTIME_CALL(name, cuda, shape, fault, cost) {#name, #cuda, shape, Fault::fault},
#include "driver/calls.def"
}};

}  // namespace

const CallInfo& call_info(Call call) noexcept { return kCalls[static_cast<std::size_t>(call)]; }

Errc meaning_of(std::int32_t native) noexcept {
  switch (native) {
    case 1:
      return Errc::invalid_value;
    case 2:
      return Errc::out_of_memory;
    case 3:
      return Errc::not_initialized;
    case 100:
    case 101:
      return Errc::no_device;
    case 201:
      return Errc::invalid_context;
    case 500:
      return Errc::not_found;
    case 709:
      return Errc::context_destroyed;
    case 712:
      return Errc::already_registered;
    case 713:
      return Errc::not_registered;
    case 801:
      return Errc::not_supported;
    default:
      return Errc::driver_error;
  }
}

Error driver_error(Call call, std::int32_t native) noexcept {
  return Error{.code = meaning_of(native), .native = native, .call = call_info(call).cuda_name};
}

}  // namespace emm
