#include <gtest/gtest.h>

#include "emm/context.hpp"
#include "emm/manager_entry.hpp"
#include "order_device.hpp"
#include "random_program.hpp"
#include "replay/engine.hpp"
#include "stream_pool.hpp"

namespace emm::stream_order {
namespace {

#if defined(EMM_ADDRESS_SANITIZER) || defined(EMM_THREAD_SANITIZER)
constexpr std::uint64_t kPrograms = 400;
#else
constexpr std::uint64_t kPrograms = 10'000;
#endif

class OrderRuntime final : public Runtime {
 public:
  explicit OrderRuntime(Driver& driver) : driver_(driver) {}
  Result<DevicePtr> malloc(std::uint64_t size) override { return driver_.mem_alloc(size); }
  Status free(DevicePtr ptr) override { return driver_.mem_free(ptr); }
  Result<MemoryInfo> mem_get_info() override { return driver_.mem_get_info(); }

 private:
  Driver& driver_;
};

/// A context on an OrderDevice, with a manager from the factory.
class OrderStack final : public replay::Stack {
 public:
  OrderStack(ManagerFactory factory, std::uint64_t seed)
      : factory_(std::move(factory)), seed_(seed) {}

  Result<std::unique_ptr<Context>> make_context(std::uint32_t, ManagerObserver* observer,
                                                Checker* order) override {
    auto bare = std::make_unique<OrderDevice>(seed_);
    bare_ = bare.get();
    device_.driver = std::move(bare);
    device_.runtime = std::make_unique<OrderRuntime>(*device_.driver);
    if (order != nullptr) device_ = order->watch(std::move(device_), 0);
    return Context::create(device_, clock_, factory_, observer);
  }
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<replay::Peer>> start_peer(std::uint32_t) override {
    return Error{.code = Errc::not_supported};
  }
  std::string describe_manager() const override { return factory_.name; }
  std::string describe_device() const override { return "order"; }
  std::uint64_t aliased() const noexcept { return bare_->aliased(); }

 private:
  ManagerFactory factory_;
  std::uint64_t seed_;
  ManualClock clock_;
  OpenedDevice device_;
  OrderDevice* bare_ = nullptr;
};

ManagerFactory stream_pool(Haste haste) {
  return {.name = std::string(kHasteNames[static_cast<std::size_t>(haste)]),
          .make = [haste](const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
            return std::make_unique<StreamPool>(*context.driver, haste);
          }};
}

log::Summary replay(std::uint64_t seed, const ManagerFactory& factory) {
  const auto trace = random_program(seed);
  OrderStack stack(factory, seed);
  auto summary = replay::Engine(trace, stack, {}).run();
  EXPECT_TRUE(summary);
  return summary ? *std::move(summary) : log::Summary{};
}

void none_accused(const ManagerFactory& factory, std::uint64_t programs) {
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    const auto summary = replay(seed, factory);
    ASSERT_EQ(summary.pass.hazards, 0u)
        << "seed " << seed << ": " << summary.violations.front().words;
    ASSERT_EQ(summary.violation_count, 0u)
        << "seed " << seed << ": " << summary.violations.front().words;
  }
}

TEST(Hazards, ACorrectStreamOrderedManagerIsNeverAccused) {
  none_accused(stream_pool(Haste::none), kPrograms);
}

class Bundled : public ::testing::TestWithParam<const ManagerEntry*> {};

TEST_P(Bundled, ManagerIsNeverAccused) {
  if (!GetParam()->device_memory) GTEST_SKIP() << "it has no device memory";
  const auto factory = find_manager(GetParam()->name);
  ASSERT_TRUE(factory);
  none_accused(*factory, kPrograms);
}

INSTANTIATE_TEST_SUITE_P(Hazards, Bundled,
                         ::testing::ValuesIn(bundled_managers().begin(), bundled_managers().end()),
                         [](const auto& test) {
                           std::string name(test.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Hazards, ThePoolIsNotAccusedWhereItMapsMemoryAgain) {
  const auto factory = find_manager("pool:backing=vmm");
  ASSERT_TRUE(factory);
  std::uint64_t programs_that_do = 0;
  for (std::uint64_t seed = 1; seed <= kPrograms / 20; ++seed) {
    const auto trace = random_program(seed, 300, 2, 24 << 20);
    OrderStack stack(*factory, seed);

    const auto summary = replay::Engine(trace, stack, {}).run();

    ASSERT_TRUE(summary);
    ASSERT_EQ(summary->violation_count, 0u)
        << "seed " << seed << ": " << summary->violations.front().words;
    programs_that_do += stack.aliased() > 0 ? 1 : 0;
  }
  EXPECT_GT(programs_that_do, kPrograms / 40);
}

class Hasty : public ::testing::TestWithParam<Haste> {};

TEST_P(Hasty, ManagerIsCaughtOnEverySeedInTheEnd) {
  constexpr std::uint64_t kRounds = 10, kEach = 40;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= kEach; ++seed) {
      const auto summary = replay(1'000'000 + round * kEach + seed, stream_pool(GetParam()));
      found += summary.pass.hazards;
      if (summary.pass.hazards == 0) continue;
      EXPECT_TRUE(replay::found_failure(summary, false));
      EXPECT_EQ(summary.violations.front().kind, log::Violation::Kind::hazard);
    }
    EXPECT_GT(found, 0u) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Hazards, Hasty,
                         ::testing::Values(Haste::no_event, Haste::wrong_stream,
                                           Haste::event_too_early, Haste::unmap_without_order,
                                           Haste::cross_thread_free,
                                           Haste::async_free_without_order, Haste::other_address),
                         [](const auto& haste) {
                           return std::string(kHasteNames[static_cast<std::size_t>(haste.param)]);
                         });

}  // namespace
}  // namespace emm::stream_order
