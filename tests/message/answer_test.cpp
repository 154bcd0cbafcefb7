#include "base/text.hpp"
#include "said.hpp"

namespace emm::message {
namespace {

TEST(OomMessage, IsExplainedInTheWordsOfEachFramework) {
  for (const auto& said : kSaid) {
    SCOPED_TRACE(said.name);
    const auto found = answer(only_in(said.text));
    EXPECT_EQ(name(found.cause), name(said.cause));
    EXPECT_EQ(found.is_certain, said.is_certain);
    EXPECT_EQ(found.lead.size(), 3u);
    for (const auto& sentence : found.lead) EXPECT_LE(sentence.size(), 160u) << sentence;
  }
}

TEST(OomMessage, IsAnsweredByWhatItsOwnFrameworkHas) {
  const auto words = [](std::string_view log) {
    const auto lead = answer(only_in(log)).lead;
    return text::join(lead, " ");
  };
  const auto idle = [](std::string_view whose) {
    return text::format(
        "RuntimeError: {} out of memory. Tried to allocate 2.00 GiB ({} 0; 29.50 GiB total "
        "capacity; "
        "26.10 GiB already allocated; 1.10 GiB free; 27.50 GiB reserved in total by PyTorch)",
        whose, whose == "NPU" ? "NPU" : "GPU");
  };
  EXPECT_NE(words(idle("CUDA")).find("PYTORCH_CUDA_ALLOC_CONF="), std::string::npos);
  EXPECT_NE(words(idle("HIP")).find("PYTORCH_HIP_ALLOC_CONF="), std::string::npos);
  EXPECT_NE(words(idle("NPU")).find("PYTORCH_NPU_ALLOC_CONF="), std::string::npos);
  EXPECT_NE(words("ValueError: The model's max seq len (8192) is larger than the maximum number of "
                  "tokens that can be stored in KV cache (2400).")
                .find("holds fewer tokens"),
            std::string::npos);
  for (const auto* const what : {"registers", "threads", "tensor memory"}) {
    EXPECT_EQ(find_in(text::format("OutOfResources: out of resource: {}, Required: 1024, Hardware "
                                   "limit: 512. Reducing block sizes may help.",
                                   what))
                  .count,
              0u)
        << what << " are counted, and not in bytes";
  }
  EXPECT_EQ(
      only_in("[E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory "
              "(Requested size was 4294967296 bytes.)")
          .writer,
      "")
      << "TensorRT's 2 is no rank";
}

/// A message of PyTorch with 15.48 GiB, of which this process holds nearly all.
std::string nearly_full(std::string_view asked, std::string_view free, std::string_view idle) {
  return text::format(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total "
      "capacity "
      "of 15.48 GiB of which {} is free. Including non-PyTorch memory, this process has 15.45 GiB "
      "memory in use. Of the allocated memory 14.85 GiB is allocated by PyTorch, and {} is "
      "reserved "
      "by PyTorch but unallocated.",
      asked, free, idle);
}

TEST(OomMessage, IsNotCertainWhereTheTensorMayBeSmallerThanWhatTheDeviceIsAskedFor) {
  struct Full {
    std::string_view asked, free, idle;
    bool is_certain;
  };
  constexpr Full kFull[] = {{"20.00 MiB", "3.00 MiB", "5.00 MiB", false},   // of 1 to 10 MiB
                            {"2.00 MiB", "0 bytes", "1.20 MiB", false},     // of up to 1 MiB
                            {"38.00 MiB", "1.00 MiB", "36.00 MiB", false},  // the next 2 MiB
                            {"38.00 MiB", "1.00 MiB", "34.00 MiB", true},
                            {"20.00 MiB", "0 bytes", "0 bytes", true}};
  for (const auto& [asked, free, idle, is_certain] : kFull) {
    const auto found = answer(only_in(nearly_full(asked, free, idle)));
    EXPECT_EQ(found.cause, inspect::Cause::need) << "no other process holds 40 MiB or less";
    EXPECT_EQ(found.is_certain, is_certain) << asked << " " << idle;
  }
}

TEST(OomMessage, SaysByHowMuchALayoutWithoutHolesWouldServeTheRequest) {
  const auto found = answer(only_in(
      "CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacity of 6.00 GiB of "
      "which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 "
      "GiB "
      "is reserved by PyTorch but unallocated."));

  EXPECT_EQ(found.cause, inspect::Cause::waste);
  EXPECT_EQ(words_of(*found.outside), "773.12 to 803.84 MiB");  // 0.77 GiB, each of four rounded
  EXPECT_EQ(words_of(*found.spare), "604.16 to 624.64 MiB");
  EXPECT_EQ(found.lacking->most, 0u);
}

TEST(OomMessage, SaysHowShortItIsWhereNoSettingCanHelp) {
  const auto found = answer(only_in(
      "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 4.00 GiB total capacity; 3.41 GiB "
      "already allocated; 0 bytes free; 3.44 GiB reserved in total by PyTorch)"));

  EXPECT_EQ(found.cause, inspect::Cause::need);
  EXPECT_EQ(words_of(*found.lacking), "977.92 to 1008.64 MiB");
}

TEST(OomMessage, TakesTheRangeThatIsLeftWhereTheDevicesFreeMemoryIsNotTold) {
  const auto need = answer(only_in(
      "XPU out of memory. Tried to allocate 8.00 GiB (GPU 0; 15.59 GiB total capacity; 14.03 GiB "
      "already allocated; 14.35 GiB reserved in total by PyTorch)"));
  EXPECT_EQ(need.cause, inspect::Cause::need);
  EXPECT_TRUE(need.is_certain);

  const auto open = answer(only_in(
      "XPU out of memory. Tried to allocate 896.00 MiB (GPU 0; 15.59 GiB total capacity; 14.03 GiB "
      "already allocated; 14.35 GiB reserved in total by PyTorch)"));
  EXPECT_EQ(open.cause, inspect::Cause::not_known);
  ASSERT_FALSE(open.not_told.empty());
  EXPECT_EQ(open.not_told.front(), "what the device had free");
}

TEST(OomMessage, TakesNoFigureThatADriverDoesNotKnow) {
  const auto message = only_in(
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
      "which 0 bytes is free. Process 9132 has 17179869184.00 GiB memory in use. Including "
      "non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the allocated "
      "memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by PyTorch but "
      "unallocated.");

  EXPECT_TRUE(message.processes.empty());
  EXPECT_FALSE(message[Meaning::process]);
  const auto found = answer(message);
  EXPECT_NE(text::join(found.notes).find("more than the device has"), std::string::npos);
}

TEST(OomMessage, IsExplainedByTheChunksOfADump) {
  const auto dump = [](std::string_view asked, std::string_view rounded) {
    return std::string("Allocator (GPU_0_bfc) ran out of memory trying to allocate ") +
           std::string(asked) + " (rounded to " + std::string(rounded) +
           ")requested by op Conv2D\n"
           "bfc_allocator.cc:1060] Next region of size 2147483648\n"
           "bfc_allocator.cc:1066] InUse at 7fa140000000 of size 536870912 next 878\n"
           "bfc_allocator.cc:1066] Free  at 7fa160000000 of size 805306368 next 812\n"
           "bfc_allocator.cc:1066] InUse at 7fa190000000 of size 268435456 next 735\n"
           "bfc_allocator.cc:1066] Free  at 7fa1a0000000 of size 536870912 next "
           "18446744073709551615\n"
           "bfc_allocator.cc:1083] Stats: \n"
           "Limit:                      2147483648\n"
           "InUse:                       805306368\n";
  };
  const auto holes = answer(only_in(dump("1.00GiB", "1073741824")));
  EXPECT_EQ(holes.cause, inspect::Cause::waste);
  EXPECT_EQ(holes.available, (Range{1342177280, 1342177280}));

  const auto need = answer(only_in(dump("1.50GiB", "1610612736")));
  EXPECT_EQ(need.cause, inspect::Cause::need);
  EXPECT_EQ(need.lacking, (Range{268435456, 268435456}));
}

}  // namespace
}  // namespace emm::message
