#include "replay/device_stack.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "base/text.hpp"
#include "driver/decorate/fault_injector.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "emm/context.hpp"
#include "plugin/python_class.hpp"
#include "plugin/standin.hpp"

namespace emm {

struct DeviceStack::Faults {
  std::vector<std::unique_ptr<FaultInjector>> injectors;
};

/// The stand-in for libcuda.so.1 over a simulated device, and the faults of all calls that reach
/// it.
class DeviceStack::StandIn final : public CallHook {
 public:
  StandIn(plugin::StandIns standins, const Faults& faults) : standins_(standins), faults_(faults) {
    standins_.tap(this);
  }
  ~StandIn() override { standins_.tap(nullptr); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  std::int32_t before(const CallEvent& event) override {
    if (measures) return 0;
    for (const auto& injector : faults_.injectors) {
      if (const auto native = injector->before(event); native != 0) return native;
    }
    return 0;
  }

  /// This thread asks the device what is free, which is no call of the run.
  static thread_local bool measures;

 private:
  plugin::StandIns standins_;
  const Faults& faults_;
};

thread_local bool DeviceStack::StandIn::measures = false;

/// A driver beside a manager that makes its own calls. What the manager holds is told by what the
/// device has free.
class DeviceStack::Beside final : public ForwardingDriver {
 public:
  explicit Beside(std::unique_ptr<Driver> inner)
      : ForwardingDriver(*inner, none()), inner_(std::move(inner)), free_before_(free()) {}
  std::uint64_t held_bytes() const noexcept override {
    const auto now = free();
    return free_before_ > now ? free_before_ - now : 0;
  }

