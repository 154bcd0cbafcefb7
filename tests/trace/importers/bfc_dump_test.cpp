#include <gtest/gtest.h>

#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kDump =
    R"(step 7
2023-07-20 05:51:24.070100: W tensorflow/core/common_runtime/bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op Conv2D
I tensorflow/core/common_runtime/bfc_allocator.cc:1060] Next region of size 1610612736
I tensorflow/core/common_runtime/bfc_allocator.cc:1066] InUse at 7fa140000000 of size 536870912 next 878
I tensorflow/core/common_runtime/bfc_allocator.cc:1066] Free  at 7fa160000000 of size 805306368 next 812
I tensorflow/core/common_runtime/bfc_allocator.cc:1066] InUse at 7fa190000000 of size 268435456 next 18446744073709551615
I tensorflow/core/common_runtime/bfc_allocator.cc:1060] Next region of size 536870912
I tensorflow/core/common_runtime/bfc_allocator.cc:1066] Free  at 7fa1a0000000 of size 536870912 next 18446744073709551615
Limit:                      2147483648
InUse:                       805306368
)";

TEST(BfcDump, IsAStateWithoutHistoryAndTheRequestThatFailed) {
  const auto imported = import_text("bfc-dump", kDump);

  EXPECT_EQ(imported.text(),
            "memalloc backing id=s1 size=1610612736 addr=0x7fa140000000 preexisting @4\n"
            "memalloc backing id=s2 size=536870912 addr=0x7fa1a0000000 preexisting @8\n"
            "memalloc id=1 size=536870912 addr=0x7fa140000000 preexisting @4\n"
            "memalloc id=2 size=268435456 addr=0x7fa190000000 preexisting @6\n"
            "memalloc id=3 size=1073741824 oom @2\n"
            "end events=5 live=2 live_bytes=805306368");
  EXPECT_EQ(summary(imported.counts), "rows 10: used 8, other 2");
  ASSERT_EQ(imported.header.devices.size(), 1u);
  EXPECT_EQ(imported.header.devices[0].capacity, 2147483648u);
  EXPECT_FALSE(imported.header.complete);
}

TEST(BfcDump, IsTheFirstOfALog) {
  const auto imported = import_text("bfc-dump", std::string(kDump) + std::string(kDump));

  EXPECT_EQ(imported.text(), import_text("bfc-dump", kDump).text());
  EXPECT_EQ(summary(imported.counts), "rows 20: used 8, other 12");
  EXPECT_EQ(imported.counts.notes.front(), "1 more dumps are in the log, which are not read");
}

TEST(BfcDump, OfALogWithoutChunksIsRefused) {
  EXPECT_EQ(import_text("bfc-dump", "hello\n").error,
            "run.log: the log has no chunks of a BFC allocator: expected lines such as \"InUse at "
            "7f0000000000 of size 1024\", which come with TF_CPP_MIN_LOG_LEVEL=0");
}

TEST(OrtArena, IsWhatTheArenaAsksOfTheDevice) {
  const auto imported = import_text(
      "ort-arena",
      "2026-11-28 [I:onnxruntime:t, bfc_arena.cc:347 AllocateRawInternal] Extending BFCArena for "
      "Cuda. bin_num:13 (requested) num_bytes: 3154000 (actual) rounded_bytes:3154176\n"
      "2026-11-28 [I:onnxruntime:t, bfc_arena.cc:212 Extend] Allocated memory at 0x7fb7d6c00000 to "
      "0x7fb7d7000000\n"
      "2026-11-28 [I:onnxruntime:t, bfc_arena.cc:347 AllocateRawInternal] Extending BFCArena for "
      "Cpu. bin_num:8 (requested) num_bytes: 65000 (actual) rounded_bytes:65024\n"
      "2026-11-28 [I:onnxruntime:t, bfc_arena.cc:212 Extend] Allocated memory at 0x560000000000 to "
      "0x560000100000\n"
      "2026-11-28 [V:onnxruntime:t, bfc_arena.cc:500 Shrink] Cuda BFC Arena shrunk by 4194304 "
      "bytes.  The total allocated bytes is now 0\n"
      "Failed to allocate memory for requested buffer of size 1073741824\n"
      "Failed to allocate memory for requested buffer of size 1073741824\n");

  EXPECT_EQ(imported.text(),
            "memalloc id=1 size=4194304 addr=0x7fb7d6c00000 @2\n"
            "free id=1 @5\n"
            "memalloc id=2 size=1073741824 oom @6\n"
            "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(summary(imported.counts), "rows 7: used 3, duplicate 1, other 3");
}

}  // namespace
}  // namespace emm::trace
