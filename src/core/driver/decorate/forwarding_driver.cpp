#include "driver/decorate/forwarding_driver.hpp"

#include <type_traits>
#include <utility>

#include "driver/call.hpp"

namespace emm {
namespace {

constexpr std::int32_t kUnknown = 999;  // CUDA_ERROR_UNKNOWN, for a failure without a CUresult

std::uint64_t number(HostPtr ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }
std::uint64_t number(std::uint64_t value) { return value; }
std::uint64_t number(bool answer) { return answer ? 1 : 0; }
std::uint64_t number(const DeviceIdentity& device) {
  return static_cast<std::uint64_t>(device.pci_bus_id);
}
template <class Enum>
requires std::is_enum_v<Enum> std::uint64_t number(Enum value) {
  return static_cast<std::uint64_t>(value);
}
std::uint64_t number(const MemoryInfo& info) { return info.free; }
std::uint64_t number(const AddressRange& range) { return range.base.value; }
std::uint64_t number(const IpcMemHandle&) { return 0; }
template <class Handle>
requires std::is_same_v<decltype(Handle::value), std::uint64_t> std::uint64_t number(
    Handle handle) {
  return handle.value;
}

template <class Make>
auto around(CallHook& hook, CallEvent event, Make make) -> decltype(make()) {
  if (const auto native = hook.before(event); native != 0) return driver_error(event.call, native);
  auto answer = make();
  if (!answer) {
    event.native = answer.error().native != 0 ? answer.error().native : kUnknown;
  } else if constexpr (!std::is_void_v<typename decltype(make())::value_type>) {
    event.result = number(*answer);
  }
  hook.after(event);
  return answer;
}

}  // namespace

#define EMM_MEMBERS(...) __VA_ARGS__
#define EMM_CALL(result, name, cuda, shape, fault, cost, parameters, arguments, seen) \
  result ForwardingDriver::name parameters {                                          \
    return around(hook_, {.call = Call::name, EMM_MEMBERS seen},                      \
                  [&] { return inner_.name arguments; });                             \
  }
#define EMM_DEFAULT(value)
#include "driver/calls.def"
#undef EMM_MEMBERS

Result<DevicePtr> ForwardingRuntime::malloc(std::uint64_t size) {
  return around(hook_, {.call = Call::runtime_malloc, .size = size},
                [&] { return inner_.malloc(size); });
}
Status ForwardingRuntime::free(DevicePtr ptr) {
  return around(hook_, {.call = Call::runtime_free, .pointer = ptr.value},
                [&] { return inner_.free(ptr); });
}
Result<MemoryInfo> ForwardingRuntime::mem_get_info() {
  return around(hook_, {.call = Call::runtime_get_info}, [&] { return inner_.mem_get_info(); });
}

namespace {

struct OwnedDriver final : private std::unique_ptr<Driver>, public ForwardingDriver {
  OwnedDriver(std::unique_ptr<Driver> inner, CallHook& hook)
      : std::unique_ptr<Driver>(std::move(inner)), ForwardingDriver(**this, hook) {}
};

class OwnedRuntime final : public Runtime {
 public:
  OwnedRuntime(std::unique_ptr<Runtime> inner, CallHook& hook)
      : inner_(std::move(inner)), forward_(*inner_, hook) {}
  Result<DevicePtr> malloc(std::uint64_t size) override { return forward_.malloc(size); }
  Status free(DevicePtr ptr) override { return forward_.free(ptr); }
  Result<MemoryInfo> mem_get_info() override { return forward_.mem_get_info(); }

 private:
  std::unique_ptr<Runtime> inner_;
  ForwardingRuntime forward_;
};

}  // namespace

OpenedDevice hooked(OpenedDevice device, CallHook& hook) {
  OpenedDevice out;
  out.driver = std::make_unique<OwnedDriver>(std::move(device.driver), hook);
  if (device.runtime) out.runtime = std::make_unique<OwnedRuntime>(std::move(device.runtime), hook);
  return out;
}

}  // namespace emm
