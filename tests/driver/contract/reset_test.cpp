#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Measured: its streams and events are gone, 709. The three times 64 MiB of a mapped handle, of a
// pool and of the default pool all stayed taken, so what is to be free again is released before a
// reset.
TEST_P(DriverContract, AResetEndsStreamsAndMayKeepMappingsAndPools) {
  const auto free = free_bytes();
  const auto stream = must(driver().stream_create(StreamKind::non_blocking));
  const auto event = must(driver().event_create());
  ASSERT_TRUE(driver().event_record(event, stream));
  const auto at = must(driver().mem_address_reserve(64_MiB));
  const auto handle = must(driver().mem_create(64_MiB));
  ASSERT_TRUE(driver().mem_map(at, 64_MiB, 0, handle));
  const auto pool = must(driver().mem_pool_create());
  must(driver().mem_alloc_from_pool_async(64_MiB, pool, stream));
  must(driver().mem_alloc_async(64_MiB, stream));

  ASSERT_TRUE(driver().primary_ctx_reset());
  EXPECT_EQ(native(driver().stream_query(stream)), 709);
  EXPECT_EQ(native(driver().event_record(event, stream)), 709);
  EXPECT_EQ(native(driver().mem_create(2_MiB)), 709);
  EXPECT_EQ(native(driver().mem_alloc_async(1_MiB, stream)), 709);

  reopen();
  EXPECT_LE(free_bytes(), free);
  EXPECT_GE(free_bytes(), free - 3 * 64_MiB) << "nothing but what they held";
  EXPECT_TRUE(driver().mem_free(must(driver().mem_alloc(64_MiB))));
}

}  // namespace
}  // namespace emm
