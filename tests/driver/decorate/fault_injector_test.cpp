#include "driver/decorate/fault_injector.hpp"

#include <optional>
#include <string>
#include <vector>

#include "driver/call.hpp"
#include "driver/decorate/call_ledger.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

TEST_F(SimTest, TheNthCallOfAKindFailsAndNoOther) {
  FaultyDriver faulty(driver(), *FaultPlan::parse("mem_alloc:2"));

  EXPECT_TRUE(faulty.mem_alloc(1));
  EXPECT_TRUE(faulty.mem_get_info());
  EXPECT_EQ(native(faulty.mem_alloc(1)), 2);
  EXPECT_TRUE(faulty.mem_alloc(1));
  EXPECT_EQ(faulty.injector().injected(), 1u);
}

TEST_F(SimTest, AnInjectedFailureDoesNotReachTheDevice) {
  CountingDriver counted(driver());
  FaultyDriver faulty(counted, *FaultPlan::parse("mem_free:1"));
  const auto ptr = *faulty.mem_alloc(4_KiB);

  EXPECT_FALSE(faulty.mem_free(ptr));
  EXPECT_EQ(counted.ledger().calls(Call::mem_free).made, 0u);
  EXPECT_TRUE(faulty.mem_free(ptr));
  EXPECT_TRUE(counted.ledger().balances());
}

TEST_F(SimTest, TheNthCallOfAnyKindCanFail) {
  FaultyDriver faulty(driver(), *FaultPlan::parse("any:3"));

  EXPECT_TRUE(faulty.mem_alloc(1));
  EXPECT_TRUE(faulty.mem_get_info());
  EXPECT_EQ(native(faulty.event_create()), 2);
  EXPECT_TRUE(faulty.event_create());
}

TEST_F(SimTest, AFaultCanHaveACodeOfItsOwn) {
  FaultyDriver faulty(driver(), *FaultPlan::parse("mem_alloc:1=999"));

  EXPECT_EQ(native(faulty.mem_alloc(1)), 999);
}

TEST_F(SimTest, ARateFailsThatShareOfCallsTheSameOnesForASeed) {
  const auto failures = [&](std::string_view plan) {
    FaultyDriver faulty(driver(), *FaultPlan::parse(plan));
    std::vector<int> failed;
    for (int call = 0; call < 10'000; ++call) {
      if (!faulty.ctx_synchronize()) failed.push_back(call);
    }
    return failed;
  };

  const auto seven = failures("rate=0.01,seed=7");
  EXPECT_GT(seven.size(), 60u);
  EXPECT_LT(seven.size(), 140u);
  EXPECT_EQ(seven, failures("rate=0.01,seed=7"));
  EXPECT_NE(seven, failures("rate=0.01,seed=8"));
  EXPECT_TRUE(failures("rate=1,call=mem_alloc").empty());
}

TEST_F(SimTest, TheRuntimeIsFaultyToo) {
  FaultInjector injector(*FaultPlan::parse("runtime_malloc:1"));
  auto device = hooked(open(0), injector);

  EXPECT_EQ(native(device.runtime->malloc(1)), 2);
  EXPECT_TRUE(device.runtime->malloc(1));
}

TEST(FaultPlan, EveryCallHasAFaultOfItsOwn) {
  for (std::size_t i = 0; i < kCallCount; ++i) {
    const auto native = call_info(static_cast<Call>(i)).usual_fault;
    EXPECT_GT(native, 0);
    EXPECT_NE(native, 999) << call_info(static_cast<Call>(i)).name;
  }
}

TEST(FaultPlan, IsReadFromText) {
  const auto plan = FaultPlan::parse("mem_host_alloc:12=2");

  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->call, Call::mem_host_alloc);
  EXPECT_EQ(plan->nth, 12u);
  EXPECT_EQ(plan->native, 2);
  EXPECT_EQ(FaultPlan::parse("any:1")->call, std::nullopt);
  EXPECT_EQ(FaultPlan::parse("rate=0.5,seed=3")->rate, 0.5);
}

TEST(FaultPlan, SaysWhatIsWrongWithItsText) {
  for (const auto* text : {"", "mem_alloc", "mem_alloc:", "mem_alloc:0", "mem_alloc:x",
                           "mem_alloc:1=", "mem_alloc:1=0", "mem_alloc:1=1000", "rate"}) {
    const auto plan = FaultPlan::parse(text);
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().code, Errc::usage);
    EXPECT_EQ(describe(plan.error()),
              "--fault: '" + std::string(text) +
                  "' is not a fault: expected CALL:N, CALL:N=CODE or rate=R,seed=S");
  }
  EXPECT_EQ(describe(FaultPlan::parse("malloc:1").error()).substr(0, 58),
            "--fault: unknown call 'malloc': known are any, mem_alloc, ");
  EXPECT_EQ(describe(FaultPlan::parse("rate=1.5").error()),
            "--fault: rate is 1.5: expected 0 to 1");
  EXPECT_EQ(describe(FaultPlan::parse("rate=0.5,sed=7").error()),
            "--fault: unknown option 'sed': known are rate, seed, call");
}

}  // namespace
}  // namespace emm
