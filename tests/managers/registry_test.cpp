#include <gtest/gtest.h>

#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

std::string refusal(std::string_view spec, std::vector<std::string> adaptors = {}) {
  const auto factory = find_manager(spec, adaptors);
  EXPECT_FALSE(factory) << spec;
  if (factory) return {};
  EXPECT_EQ(factory.error().code, Errc::usage);
  return describe(factory.error());
}

TEST(FindManager, KnowsTheBundledOnes) {
  for (const auto* entry : bundled_managers()) {
    const auto factory = find_manager(entry->name);
    ASSERT_TRUE(factory) << entry->name;
    EXPECT_EQ(factory->name, entry->name);
    EXPECT_EQ((*factory->make({}))->interface_version(), kInterfaceVersion);
    EXPECT_FALSE(entry->summary.empty());
    EXPECT_FALSE(entry->options.empty());
  }
}

TEST(FindManager, JudgesEachUnderItsNameAndItsVariants) {
  EXPECT_EQ(judged_specs(*find_entry("pool:max=1GiB")),
            (std::vector<std::string>{"pool", "pool:backing=cumem", "pool:profile=numba"}));
  EXPECT_EQ(find_entry("pol"), nullptr);
  for (const auto* entry : bundled_managers()) {
    for (const auto& spec : judged_specs(*entry)) EXPECT_TRUE(find_manager(spec)) << spec;
  }
}

TEST(FindManager, RefusesAnUnknownNameAndListsTheKnown) {
  std::vector<std::string_view> known;
  for (const auto* entry : bundled_managers()) known.push_back(entry->name);

  EXPECT_EQ(refusal("mine"),
            text::format("no manager 'mine': known are {}; tried libemm-mine.so: not found; a file "
                         "is named with a slash, as ./mine, or ends in .so",
                         text::join(known)));
  EXPECT_EQ(refusal("pol"),
            "no manager 'pol', did you mean pool; tried libemm-pol.so: not found; a file is named "
            "with a slash, as ./pol, or ends in .so");
  EXPECT_EQ(refusal(""), text::format("no manager '': known are {}", text::join(known)));
  EXPECT_EQ(refusal("pool", {"limit"}),
            "no adaptor 'limit': known are limiting, statistics, tracking, logging");
}

TEST(FindManager, RefusesAnUnknownOptionAndListsTheKnown) {
  EXPECT_EQ(refusal("default:max=3"),
            "manager default: unknown option 'max': known are profile, count, ratio, capacity");
  EXPECT_EQ(refusal("pool:initail=3"),
            "manager pool: unknown option 'initail': known are profile, count, ratio, capacity, "
            "backing, initial, max, "
            "release_threshold, alignment, inactive_split, lend, plan");
  EXPECT_EQ(refusal("pool", {"limiting:min=3"}),
            "adaptor limiting: unknown option 'min': known are max");
  EXPECT_EQ(refusal("pool", {"statistics:x=1"}),
            "adaptor statistics: unknown option 'x': it takes none");
}

TEST(FindManager, RefusesAValueThatMakesNoSense) {
  EXPECT_EQ(refusal("default:profile=python"),
            "manager default: option 'profile' is 'python': expected one of standard, numba");
  EXPECT_EQ(refusal("default:ratio=-1"),
            "manager default: option 'ratio' is -1: expected a number from 0 up");
  EXPECT_EQ(refusal("default:ratio=nan"),
            "manager default: option 'ratio' is nan: expected a number from 0 up");
  EXPECT_EQ(refusal("pool:initial=2KiB,max=1KiB"),
            "manager pool: option 'initial' is 2048: expected at most max, 1024");
  EXPECT_EQ(refusal("pool:backing=vmm,max=1MiB"),
            "manager pool: option 'max' is 1048576: expected 2097152 or more with backing=vmm");
  EXPECT_EQ(refusal("pool:alignment=3"),
            "manager pool: option 'alignment' is 3: expected a power of two from 256 to 2097152");
  EXPECT_EQ(refusal("pool:max=much"),
            "manager pool: option 'max' is 'much': expected a count of bytes such as 512, 4KiB or "
            "1.5GiB");
  EXPECT_EQ(refusal("pool:max=1,max=2"), "manager pool: option 'max' is given twice");
}

TEST(FindManager, PutsAdaptorsOverItInnermostFirst) {
  Rig rig("default", {"limiting:max=100", "statistics", "tracking"});
  const auto memory = rig.memory(60);
  EXPECT_EQ(rig.manager->memalloc(41).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.manager->report(),
            "statistics: memalloc: 1 allocations, 1 failures, 60 bytes in all, 60 live in 1, 60 at "
            "the peak\n"
            "tracking: 60 bytes live in 1 allocations\n"
            "tracking: device 0x10000000: 60 bytes, allocation 1\n");
}

}  // namespace
}  // namespace emm::test
