#include "plugin/driver_table.hpp"

#include <array>
#include <tuple>
#include <utility>

#include "driver/call.hpp"
#include "plugin/abi.hpp"
#include "plugin/slots.hpp"

namespace emm::plugin {
namespace {

Driver& of(void* user) noexcept { return static_cast<DriverTable*>(user)->driver(); }
Runtime& runtime_of(void* user) noexcept { return static_cast<DriverTable*>(user)->runtime(); }
Clock& clock_of(void* user) noexcept { return static_cast<HostTable*>(user)->clock(); }
ManagerObserver& observer_of(void* user) noexcept {
  return static_cast<HostTable*>(user)->observer();
}

// Each overload turns a result into a status and stores the value through the caller's pointers.
// After a failure it writes nothing.
emm_status answer(const Status& done) noexcept {
  return done ? EMM_SUCCESS : status_of(done.error());
}
template <class Handle>
emm_status answer(const Result<Handle>& value, std::uint64_t* into) noexcept {
  if (!value) return status_of(value.error());
  *into = value->value;
  return EMM_SUCCESS;
}
emm_status answer(const Result<std::uint64_t>& value, std::uint64_t* into) noexcept {
  if (!value) return status_of(value.error());
  *into = *value;
  return EMM_SUCCESS;
}
emm_status answer(const Result<HostPtr>& value, void** into) noexcept {
  if (!value) return status_of(value.error());
  *into = *value;
  return EMM_SUCCESS;
}
emm_status answer(const Result<MemoryInfo>& info, std::uint64_t* free,
                  std::uint64_t* total) noexcept {
  if (!info) return status_of(info.error());
  *free = info->free;
  *total = info->total;
  return EMM_SUCCESS;
}
emm_status answer(const Result<AddressRange>& range, std::uint64_t* base,
                  std::uint64_t* size) noexcept {
  if (!range) return status_of(range.error());
  *base = range->base.value;
  *size = range->size;
  return EMM_SUCCESS;
}
emm_status answer(const Result<IpcMemHandle>& handle, unsigned char* bytes) noexcept {
  if (!handle) return status_of(handle.error());
  std::memcpy(bytes, handle->bytes.data(), handle->bytes.size());
  return EMM_SUCCESS;
}
emm_status answer(const Result<bool>& yes, std::int32_t* into) noexcept {
  if (!yes) return status_of(yes.error());
  *into = *yes ? 1 : 0;
  return EMM_SUCCESS;
}
/// For queries whether work is done: false becomes the status EMM_NOT_READY.
emm_status answer(const Result<bool>& done) noexcept {
  if (!done) return status_of(done.error());
  return *done ? EMM_SUCCESS : EMM_NOT_READY;
}

/// The arguments [first, first + count) of a slot.
template <std::size_t first, std::size_t count, class... Args>
auto part(const std::tuple<Args...>& arguments) noexcept {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::make_tuple(std::get<first + i>(arguments)...);
  }
  (std::make_index_sequence<count>());
}

/// The function in a method's slot. It builds the method's parameters from the first C arguments;
/// the remaining arguments say where the answer goes.
template <auto method>
struct DriverSlot;
template <class Value, class... Parameters, Result<Value> (Driver::*method)(Parameters...)>
struct DriverSlot<method> {
  static constexpr std::size_t kRead = (std::size_t{0} + ... + kArguments<Parameters>);
  /// For each parameter, the index of its first argument.
  static constexpr auto kFirst = [] {
    std::array<std::size_t, sizeof...(Parameters) + 1> first{};
    [[maybe_unused]] std::size_t i = 0;
    ((first[i + 1] = first[i] + kArguments<Parameters>, ++i), ...);
    return first;
  }();

