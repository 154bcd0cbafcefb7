#include "driver/call.hpp"
#include "driver/sim/latency.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

TEST(Latency, IsWhatWasMeasuredAtTheSizesMeasured) {
  using sim::latency_ns;
  EXPECT_EQ(latency_ns(Call::mem_alloc, 256, 0), 39'000u);
  EXPECT_EQ(latency_ns(Call::mem_alloc, 32_MiB, 0), 47'500u);
  EXPECT_EQ(latency_ns(Call::mem_alloc, 2_GiB, 0), 204'000u);
  EXPECT_EQ(latency_ns(Call::mem_free, 256_MiB, 0), 143'400u);
  EXPECT_EQ(latency_ns(Call::mem_host_alloc, 1_GiB, 0), 342'000'000u);
  EXPECT_EQ(latency_ns(Call::mem_free_host, 1_MiB, 0), 213'000u);
  EXPECT_EQ(latency_ns(Call::mem_get_info, 0, 0), 4'200u);
}

TEST(Latency, LiesOnALineBetweenThem) {
  EXPECT_EQ(sim::latency_ns(Call::mem_alloc, 17_MiB, 0), (39'000u + 47'500u) / 2);
  EXPECT_EQ(sim::latency_ns(Call::mem_alloc, 2_GiB + 1792_MiB, 0), 204'000u + 125'400u);
}

TEST(Latency, OfARefusalIsThatOfItsReason) {
  EXPECT_EQ(sim::latency_ns(Call::mem_alloc, SimOptions::kH200Total + 1, 2), 61'000'000u);
  EXPECT_EQ(sim::latency_ns(Call::mem_alloc, std::uint64_t{1} << 60, 2), 7'800u);
  EXPECT_LT(sim::latency_ns(Call::mem_free, 0, 1), 3'000u);
}

TEST_F(SimTest, CallsMoveTheClock) {
  ASSERT_EQ(platform().clock().now_ns(), 0u);

  const auto ptr = *driver().mem_alloc(32_MiB);
  EXPECT_EQ(platform().clock().now_ns(), 47'500u);
  ASSERT_TRUE(driver().mem_free(ptr));
  EXPECT_EQ(platform().clock().now_ns(), 47'500u + 50'800u);
  ASSERT_TRUE(driver().mem_free({0}));
  EXPECT_EQ(platform().clock().now_ns(), 47'500u + 50'800u + 100u);
}

class FreeOfCostTest : public SimTest {
 protected:
  FreeOfCostTest() : SimTest({.capacity = 64_MiB, .costs = false}) {}
};

TEST_F(FreeOfCostTest, CallsLeaveTheClockAlone) {
  ASSERT_TRUE(driver().mem_alloc(32_MiB));
  ASSERT_FALSE(driver().mem_alloc(1_GiB));

  EXPECT_EQ(platform().clock().now_ns(), 0u);
}

}  // namespace
}  // namespace emm
