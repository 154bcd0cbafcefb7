#include "driver/decorate/fault_injector.hpp"

#include <string>
#include <vector>

#include "base/options.hpp"
#include "base/text.hpp"
#include "driver/call.hpp"

namespace emm {
namespace {

constexpr std::string_view kAny = "any";
constexpr std::uint64_t kLargestNative = 999;  // CUDA_ERROR_UNKNOWN

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

std::int32_t FaultInjector::before(const CallEvent& event) {
  if (plan_.call && *plan_.call != event.call) return 0;
  const std::lock_guard lock(mutex_);
  ++seen_;
  const bool fails = plan_.nth != 0 ? seen_ == plan_.nth : random_.chance(plan_.rate);
  if (!fails) return 0;
  ++injected_;
  return plan_.native != 0 ? plan_.native : call_info(event.call).usual_fault;
}

std::uint64_t FaultInjector::injected() const {
  const std::lock_guard lock(mutex_);
  return injected_;
}

}  // namespace emm
