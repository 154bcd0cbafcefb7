#include "driver/decorate/fault_injector.hpp"

#include <string>
#include <vector>

#include "base/options.hpp"
#include "base/text.hpp"

namespace emm {
namespace {

constexpr std::string_view kAny = "any";
constexpr std::uint64_t kLargestNative = 999;

Result<std::optional<Call>> parse_call(std::string_view name) {
  if (name == kAny) return std::optional<Call>();
  std::vector<std::string_view> known{kAny};
  for (std::size_t i = 0; i < kCallCount; ++i) {
    const auto call = static_cast<Call>(i);
    if (call_info(call).name == name) return std::optional<Call>(call);
    known.push_back(call_info(call).name);
  }
  return fail(Errc::usage, "--fault: unknown call '{}': known are {}", name, text::join(known));
}

Result<FaultPlan> parse_rate(std::string_view text) {
  auto options = Options::parse(text);
  if (!options) return std::move(options).error();
  FaultPlan plan;
  plan.rate = options->number("rate", 0);
  plan.seed = options->count("seed", 0);
  const auto call = parse_call(options->text("call", kAny));
  if (auto done = options->finish("--fault"); !done) return std::move(done).error();
  if (!call) return call.error();
  plan.call = *call;
  if (!(plan.rate >= 0 && plan.rate <= 1))
    return fail(Errc::usage, "--fault: rate is {}: expected 0 to 1", plan.rate);
  return plan;
}

}  // namespace

Result<FaultPlan> FaultPlan::parse(std::string_view text) {
  if (text.substr(0, 5) == "rate=") return parse_rate(text);
  const auto colon = text.find(':');
  const auto equals = text.find('=');
  const auto malformed = [&] {
    return fail(Errc::usage,
                "--fault: '{}' is not a fault: expected CALL:N, CALL:N=CODE or rate=R,seed=S",
                text);
  };
  if (colon == std::string_view::npos) return malformed();
  const auto call = parse_call(text.substr(0, colon));
  if (!call) return call.error();
  const auto nth = text::to_u64(
      text.substr(colon + 1, equals == std::string_view::npos ? equals : equals - colon - 1));
  if (!nth || *nth == 0) return malformed();
  FaultPlan plan{.call = *call, .nth = *nth};
  if (equals != std::string_view::npos) {
    const auto native = text::to_u64(text.substr(equals + 1));
    if (!native || *native == 0 || *native > kLargestNative) return malformed();
    plan.native = static_cast<std::int32_t>(*native);
  }
  return plan;
}

std::int32_t usual_fault(Call call) noexcept {
  switch (call) {
    case Call::mem_alloc:
    case Call::mem_alloc_managed:
    case Call::mem_host_alloc:
    case Call::mem_host_register:
    case Call::event_create:
    case Call::stream_create:
    case Call::library_load:
    case Call::mem_create:
    case Call::mem_map:
    case Call::mem_set_access:
    case Call::mem_address_reserve:
    case Call::mem_pool_create:
    case Call::mem_alloc_async:
    case Call::mem_alloc_from_pool_async:
    case Call::runtime_malloc:
      return 2;  // out of memory
    case Call::mem_free:
    case Call::mem_free_host:
    case Call::mem_host_get_device_pointer:
    case Call::ipc_get_mem_handle:
    case Call::memset_d8:
    case Call::memset_d32:
    case Call::memcpy_htod:
    case Call::memcpy_dtoh:
    case Call::memcpy_dtod:
    case Call::memset_d8_async:
    case Call::memcpy_dtod_async:
    case Call::memcpy_peer:
    case Call::launch_host_func:
    case Call::mem_get_allocation_granularity:
    case Call::mem_address_free:
    case Call::mem_release:
    case Call::mem_unmap:
    case Call::mem_pool_destroy:
    case Call::device_get_default_mem_pool:
    case Call::mem_pool_trim_to:
    case Call::mem_pool_set_attribute:
    case Call::mem_pool_get_attribute:
    case Call::mem_free_async:
    case Call::runtime_free:
    case Call::runtime_get_info:
      return 1;  // invalid value
    case Call::mem_host_unregister:
      return 713;  // not registered
    case Call::mem_get_address_range:
      return 500;  // not found
    case Call::ipc_open_mem_handle:
    case Call::ipc_close_mem_handle:
      return 205;  // map failed
    case Call::event_destroy:
    case Call::stream_destroy:
    case Call::stream_synchronize:
    case Call::stream_query:
    case Call::stream_wait_event:
    case Call::event_record:
    case Call::event_query:
    case Call::event_synchronize:
    case Call::library_unload:
      return 400;  // invalid handle
    case Call::mem_get_info:
    case Call::ctx_synchronize:
    case Call::ctx_push_current:
    case Call::ctx_pop_current:
      return 201;  // invalid context
    case Call::primary_ctx_reset:
    case Call::can_access_peer:
    case Call::ctx_enable_peer_access:
    case Call::ctx_disable_peer_access:
      return 101;  // invalid device
  }
  return 999;
}

std::int32_t FaultInjector::before(const CallEvent& event) {
  if (plan_.call && *plan_.call != event.call) return 0;
  const std::lock_guard lock(mutex_);
  ++seen_;
  const bool fails = plan_.nth != 0 ? seen_ == plan_.nth : random_.chance(plan_.rate);
  if (!fails) return 0;
  ++injected_;
  return plan_.native != 0 ? plan_.native : usual_fault(event.call);
}

std::uint64_t FaultInjector::injected() const {
  const std::lock_guard lock(mutex_);
  return injected_;
}

}  // namespace emm
