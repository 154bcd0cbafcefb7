#include "harness/device_stack.hpp"

#include "base/text.hpp"
#include "driver/decorate/fault_injector.hpp"

namespace emm {

struct DeviceStack::Faults {
  std::vector<std::unique_ptr<FaultInjector>> injectors;
};

DeviceStack::DeviceStack(StackOptions options, std::unique_ptr<Platform> platform)
    : options_(std::move(options)), platform_(std::move(platform)), faults_(std::make_unique<Faults>()) {}

DeviceStack::~DeviceStack() = default;

Result<std::unique_ptr<DeviceStack>> DeviceStack::create(StackOptions options, std::string* said) {
  std::vector<FaultPlan> plans;
  for (const auto& fault : options.faults) {
    auto plan = FaultPlan::parse(fault);
    if (!plan) return std::move(plan).error();
    plans.push_back(*plan);
  }
  auto platform = open_platform(options.device, options.device_defaults, said);
  if (!platform) return std::move(platform).error();

  std::unique_ptr<DeviceStack> stack(new DeviceStack(std::move(options), std::move(*platform)));
  for (const auto& plan : plans) stack->faults_->injectors.push_back(std::make_unique<FaultInjector>(plan));
  stack->description_ = stack->platform_->spec();
  return stack;
}

Result<std::unique_ptr<Context>> DeviceStack::make_context(std::uint32_t device, ManagerObserver* observer,
                                                           order::Checker* order) {
  if (device >= static_cast<std::uint32_t>(platform_->device_count())) {
    return fail(Errc::no_device, "the trace uses device {}, and {} has {}", device, platform_->kind(),
                platform_->device_count());
  }
  auto opened = platform_->open(static_cast<int>(device));
  if (!opened) return std::move(opened).error();
  if (order != nullptr) *opened = order->watch(std::move(*opened), device);
  for (const auto& injector : faults_->injectors) *opened = hooked(std::move(*opened), *injector);
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
  return replay::start_peer_process(
      {options_.peer_program, "ipc-peer", platform_->spec(), "--ordinal", text::format("{}", device)});
}

}  // namespace emm
