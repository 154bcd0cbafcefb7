#include "fleet/rank_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text_format.hpp"

namespace emm::fleet {
namespace {

/// "name: label=path ..." of each set, and what is missing.
std::string told(const std::vector<std::string>& files, std::uint64_t world = 0) {
  std::string out;
  for (const auto& set : sets_of(files)) {
    out += set.name + ":";
    for (const auto& rank : set.ranks) out += text::format(" {}={}", rank.label, rank.path);
    for (const auto number : missing_of(set, world)) out += text::format(" !{}", number);
    for (const auto& label : missing_places_of(set)) out += text::format(" !{}", label);
    out += '\n';
  }
  return out;
}

TEST(RankFiles, StandInTheOrderOfTheirNumbers) {
  EXPECT_TRUE(stands_before("rank2", "rank10"));
  EXPECT_FALSE(stands_before("rank10", "rank2"));
  EXPECT_TRUE(stands_before("rank02", "rank10"));
  EXPECT_FALSE(stands_before("rank2", "rank2"));
  EXPECT_TRUE(stands_before("a9/rank1", "a10/rank0"));
}

TEST(RankFiles, FindTheRankInItsName) {
  EXPECT_EQ(told({"rank0.pickle", "rank1.pickle"}),
            "rank*.pickle: 0=rank0.pickle 1=rank1.pickle\n");
  EXPECT_EQ(told({"snap_rank_1.pickle.gz", "snap_rank_0.pickle"}),
            "snap_rank_*.pickle.gz: 0=snap_rank_0.pickle 1=snap_rank_1.pickle.gz\n");
  EXPECT_EQ(told({"s-1-of-4.pkl", "s-3-of-4.pkl"}),
            "s-*-of-4.pkl: 1=s-1-of-4.pkl 3=s-3-of-4.pkl !0 !2\n");
  EXPECT_EQ(told({"s-1-of-3.pkl", "s-3-of-3.pkl"}),
            "s-*-of-3.pkl: 1=s-1-of-3.pkl 3=s-3-of-3.pkl !2\n");
  EXPECT_EQ(told({"run7/rank0/oom.pickle", "run7/rank1/oom.pickle"}),
            "run7/rank*/oom.pickle: 0=run7/rank0/oom.pickle 1=run7/rank1/oom.pickle\n");
  EXPECT_EQ(told({"h0_4711_rank0.pickle", "h0_4712_rank1.pickle"}),
            "h0_4711_rank*.pickle: 0=h0_4711_rank0.pickle 1=h0_4712_rank1.pickle\n");
}

TEST(RankFiles, OfProcessesAreNotMissing) {
  EXPECT_EQ(told({"t.raw/711.emmraw", "t.raw/714.emmraw"}),
            "t.raw/*.emmraw: 711=t.raw/711.emmraw 714=t.raw/714.emmraw\n")
      << "in a container process ids are small";
  EXPECT_EQ(told({"4711.json", "4714.json"}), "*.json: 4711=4711.json 4714=4714.json\n");
}

TEST(RankFiles, TellHostsAndDevicesApart) {
  EXPECT_EQ(told({"host0/gpu0.pickle", "host0/gpu1.pickle", "host1/gpu0.pickle"}),
            "host*/gpu*.pickle: 0/0=host0/gpu0.pickle 0/1=host0/gpu1.pickle 1/0=host1/gpu0.pickle "
            "!1/1\n");
  EXPECT_EQ(told({"host0/local_rank0.json", "host0/local_rank1.json", "host1/local_rank0.json",
                  "host1/local_rank1.json"}),
            "host*/local_rank*.json: 0/0=host0/local_rank0.json 0/1=host0/local_rank1.json "
            "1/0=host1/local_rank0.json 1/1=host1/local_rank1.json\n");
  EXPECT_EQ(told({"node0_rank0.json", "node0_rank1.json", "node1_rank0.json", "node1_rank1.json"}),
            "node*_rank*.json: 0/0=node0_rank0.json 0/1=node0_rank1.json 1/0=node1_rank0.json "
            "1/1=node1_rank1.json\n")
      << "whose machines count from 0";
  EXPECT_EQ(told({"node0_rank0.json", "node0_rank1.json", "node1_rank2.json", "node1_rank3.json"}),
            "node0_rank*.json: 0=node0_rank0.json 1=node0_rank1.json 2=node1_rank2.json "
            "3=node1_rank3.json\n");
  EXPECT_EQ(told({"r/node-a/gpu0.json", "r/node-a/gpu1.json", "r/node-b/gpu0.json",
                  "r/node-b/gpu1.json"}),
            "r/*/gpu*.json: node-a/0=r/node-a/gpu0.json node-a/1=r/node-a/gpu1.json "
            "node-b/0=r/node-b/gpu0.json node-b/1=r/node-b/gpu1.json\n");
  EXPECT_EQ(told({"before/gpu0.json", "before/gpu1.json", "later/gpu0.json", "later/gpu1.json"}),
            "before/gpu*.json: 0=before/gpu0.json 1=before/gpu1.json\n"
            "later/gpu*.json: 0=later/gpu0.json 1=later/gpu1.json\n")
      << "two runs";
  EXPECT_EQ(told({"alpha/rank0.pickle", "beta/rank1.pickle"}),
            "alpha/rank*.pickle: 0=alpha/rank0.pickle 1=beta/rank1.pickle\n");
}

TEST(RankFiles, OfSeveralRunsAreSeveralSets) {
  EXPECT_EQ(
      told({"ddp_rank0.pickle", "ddp_rank1.pickle", "pipe_rank0.pickle", "pipe_rank1.pickle"}),
      "ddp_rank*.pickle: 0=ddp_rank0.pickle 1=ddp_rank1.pickle\n"
      "pipe_rank*.pickle: 0=pipe_rank0.pickle 1=pipe_rank1.pickle\n");
  EXPECT_EQ(told({"run1/rank0.json", "run1/rank1.json", "run2/rank0.json", "run2/rank1.json"}),
            "run1/rank*.json: 0=run1/rank0.json 1=run1/rank1.json\n"
            "run2/rank*.json: 0=run2/rank0.json 1=run2/rank1.json\n");
}

TEST(RankFiles, OfSeveralStepsAreASetEachInTheirOrder) {
  EXPECT_EQ(told({"rank_00_step5.json", "rank_01_step5.json", "rank_00_step10.json",
                  "rank_01_step10.json"}),
            "rank_*_step5.json: 0=rank_00_step5.json 1=rank_01_step5.json\n"
            "rank_*_step10.json: 0=rank_00_step10.json 1=rank_01_step10.json\n");
  EXPECT_EQ(told({"gpu0_iter5.json", "gpu1_iter5.json", "gpu0_iter10.json", "gpu1_iter10.json"}),
            "gpu*_iter5.json: 0=gpu0_iter5.json 1=gpu1_iter5.json\n"
            "gpu*_iter10.json: 0=gpu0_iter10.json 1=gpu1_iter10.json\n");
}

TEST(RankFiles, OfTimesThatDifferFromRankToRankAreTakenInTurn) {
  EXPECT_EQ(told({"rank0_10-20-31.json", "rank0_10-25-02.json", "rank1_10-20-30.json",
                  "rank1_10-25-01.json"}),
            "rank*_*-*-*.json (1 of 2): 0=rank0_10-20-31.json 1=rank1_10-20-30.json\n"
            "rank*_*-*-*.json (2 of 2): 0=rank0_10-25-02.json 1=rank1_10-25-01.json\n");
  EXPECT_EQ(told({"host_4711.1700000001.json", "host_4712.1700000003.json"}),
            "host_*.1700000001.json: 4711=host_4711.1700000001.json "
            "4712=host_4712.1700000003.json\n");
}

TEST(RankFiles, ThatAreMissingAreGapsInTheNumbers) {
  EXPECT_EQ(told({"rank0.json", "rank3.json"}), "rank*.json: 0=rank0.json 3=rank3.json !1 !2\n");
  EXPECT_EQ(told({"rank1.json", "rank2.json"}), "rank*.json: 1=rank1.json 2=rank2.json !0\n");
  EXPECT_EQ(told({"rank4.json", "rank5.json"}), "rank*.json: 4=rank4.json 5=rank5.json\n")
      << "those of one host of several";
  EXPECT_EQ(told({"run.4711.emmb", "run.4713.emmb"}),
            "run.*.emmb: 4711=run.4711.emmb 4713=run.4713.emmb\n")
      << "those of processes";
  EXPECT_EQ(told({"rank4711.json", "rank4713.json"}),
            "rank*.json: 4711=rank4711.json 4713=rank4713.json !4712\n");
  EXPECT_EQ(told({"rank0.json", "rank1.json"}, 3), "rank*.json: 0=rank0.json 1=rank1.json !2\n");
}

TEST(RankFiles, LeaveOutTheFiguresBesideThem) {
  EXPECT_EQ(told({"rank0.json", "rank0.pickle.gz", "rank1.json", "rank1.pickle.gz"}),
            "rank*.pickle.gz: 0=rank0.pickle.gz 1=rank1.pickle.gz\n");
}

TEST(RankFiles, OfAFolderAreThoseThatMayBeRecordings) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "emm_rank_files";
  std::filesystem::remove_all(folder);
  for (const std::string name :
       {"rank10/a.jsonl", "rank2/a.jsonl", ".hidden/a.jsonl", "notes.md"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << "x";
  }

  const auto found = files_of({folder.string()});

  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (std::vector<std::string>{(folder / "rank2/a.jsonl").string(),
                                              (folder / "rank10/a.jsonl").string()}));
  EXPECT_FALSE(files_of({(folder / "*.pickle").string()}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace emm::fleet
