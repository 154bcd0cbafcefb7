#include "libemm/table_driver.hpp"

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "driver/call.hpp"
#include "plugin/abi.hpp"
#include "plugin/slots.hpp"

namespace emm::libemm {
namespace {

/// Receives the answer that a slot writes and returns it as Driver does. Most answers are a number.
template <class Value>
struct Answer {
  std::uint64_t number = 0;
  auto places() noexcept { return std::tuple(&number); }
  Result<Value> value() const noexcept { return Value{number}; }
};
template <>
struct Answer<void> {
  std::tuple<> places() const noexcept { return {}; }
  Status value() const noexcept { return {}; }
};
template <>
struct Answer<HostPtr> {
  void* ptr = nullptr;
  auto places() noexcept { return std::tuple(&ptr); }
  Result<HostPtr> value() const noexcept { return static_cast<HostPtr>(ptr); }
};
template <>
struct Answer<MemoryInfo> {
  MemoryInfo info;
  auto places() noexcept { return std::tuple(&info.free, &info.total); }
  Result<MemoryInfo> value() const noexcept { return info; }
};
template <>
struct Answer<AddressRange> {
  AddressRange range;
  auto places() noexcept { return std::tuple(&range.base.value, &range.size); }
  Result<AddressRange> value() const noexcept { return range; }
};
template <>
struct Answer<IpcMemHandle> {
  IpcMemHandle handle;
  auto places() noexcept {
    return std::tuple(reinterpret_cast<unsigned char*>(handle.bytes.data()));
  }
  Result<IpcMemHandle> value() const noexcept { return handle; }
};
template <>
struct Answer<bool> {
  std::int32_t yes = 0;
  auto places() noexcept { return std::tuple(&yes); }
  Result<bool> value() const noexcept { return yes != 0; }
};

/// Makes the C arguments for a call's parameters.
template <class... Parameters>
auto arguments_of(const Parameters&... parameters) noexcept {
  return std::tuple_cat(plugin::Crossing<Parameters>::to(parameters)...);
}
/// For memcpy_dtoh, the only slot whose order differs from its method's.
auto arguments_of(std::span<std::byte> to, DevicePtr from) noexcept {
  return std::tuple(static_cast<void*>(to.data()), from.value, std::uint64_t{to.size()});
}

/// Makes a call through its slot. A missing slot answers not_supported. A slot without an argument
/// for a bool result answers by its status: EMM_SUCCESS is true and EMM_NOT_READY is false.
template <class R, class Slot, class Arguments>
R make(Call call, Slot slot, void* user, const Arguments& arguments) {
  using Value = typename R::value_type;
  if constexpr (std::is_same_v<Slot, std::nullptr_t>) {
    return driver_error(call, EMM_NOT_SUPPORTED);
  } else {
    if (slot == nullptr) return driver_error(call, EMM_NOT_SUPPORTED);
    const auto with = [&](const auto&... places) {
      return std::apply([&](const auto&... given) { return slot(user, given..., places...); },
                        arguments);
    };
    if constexpr (std::is_same_v<Value, bool> &&
                  plugin::kSlotArguments<Slot> == std::tuple_size_v<Arguments>) {
      const auto status = with();
      if (status == EMM_SUCCESS || status == EMM_NOT_READY) return status == EMM_SUCCESS;
      return driver_error(call, status);
    } else {
      Answer<Value> answer;
      const auto status = std::apply(with, answer.places());
      if (status != EMM_SUCCESS) return driver_error(call, status);
      return answer.value();
    }
  }
}

/// The slot `name` of a table, or nullptr if the table's type has no such slot.
#define EMM_SLOT(table, name)               \
  [](const auto& slots) {                   \
    if constexpr (requires { slots.name; }) \
      return slots.name;                    \
    else                                    \
      return nullptr;                       \
  }(table)

}  // namespace

TableDriver::TableDriver(const emm_driver_v1& table) noexcept
    : table_(plugin::as_known_here(table)) {}

#define EMM_CALL(result, name, cuda, shape, fault, cost, parameters, arguments, seen)             \
  result TableDriver::name parameters {                                                           \
    return make<result>(Call::name, EMM_SLOT(table_, name), table_.user, arguments_of arguments); \
  }
#define EMM_DEFAULT(value)
#include "driver/calls.def"
#undef EMM_SLOT

DeviceIdentity TableDriver::device_identity() const noexcept {
  std::array<std::int32_t, 3> ids{};
  if (table_.device_identity != nullptr) table_.device_identity(table_.user, ids.data());
  return {.pci_domain_id = ids[0], .pci_bus_id = ids[1], .pci_device_id = ids[2]};
}
std::string_view TableDriver::device_name() const noexcept {
  const char* name = table_.device_name != nullptr ? table_.device_name(table_.user) : nullptr;
  return name != nullptr ? name : "a device";
}
int TableDriver::device_ordinal() const noexcept {
  return table_.device_ordinal != nullptr ? table_.device_ordinal(table_.user) : 0;
}
bool TableDriver::can_map_host_memory() const noexcept {
  return table_.can_map_host_memory != nullptr && table_.can_map_host_memory(table_.user) != 0;
}

ContextHandle TableDriver::context_handle() const noexcept {
  return {table_.context_handle != nullptr ? table_.context_handle(table_.user) : 0};
}
std::uint64_t TableDriver::held_bytes() const noexcept {
  return table_.held_bytes != nullptr ? table_.held_bytes(table_.user) : 0;
}
std::uint64_t TableDriver::largest_free_bytes() const noexcept {
  return table_.largest_free_bytes != nullptr ? table_.largest_free_bytes(table_.user) : 0;
}
std::uint64_t TableDriver::log_address(const std::byte* ptr) const noexcept {
  if (table_.log_address != nullptr) return table_.log_address(table_.user, ptr);
  return reinterpret_cast<std::uint64_t>(ptr);
}

TableRuntime::TableRuntime(const emm_driver_v1& table) noexcept
    : table_(plugin::as_known_here(table)) {}

Result<DevicePtr> TableRuntime::malloc(std::uint64_t size) {
  return make<Result<DevicePtr>>(Call::runtime_malloc, table_.runtime_malloc, table_.user,
                                 arguments_of(size));
}
Status TableRuntime::free(DevicePtr ptr) {
  return make<Status>(Call::runtime_free, table_.runtime_free, table_.user, arguments_of(ptr));
}
Result<MemoryInfo> TableRuntime::mem_get_info() {
  return make<Result<MemoryInfo>>(Call::runtime_get_info, table_.runtime_mem_get_info, table_.user,
                                  std::tuple());
}

std::uint64_t TableClock::now_ns() const noexcept {
  return table_.now_ns != nullptr ? table_.now_ns(table_.user) : 0;
}

void TableObserver::pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
  if (table_.pending_added == nullptr) return;
  table_.pending_added(table_.user, call_info(dtor).name.data(), size.value_or(EMM_NOT_KNOWN));
}
void TableObserver::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  if (table_.flushed != nullptr) table_.flushed(table_.user, count, bytes);
}
void TableObserver::free_failed(const Error& error) noexcept {
  if (table_.free_failed == nullptr) return;
  table_.free_failed(table_.user, plugin::status_of(error), describe(error).c_str());
}

}  // namespace emm::libemm
