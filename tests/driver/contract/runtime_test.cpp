#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Measured: cudaMalloc(0) is 0 with null, cudaFree(nullptr) is 0.
TEST_P(DriverContract, TheRuntimeAllocatesNothingAsNull) {
  if (runtime() == nullptr) GTEST_SKIP() << "no libcudart";

  const auto ptr = runtime()->malloc(0);
  ASSERT_TRUE(ptr);
  EXPECT_EQ(ptr->value, 0u);
  EXPECT_TRUE(runtime()->free({0}));
}

// Measured: cudaFree twice is 1.
TEST_P(DriverContract, TheRuntimeFreesOnce) {
  if (runtime() == nullptr) GTEST_SKIP() << "no libcudart";
  const auto ptr = must(runtime()->malloc(1_MiB));

  EXPECT_TRUE(runtime()->free(ptr));
  EXPECT_EQ(native(runtime()->free(ptr)), 1);
}

// Measured: cudaMalloc(1<<60) is 2; and what failed before must not fail what comes next.
TEST_P(DriverContract, TheRuntimeRunsOutOfMemoryAndRecovers) {
  if (runtime() == nullptr) GTEST_SKIP() << "no libcudart";

  EXPECT_EQ(native(runtime()->malloc(std::uint64_t{1} << 60)), 2);
  const auto ptr = runtime()->malloc(1_MiB);
  ASSERT_TRUE(ptr);
  EXPECT_TRUE(runtime()->free(*ptr));
}

// Documented: the runtime works in the primary context.
TEST_P(DriverContract, TheRuntimeAndTheDriverShareADevice) {
  if (runtime() == nullptr) GTEST_SKIP() << "no libcudart";
  const auto held = driver().held_bytes();
  const auto ptr = must(runtime()->malloc(3_MiB));

  EXPECT_EQ(must(driver().mem_get_address_range(ptr + 1)).base, ptr);
  EXPECT_EQ(driver().held_bytes() - held, 4_MiB);
  EXPECT_EQ(must(runtime()->mem_get_info()), must(driver().mem_get_info()));
  EXPECT_TRUE(runtime()->free(ptr));
  EXPECT_EQ(driver().held_bytes(), held);
}

}  // namespace
}  // namespace emm
