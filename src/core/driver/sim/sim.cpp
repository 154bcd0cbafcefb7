#include <algorithm>
#include <vector>

#include "base/options.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile_file.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {
namespace {

Status check_capacity(std::uint64_t capacity, std::uint64_t reserved, bool from_trace) {
  if (capacity < SimOptions::kLeastCapacity || capacity > SimOptions::kMostCapacity) {
    if (from_trace) {
      return fail(Errc::usage,
                  "device sim: the trace's header gives its device a capacity of {}: expected 2MiB "
                  "to 4TiB, or --device sim:capacity=SIZE",
                  capacity);
    }
    return fail(Errc::usage, "device sim: option 'capacity' is {}: expected 2MiB to 4TiB",
                capacity);
  }
  if (reserved > capacity - SimOptions::kLeastCapacity) {
    return fail(Errc::usage,
                "device sim: option 'reserved' is {}: expected to leave 2MiB or more of {}",
                reserved, capacity);
  }
  return {};
}

Result<std::unique_ptr<Platform>> open_sim(std::string_view text, const DeviceDefaults& defaults) {
  auto options = Options::parse(text);
  if (!options) return std::move(options).error();
  SimOptions sim;
  const auto given = options->bytes_of_each("capacity");
  const bool is_whole = defaults.capacity == 0 && defaults.capacities.empty() && given.empty();
  sim.zeroed = options->choice("content", "pattern", {"pattern", "zero"}) == "zero";
  sim.costs = options->choice("costs", "h200", {"h200", "none"}) == "h200";
  const auto devices = options->count(
      "devices", given.size() > 1 ? given.size() : static_cast<std::uint64_t>(defaults.devices));
  if (const auto named = options->text("gpu", ""); !named.empty()) {
    sim.gpu = find_gpu_profile(named);
    if (sim.gpu == nullptr) {
      return fail(Errc::usage, "device sim: option 'gpu' is {}: expected one of {}", named,
                  gpu_profile_names());
    }
  }
  if (const auto path = options->text("profile", ""); !path.empty()) {
    if (sim.gpu != nullptr)
      return fail(Errc::usage, "device sim: options 'gpu' and 'profile': expected one of them");
    auto read = read_gpu_profile(path);
    if (!read) return std::move(read).error();
    sim.gpu = *read;
  }
  const auto& card = sim.gpu != nullptr ? *sim.gpu : gpu_profiles().front();
  if (sim.gpu != nullptr || is_whole) sim.libraries = card.libraries;
  const auto order = options->choice("order", "late", {"late", "random", "early"});
  sim.order = order == "late"     ? sim::WorkOrder::late
              : order == "random" ? sim::WorkOrder::random
                                  : sim::WorkOrder::early;
  sim.addresses = options->choice("addresses", "first_fit", {"first_fit", "driver"}) == "driver"
                      ? sim::Addresses::driver
                      : sim::Addresses::first_fit;
  sim.peers = options->choice("peers", "all", {"all", "none"}) == "all";
  sim.reserved = options->bytes("reserved", is_whole ? card.context : 0);
  sim.seed = options->count("seed", 0);
  if (auto done = options->finish("device sim"); !done) return std::move(done).error();

  if (devices < 1 || devices > static_cast<std::uint64_t>(SimOptions::kMostDevices)) {
    return fail(Errc::usage, "device sim: option 'devices' is {}: expected 1 to {}", devices,
                SimOptions::kMostDevices);
  }
  if (given.size() > 1 && given.size() != devices) {
    return fail(Errc::usage,
                "device sim: option 'capacity' is of {} devices, and 'devices' is {}: expected one "
                "capacity, or one for each device",
                given.size(), devices);
  }
  auto capacities = given.empty() ? defaults.capacities : given;
  if (capacities.empty()) capacities = {defaults.capacity == 0 ? card.total : defaults.capacity};
  capacities.resize(static_cast<std::size_t>(devices), capacities.front());
  for (const auto capacity : capacities) {
    if (auto fits = check_capacity(capacity, sim.reserved, defaults.from_trace && given.empty());
        !fits) {
      return std::move(fits).error();
    }
  }
  sim.capacity = capacities.front();
  const auto is_first = [&](std::uint64_t capacity) { return capacity == sim.capacity; };
  if (!std::all_of(capacities.begin(), capacities.end(), is_first))
    sim.capacities = std::move(capacities);
  sim.devices = static_cast<int>(devices);
  return std::unique_ptr<Platform>(std::make_unique<SimPlatform>(sim));
}

}  // namespace

extern constinit const DeviceEntry sim_sim_device{
    .name = "sim",
    .summary =
        "A simulated H200 in this process: deterministic, with the answers of a real one, and the "
        "costs of its calls by a model",
    .options =
        "addresses, capacity, content, costs, devices, gpu, order, peers, profile, reserved, seed",
    .open = open_sim,
};

}  // namespace emm
