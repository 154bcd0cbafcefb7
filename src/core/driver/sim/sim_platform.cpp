#include "driver/sim/sim_platform.hpp"

#include "base/assert.hpp"
#include "base/prng.hpp"
#include "base/text_format.hpp"
#include "driver/sim/sim_driver.hpp"
#include "driver/sim/sim_runtime.hpp"
#include "driver/sim/thread_contexts.hpp"

namespace emm {

using sim::SimDevice;

namespace {

sim::Pattern fresh_memory(const SimOptions& options) {
  if (options.zeroed) return {0};
  return {static_cast<std::uint32_t>(Prng(options.seed).next() >> 32)};
}

}  // namespace

SimPlatform::SimPlatform(const SimOptions& options)
    : options_(options),
      device_name_(options.gpu != nullptr ? text::format("simulated {}", options.gpu->device)
                                          : "simulated H200"),
      number_(sim::thread_contexts::number_for_platform()),
      scheduler_(*this, options.devices, options.order, options.seed),
      virtual_memory_(*this, fresh_memory(options)),
      pools_(*this) {
  EMM_ASSERT(options.devices >= 1 && options.devices <= SimOptions::kMostDevices);
  EMM_ASSERT(options.capacities.empty() ||
             options.capacities.size() == static_cast<std::size_t>(options.devices));
  for (int ordinal = 0; ordinal < options.devices; ++ordinal) {
    const auto total = options.capacities.empty()
                           ? options.capacity
                           : options.capacities[static_cast<std::size_t>(ordinal)];
    EMM_ASSERT(total <= SimOptions::kMostCapacity && options.reserved < total);
    EMM_ASSERT(total - options.reserved >= SimOptions::kLeastCapacity);
    const sim::DeviceSpec spec{.ordinal = ordinal,
                               .total = total,
                               .reserved = options.reserved,
                               .addresses = options.addresses,
                               .fresh = fresh_memory(options)};
    devices_.push_back(std::make_unique<SimDevice>(spec, host_));
  }
}

Result<OpenedDevice> SimPlatform::open(int ordinal) {
  if (ordinal < 0 || ordinal >= options_.devices) {
    return fail(Errc::no_device, "no device {}: there are {}, counted from 0", ordinal,
                options_.devices);
  }
  auto& opened = device(ordinal);
  const auto context = opened.retain();
  return OpenedDevice{.driver = std::make_unique<SimDriver>(*this, opened, context),
                      .runtime = std::make_unique<SimRuntime>(*this, opened, context)};
}

std::string SimPlatform::spec() const {
  auto capacity = text::format("{}", options_.capacity);
  for (std::size_t i = 0; i < options_.capacities.size(); ++i) {
    capacity = i == 0 ? text::format("{}", options_.capacities[i])
                      : text::format("{}/{}", capacity, options_.capacities[i]);
  }
  auto spec = text::format("sim:capacity={},costs={},devices={}", capacity,
                           options_.costs ? "h200" : "none", options_.devices);
  if (!options_.peers) spec += ",peers=none";
  if (options_.order != sim::WorkOrder::late)
    spec += options_.order == sim::WorkOrder::random ? ",order=random" : ",order=early";
  if (options_.gpu != nullptr)
    spec += text::format(",{}={}", options_.gpu->attributes.empty() ? "gpu" : "profile",
                         options_.gpu->name);
  if (options_.addresses == sim::Addresses::driver) spec += ",addresses=driver";
  if (options_.zeroed) spec += ",content=zero";
  if (options_.reserved != 0) spec += text::format(",reserved={}", options_.reserved);
  return spec + text::format(",seed={}", options_.seed);
}

DeviceIdentity SimPlatform::identity(int ordinal) const noexcept {
  return {.pci_domain_id = 0, .pci_bus_id = ordinal + 1, .pci_device_id = 0};
}

void SimPlatform::forget_peer(int ordinal) noexcept {
  for (auto& device : devices_) device->set_reach(ordinal, false);
}

SimDevice* SimPlatform::device_of(ContextHandle context) noexcept {
  for (auto& device : devices_) {
    if (context.value != 0 && device->state(context) != sim::kContextDestroyed) return device.get();
  }
  return nullptr;
}

SimDevice* SimPlatform::device_at(std::uint64_t address) noexcept {
  const auto index = (address - SimDevice::kFirstAddress) / SimDevice::kAddresses;
  return address >= SimDevice::kFirstAddress && index < devices_.size() ? devices_[index].get()
                                                                        : nullptr;
}

}  // namespace emm