  template <class... Args>
  static emm_status call(void* user, Args... args) {
    const std::tuple<Args...> all(args...);
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      const auto result =
          (of(user).*method)(std::apply(Crossing<std::remove_cvref_t<Parameters>>::from,
                                        part<kFirst[i], kArguments<Parameters>>(all))...);
      return std::apply([&](auto... into) { return answer(result, into...); },
                        part<kRead, sizeof...(Args) - kRead>(all));
    }
    (std::index_sequence_for<Parameters...>());
  }
};
/// The only slot whose order differs from its method's: the size comes after both addresses.
template <>
struct DriverSlot<&Driver::memcpy_dtoh> {
  static emm_status call(void* user, void* to, std::uint64_t from, std::uint64_t size) {
    return answer(of(user).memcpy_dtoh({static_cast<HostPtr>(to), size}, {from}));
  }
};

/// Fills the slots of all calls. A call without a slot is skipped: a manager must not call
/// primary_ctx_reset().
template <class Table>
void put_calls(Table& table) noexcept {
#define EMM_CALL(result, name, ...) \
  if constexpr (requires { table.name; }) table.name = &DriverSlot<&Driver::name>::call;
#include "driver/calls.def"
}

/// Fills the slots that describe the device without a call.
void put_facts(emm_driver_v1& table) noexcept {
  table.context_handle = [](void* user) { return of(user).context_handle().value; };
  table.device_identity = [](void* user, std::int32_t* pci) {
    const auto identity = of(user).device_identity();
    pci[0] = identity.pci_domain_id;
    pci[1] = identity.pci_bus_id;
    pci[2] = identity.pci_device_id;
  };
  table.device_name = [](void* user) { return static_cast<DriverTable*>(user)->device_name(); };
  table.device_ordinal = [](void* user) -> std::int32_t { return of(user).device_ordinal(); };
  table.can_map_host_memory = [](void* user) -> std::int32_t {
    return of(user).can_map_host_memory() ? 1 : 0;
  };
  table.held_bytes = [](void* user) { return of(user).held_bytes(); };
  table.largest_free_bytes = [](void* user) { return of(user).largest_free_bytes(); };
  table.log_address = [](void* user, const void* ptr) {
    return of(user).log_address(static_cast<const std::byte*>(ptr));
  };
}

void put_runtime(emm_driver_v1& table) noexcept {
  table.runtime_malloc = [](void* user, std::uint64_t size, std::uint64_t* ptr) {
    return answer(runtime_of(user).malloc(size), ptr);
  };
  table.runtime_free = [](void* user, std::uint64_t ptr) {
    return answer(runtime_of(user).free({ptr}));
  };
  table.runtime_mem_get_info = [](void* user, std::uint64_t* free, std::uint64_t* total) {
    return answer(runtime_of(user).mem_get_info(), free, total);
  };
}

}  // namespace

DriverTable::DriverTable(Driver& driver, Runtime* runtime)
    : driver_(driver), runtime_(runtime), device_name_(driver.device_name()), table_{} {
  table_.struct_size = sizeof table_;
  table_.user = this;
  put_calls(table_);
  put_facts(table_);
  if (runtime != nullptr) put_runtime(table_);
}

HostTable::HostTable(Clock* clock, ManagerObserver* observer) noexcept
    : clock_(clock), observer_(observer), table_{} {
  table_.struct_size = sizeof table_;
  table_.user = this;
  if (clock != nullptr) table_.now_ns = [](void* user) { return clock_of(user).now_ns(); };
  if (observer == nullptr) return;
  table_.pending_added = [](void* user, const char* call, std::uint64_t size) {
    for (std::size_t i = 0; i < kCallCount; ++i) {
      const auto known = static_cast<Call>(i);
      if (call == nullptr || call_info(known).name != call) continue;
      observer_of(user).pending_added(
          known, size == EMM_NOT_KNOWN ? std::optional<std::uint64_t>() : size);
    }
  };
  table_.flushed = [](void* user, std::uint64_t count, std::uint64_t bytes) {
    observer_of(user).flushed(count, bytes);
  };
  table_.free_failed = [](void* user, emm_status status, const char* words) {
    Error error{.code = meaning_of(status), .native = status};
    if (words != nullptr) error.message = words;
    observer_of(user).free_failed(error);
  };
}

}  // namespace emm::plugin