 private:
  static CallHook& none() noexcept {
    static CallHook hook;
    return hook;
  }
  std::uint64_t free() const noexcept {
    StandIn::measures = true;
    const auto info = inner_->mem_get_info();
    StandIn::measures = false;
    return info ? info->free : 0;
  }
  std::unique_ptr<Driver> inner_;
  std::uint64_t free_before_;
};

namespace {

/// What a trace suggests for the devices that it is replayed on.
DeviceDefaults defaults_of(const trace::Trace& trace) {
  const auto& ordinals = trace.devices();
  DeviceDefaults defaults{.devices = static_cast<int>(ordinals.size())};
  std::uint64_t most = 0;
  for (const auto ordinal : ordinals) most = std::max(most, trace.capacity(ordinal));
  if (most == 0) return defaults;
  defaults.from_trace = true;
  for (const auto ordinal : ordinals) {
    const auto said = trace.capacity(ordinal);
    defaults.capacities.push_back(said != 0 ? said : most);
  }
  return defaults;
}

template <class Numbers>
std::string listed(const Numbers& numbers) {
  std::vector<std::string> words;
  for (const auto number : numbers) words.push_back(text::format("{}", number));
  return text::join(words);
}

}  // namespace

std::string renumbered(const std::vector<std::uint32_t>& ordinals, const std::vector<int>& numbers,
                       std::string_view kind) {
  const auto same = [](int number, std::uint32_t ordinal) {
    return static_cast<std::uint32_t>(number) == ordinal;
  };
  if (std::equal(numbers.begin(), numbers.end(), ordinals.begin(), ordinals.end(), same)) return {};
  const auto one = numbers.size() == 1;
  return text::format("the trace's {} {} {} {} {} of {}", one ? "device" : "devices",
                      listed(ordinals), one ? "is" : "are", one ? "device" : "devices",
                      listed(numbers), kind);
}

DeviceStack::DeviceStack(StackOptions options, std::unique_ptr<Platform> platform)
    : options_(std::move(options)),
      platform_(std::move(platform)),
      faults_(std::make_unique<Faults>()) {}

DeviceStack::~DeviceStack() {
  opened_.clear();
  standin_.reset();
}

Result<std::unique_ptr<DeviceStack>> DeviceStack::create(StackOptions options,
                                                         std::vector<std::string>* said) {
  std::vector<FaultPlan> plans;
  for (const auto& fault : options.faults) {
    auto plan = FaultPlan::parse(fault);
    if (!plan) return std::move(plan).error();
    plans.push_back(*plan);
  }
  std::string chosen;
  auto platform = open_platform(
      options.device, options.trace != nullptr ? defaults_of(*options.trace) : DeviceDefaults(),
      &chosen);
  if (!platform) return std::move(platform).error();

  const auto spec = (*platform)->spec();
  std::optional<plugin::StandIns> standins;
  if ((*platform)->kind() == "sim" && plugin::is_python_class(options.manager.name)) {
    standins = plugin::StandIns::load();
    if (!standins) return fail(Errc::no_device, "{}", plugin::kNoStandIns);
    setenv("EMM_STANDIN_DEVICE", spec.c_str(), 1);
    plugin::lead_python_here();
    platform = open_platform("cuda", {});
    if (!platform) return std::move(platform).error();
  }
  std::unique_ptr<DeviceStack> stack(new DeviceStack(std::move(options), std::move(*platform)));
  for (const auto& plan : plans)
    stack->faults_->injectors.push_back(std::make_unique<FaultInjector>(plan));
  if (standins) stack->standin_ = std::make_unique<StandIn>(*standins, *stack->faults_);
  stack->description_ = spec;
  if (auto laid = stack->lay_out(); !laid) return std::move(laid).error();
  if (said == nullptr) return stack;
  std::vector<int> numbers;
  for (const auto place : stack->places_)
    numbers.push_back(stack->platform_->machine_ordinal(place));
  for (auto& words : {chosen, renumbered(stack->ordinals_, numbers, stack->platform_->kind())}) {
    if (!words.empty()) said->push_back(words);
  }
  return stack;
}

Status DeviceStack::lay_out() {
  ordinals_ = options_.trace != nullptr ? options_.trace->devices() : std::vector<std::uint32_t>{0};
  const auto count = static_cast<std::size_t>(platform_->device_count());
  if (ordinals_.size() > count) {
    const auto from = platform_->machine_ordinal(0);
    return fail(Errc::no_device, "the trace names {} devices ({}), and {} has {}{}",
                ordinals_.size(), listed(ordinals_), platform_->kind(), count,
                from == 0 ? std::string() : text::format(" from device {} on", from));
  }
  const bool by_number = platform_->kind() != "sim" && ordinals_.back() < count;
  for (std::size_t i = 0; i < ordinals_.size(); ++i) {
    places_.push_back(static_cast<int>(by_number ? ordinals_[i] : i));
  }
  if (ordinals_.size() == 1 || options_.manager.apart || !options_.manager.make) return {};
  // A later device's adaptor may refuse its output file because another output of the run has that
  // path. This loop reports it before the first device begins its file.
  for (const auto ordinal : ordinals_) {
    const auto probe = options_.manager.make({.shown_ordinal = static_cast<int>(ordinal)});
    if (!probe) return probe.error();
  }
  return {};
}

int DeviceStack::place_of(std::uint32_t ordinal) const {
  const auto found = std::lower_bound(ordinals_.begin(), ordinals_.end(), ordinal);
  EMM_ASSERT(found != ordinals_.end() && *found == ordinal);
  return places_[static_cast<std::size_t>(found - ordinals_.begin())];
}

Result<std::unique_ptr<Context>> DeviceStack::make_context(std::uint32_t device,
                                                           ManagerObserver* observer,
                                                           stream_order::Checker* order) {
  auto opened = platform_->open(place_of(device));
  if (!opened) return std::move(opened).error();
  if (order != nullptr) *opened = order->watch(std::move(*opened), device);
  if (standin_) {
    opened->driver = std::make_unique<Beside>(std::move(opened->driver));
  } else {
    for (const auto& injector : faults_->injectors) *opened = hooked(std::move(*opened), *injector);
  }
  opened->shown_ordinal = static_cast<int>(device);
  opened_.push_back(std::make_unique<OpenedDevice>(std::move(*opened)));
  return Context::create(*opened_.back(), clock(), options_.manager, observer, options_.profile);
}

std::vector<std::string> DeviceStack::unused_faults() const {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < faults_->injectors.size(); ++i) {
    if (faults_->injectors[i]->injected() == 0) unused.push_back(options_.faults[i]);
  }
  return unused;
}

Result<std::unique_ptr<replay::Peer>> DeviceStack::start_peer(std::uint32_t device) {
  // Behind the stand-in are the devices of the description.
  return replay::start_peer_process({options_.peer_program, "ipc-peer", description_, "--ordinal",
                                     text::format("{}", place_of(device))});
}

}  // namespace emm
