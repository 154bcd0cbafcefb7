#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

class ThreadsTest : public SimTest {
 protected:
  ThreadsTest() : SimTest({.capacity = 4_GiB, .devices = 2}), second_(open(1)) {}
  Driver& second() { return *second_.driver; }

 private:
  OpenedDevice second_;
};

TEST_F(ThreadsTest, AnyThreadCallsAnyDevice) {
  constexpr int kThreads = 4, kSteps = 2000;
  const auto work = [&](int number) {
    Prng random(static_cast<std::uint64_t>(number));
    const auto tag = static_cast<std::uint32_t>(number);
    for (int step = 0; step < kSteps; ++step) {
      const auto size = random.log_uniform(4, 8_MiB) / 4 * 4;
      const auto here = *driver().mem_alloc(size);
      const auto there = *second().mem_alloc(size);
      EXPECT_TRUE(driver().memset_d32(here, tag, size / 4));
      EXPECT_TRUE((number % 2 == 0 ? driver() : second()).memcpy_dtod(there, here, size));
      EXPECT_EQ(word_at(there + (size - 4)), tag);
      const auto host = *driver().mem_host_alloc(size, {});
      EXPECT_TRUE(driver().memcpy_dtoh({host, 4}, there));
      EXPECT_TRUE(driver().ctx_push_current());
      EXPECT_TRUE(driver().mem_free_host(host));
      EXPECT_TRUE(driver().mem_free(there)) << "freed by way of the other device";
      EXPECT_TRUE(driver().mem_free(here));
      EXPECT_EQ(*driver().ctx_pop_current(), driver().context_handle());
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) threads.emplace_back(work, number);
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_EQ(second().held_bytes(), 0u);
}

TEST_F(ThreadsTest, AResetCanComeWhileOthersCall) {
  std::thread caller([&] {
    for (;;) {
      const auto ptr = driver().mem_alloc(1_MiB);
      if (!ptr) {
        EXPECT_EQ(ptr.error().native, 709);
        return;
      }
      const auto filled = driver().memset_d8(*ptr, 1, 1_MiB);
      EXPECT_TRUE(filled || filled.error().native == 709 || filled.error().native == 1);
      const auto freed = driver().mem_free(*ptr);
      EXPECT_TRUE(freed || freed.error().native == 709);
    }
  });

  EXPECT_TRUE(driver().primary_ctx_reset());
  caller.join();
}

}  // namespace
}  // namespace emm
