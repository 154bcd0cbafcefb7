#include "trial/sweep/matrix.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "trial/sweep/folder.hpp"
#include "trial/sweep/slurm.hpp"

static int entries_until_failure = -1;  // below 0: there is no failure

/// std::filesystem reads folders by it.
extern "C" [[gnu::visibility("default")]] dirent* readdir(DIR* folder) {
  static const auto system = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  if (entries_until_failure == 0) return errno = EIO, nullptr;
  if (entries_until_failure > 0) --entries_until_failure;
  return system(folder);
}

namespace emm::sweep {
namespace {

namespace fs = std::filesystem;

std::string words_of(const Cell& cell) {
  std::string out;
  for (const auto& word : cell.command) out += (out.empty() ? "" : " ") + word;
  return out;
}

class SweepFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / "emm_sweep_folder";
    fs::remove_all(path_);
    ASSERT_TRUE(folder().make());
  }
  void TearDown() override { fs::remove_all(path_); }
  Folder folder() const { return Folder(path_.string()); }

  fs::path path_;
};

TEST(Matrix, HasACellOfEachTraceManagerSettingAndCapacity) {
  const Matrix matrix{.command = "replay",
                      .traces = {},
                      .managers = {"pool", "./a.so:x=1"},
                      .settings = {"", "y=2"},
                      .capacities = {"1GiB"},
                      .devices = {"sim:seed=3"},
                      .options = {"--verify"}};

  const auto cells = cells_of(matrix, {"/t/a", "/t/b"});

  ASSERT_TRUE(cells);
  ASSERT_EQ(cells->size(), 8u);
  EXPECT_EQ(words_of((*cells)[0]),
            "replay /t/a --manager pool --device sim:capacity=1GiB,seed=3 --verify");
  EXPECT_EQ(words_of((*cells)[3]),
            "replay /t/a --manager ./a.so:x=1,y=2 --device sim:capacity=1GiB,seed=3 --verify");
  EXPECT_NE((*cells)[0].id, (*cells)[1].id);
}

TEST(Matrix, ACellOfAnotherContentHasAnotherId) {
  const auto trace = testing::TempDir() + "emm_sweep_trace", manager = trace + ".so";
  const auto id = [&](const std::string& content, const std::string& library) {
    std::ofstream(trace) << content;
    std::ofstream(manager) << library;
    return (*cells_of({.managers = {manager + ":x=1"}, .devices = {}}, {trace}))[0].id;
  };

  const auto first = id("a", "a");

  EXPECT_EQ(id("a", "a"), first);
  EXPECT_NE(id("b", "a"), first);
  EXPECT_NE(id("a", "b"), first);
}

TEST(Slurm, APartTakesAboutAsLongAsTold) {
  std::vector<Cell> cells;
  for (const std::string id : {"a", "b", "c", "d", "e"})
    cells.push_back({.id = id,
                     .trace = id < "d" ? "short" : "long",
                     .manager = {},
                     .setting = {},
                     .capacity = {},
                     .device = {},
                     .command = {"replay", "no"}});

  const auto times = estimates(cells, cells, {{"a", 10}, {"c", 20}, {"d", 70}});

  EXPECT_EQ(times, (std::vector<double>{15, 15, 15, 70, 70}));
  using Parts = std::vector<std::vector<std::string>>;
  EXPECT_EQ(parts_by_time(cells, times, 40), (Parts{{"a", "b", "c"}, {"d"}, {"e"}}));
  EXPECT_EQ(parts_by_time(cells, estimates(cells, cells, {}), 1),
            (Parts{{"a", "b", "c", "d", "e"}}))
      << "of a trace that is not there, a guess";
}

