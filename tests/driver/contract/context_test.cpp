#include <thread>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Documented: cuCtxPushCurrent and cuCtxPopCurrent.
TEST_P(DriverContract, ContextsArePushedAndPopped) {
  ASSERT_TRUE(driver().ctx_push_current());

  const auto popped = driver().ctx_pop_current();
  ASSERT_TRUE(popped);
  EXPECT_EQ(*popped, driver().context_handle());
}

// Documented: cuCtxPopCurrent without a context is 201.
TEST_P(DriverContract, EachThreadHasAStackOfItsOwn) {
  ASSERT_TRUE(driver().ctx_push_current());

  std::int32_t answer = 0;
  std::thread([&] { answer = native(driver().ctx_pop_current()); }).join();
  EXPECT_EQ(answer, 201);
  EXPECT_TRUE(driver().ctx_pop_current());
}

// driver.hpp: a driver makes its context current around every call.
TEST_P(DriverContract, CallsNeedNoCurrentContextAndLeaveNone) {
  std::thread([&] {
    const auto ptr = driver().mem_alloc(1_MiB);
    EXPECT_TRUE(ptr);
    EXPECT_TRUE(driver().mem_free(*ptr));
    EXPECT_FALSE(driver().ctx_pop_current());
  }).join();
}

// Measured: cuDevicePrimaryCtxReset with live memory is 0, and calls in the context are 709
// afterwards.
TEST_P(DriverContract, AResetEndsTheContext) {
  const auto ptr = must(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().primary_ctx_reset());

  const auto refused = driver().mem_alloc(1_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, 709);
  EXPECT_EQ(refused.error().code, Errc::context_destroyed);
  EXPECT_EQ(native(driver().mem_free(ptr)), 709);
  EXPECT_EQ(native(driver().mem_get_info()), 709);
  EXPECT_EQ(native(driver().mem_host_alloc(4_KiB, {})), 709);
  EXPECT_EQ(native(driver().event_create()), 709);
  EXPECT_EQ(driver().held_bytes(), 0u);
}

// Measured: after retain and set, cuMemAlloc works. cuMemFree of an address from before the reset
// has answered 0 and has answered an error, so nothing may rely on either.
TEST_P(DriverContract, ADeviceIsOpenedAgainAfterAReset) {
  const auto free = must(driver().mem_get_info()).free;
  must(driver().mem_alloc(64_MiB));
  ASSERT_TRUE(driver().primary_ctx_reset());

  reopen();

  EXPECT_EQ(must(driver().mem_get_info()).free, free);
  const auto ptr = driver().mem_alloc(64_MiB);
  ASSERT_TRUE(ptr);
  EXPECT_TRUE(driver().mem_free(*ptr));
}

}  // namespace
}  // namespace emm
