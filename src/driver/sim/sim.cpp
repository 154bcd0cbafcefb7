#include "base/options.hpp"
#include "driver/device_entry.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<Platform>> open_sim(std::string_view text, const DeviceDefaults& defaults) {
  auto options = Options::parse(text);
  if (!options) return std::move(options).error();
  SimOptions sim;
  const bool is_h200 = defaults.capacity == 0 && !options->has("capacity");
  sim.capacity = options->bytes(
      "capacity", defaults.capacity == 0 ? SimOptions::kH200Total : defaults.capacity);
  sim.costs = options->choice("costs", "h200", {"h200", "none"}) == "h200";
  const auto devices = options->count("devices", static_cast<std::uint64_t>(defaults.devices));
  const auto order = options->choice("order", "late", {"late", "random", "early"});
  sim.order = order == "late"     ? sim::WorkOrder::late
              : order == "random" ? sim::WorkOrder::random
                                  : sim::WorkOrder::early;
  sim.peers = options->choice("peers", "all", {"all", "none"}) == "all";
  sim.reserved = options->bytes("reserved", is_h200 ? SimOptions::kH200Reserved : 0);
  sim.seed = options->count("seed", 0);
  if (auto done = options->finish("device sim"); !done) return std::move(done).error();

  if (sim.capacity < SimOptions::kLeastCapacity || sim.capacity > SimOptions::kMostCapacity) {
    if (defaults.from_trace && !options->has("capacity")) {
      return fail(Errc::usage,
                  "device sim: the trace's header gives its device a capacity of {}: expected 2MiB "
                  "to 4TiB, or --device sim:capacity=SIZE",
                  sim.capacity);
    }
    return fail(Errc::usage, "device sim: option 'capacity' is {}: expected 2MiB to 4TiB",
                sim.capacity);
  }
  if (sim.reserved > sim.capacity - SimOptions::kLeastCapacity) {
    return fail(Errc::usage,
                "device sim: option 'reserved' is {}: expected to leave 2MiB or more of {}",
                sim.reserved, sim.capacity);
  }
  if (devices < 1 || devices > static_cast<std::uint64_t>(SimOptions::kMostDevices)) {
    return fail(Errc::usage, "device sim: option 'devices' is {}: expected 1 to {}", devices,
                SimOptions::kMostDevices);
  }
  sim.devices = static_cast<int>(devices);
  return std::unique_ptr<Platform>(std::make_unique<SimPlatform>(sim));
}

}  // namespace

extern constinit const DeviceEntry sim_sim_device{
    .name = "sim",
    .summary =
        "A simulated H200 in this process: deterministic, with the answers of a real one, and the "
        "costs of its calls by a model",
    .options = "capacity, costs, devices, order, peers, reserved, seed",
    .open = open_sim,
};

}  // namespace emm