TEST(Matrix, TheSameCellOfAnotherMatrixHasTheSameId) {
  Matrix matrix{.command = "replay", .traces = {}, .managers = {"pool"}};
  const auto before = cells_of(matrix, {"/t/a"});
  matrix.managers = {"async", "pool", "pool"};

  const auto after = cells_of(matrix, {"/t/b", "/t/a"});

  ASSERT_TRUE(before && after);
  ASSERT_EQ(after->size(), 4u) << "a manager that is named twice is one";
  EXPECT_EQ((*after)[3].id, (*before)[0].id);
}

TEST(Matrix, SaysWhatACommandDoesNotTake) {
  EXPECT_FALSE(cells_of({.command = "fit",
                         .traces = {},
                         .managers = {"pool"},
                         .settings = {},
                         .capacities = {"1GiB"}},
                        {"/t/a"}));
  EXPECT_FALSE(cells_of({.command = "tune", .traces = {}, .managers = {"pool"}}, {"/t/a"}));
  EXPECT_FALSE(cells_of({.command = "list"}, {"/t/a"}));
  EXPECT_FALSE(cells_of({.command = "replay"}, {}));
}

TEST_F(SweepFolder, KeepsThePlan) {
  const auto cells =
      cells_of({.command = "fit", .traces = {}, .managers = {"pool", "a \"b\""}}, {"/t/a"});
  ASSERT_TRUE(cells);
  ASSERT_TRUE(folder().write_plan("fit", *cells));

  const auto read = folder().read_plan();

  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[1].command, (*cells)[1].command);
}

TEST_F(SweepFolder, ACellIsPendingUntilItIsDoneOrHasFailedOften) {
  const auto cells =
      cells_of({.command = "fit", .traces = {}, .managers = {"a", "b", "c"}}, {"/t/a"});
  ASSERT_TRUE(cells);
  std::ofstream(folder().cell_path((*cells)[0].id)) << "{}";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(folder().add_failure((*cells)[1].id, "exit 2: no\n"));

  const auto todo = pending(*cells, folder().attempts(), 2);
  const auto progress = progress_of(folder(), *cells, 2, {});

  ASSERT_EQ(todo.size(), 1u);
  EXPECT_EQ(todo[0].id, (*cells)[2].id);
  EXPECT_EQ(progress.done, 1u);
  EXPECT_EQ(progress.failed, 1u);
  EXPECT_EQ(progress.failures[0].second, "exit 2: no");
  EXPECT_EQ(pending(*cells, folder().attempts(), 3).size(), 2u) << "more tries are told";
}

TEST_F(SweepFolder, ACellIsFailedInCsvWhenItIsNotTriedAgain) {
  const auto cells = cells_of({.command = "fit", .traces = {}, .managers = {"a"}}, {"/t/a"});
  ASSERT_TRUE(cells && folder().add_failure((*cells)[0].id, "exit 2: no\n"));
  const auto state = [&](std::uint64_t tries) {
    const auto row = csv_rows(folder(), *cells, tries);
    const auto begin = row.find(',') + 1;
    return row.substr(begin, row.find(',', begin) - begin);
  };

  EXPECT_EQ(state(1), "failed");
  EXPECT_EQ(state(2), "to do");
}

TEST_F(SweepFolder, AFolderThatCannotBeReadToItsEndEndsThere) {
  for (const auto* id : {"a", "b", "c"}) std::ofstream(folder().cell_path(id)) << "{}";

  entries_until_failure = 2;
  const auto attempts = folder().attempts();
  entries_until_failure = -1;

  EXPECT_LT(attempts.size(), 3u);
  EXPECT_EQ(folder().attempts().size(), 3u);
}

TEST_F(SweepFolder, BatchesHaveNamesOfTheirOwn) {
  const auto first = folder().add_batch({{"a", "b"}, {"c"}});
  const auto second = folder().add_batch({{"d"}});
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(folder().set_job(*second, "41"));

  const auto batches = folder().batches();

  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].parts, (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}}));
  EXPECT_EQ(batches[0].job, "");
  EXPECT_EQ(batches[1].job, "41");
}

}  // namespace
}  // namespace emm::sweep
