#include "base/run_files.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace emm {
namespace {

namespace fs = std::filesystem;

class RunFiles : public ::testing::Test {
 protected:
  RunFiles() : folder_(fs::path(::testing::TempDir()) / ("run_files-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    run_files::begin();
  }
  ~RunFiles() override {
    run_files::end();
    fs::remove_all(folder_);
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string file(const char* name) const {
    std::ofstream(path(name)) << name;
    return path(name);
  }

 private:
  fs::path folder_;
};

TEST_F(RunFiles, AnOutputIsNeverAnInputByWhateverPath) {
  const auto input = file("in");
  fs::create_hard_link(input, path("hard"));
  fs::create_symlink("in", path("soft"));
  ASSERT_TRUE(run_files::reads(input, "TRACE"));

  for (const auto& other : {input, path("hard"), path("soft"), path("./in")}) {
    const auto refused = run_files::writes(other, "--json");
    ASSERT_FALSE(refused) << other;
    EXPECT_EQ(refused.error().code, Errc::usage);
    EXPECT_EQ(describe(refused.error()), "TRACE " + input + " and --json " + other +
                                             " are one file: expected an output of its own");
  }
  EXPECT_TRUE(run_files::writes(file("old"), "--json"))
      << "a file that nothing else uses is overwritten";
}

TEST_F(RunFiles, AnOutputIsNeverAnotherOutputAlsoBeforeItIsThere) {
  fs::create_symlink("new", path("leads_to_new"));
  ASSERT_TRUE(run_files::reserve(path("new"), "--json"));

  EXPECT_FALSE(run_files::reserve(path("leads_to_new"), "--svg"));
  EXPECT_FALSE(run_files::writes(path("new"), "--log")) << "it is reserved by another";
  EXPECT_FALSE(run_files::reads(path("new"))) << "what is written is not read";
  EXPECT_TRUE(run_files::writes(path("new"))) << "the path of a reservation redeems it";
}

TEST_F(RunFiles, AnOutputIsOpenedAgainByItsUserAloneAndOnceItIsClosed) {
  auto first = run_files::writes(path("log"), "--adaptor logging");
  ASSERT_TRUE(first);
  EXPECT_FALSE(run_files::writes(path("log"), "--adaptor logging"));

  *first = {};

  EXPECT_FALSE(run_files::writes(path("log"), "--json"));
  EXPECT_TRUE(run_files::writes(path("log"), "--adaptor logging"));
}

TEST_F(RunFiles, StandardOutputIsOneOutputUnderAllItsNames) {
  ASSERT_TRUE(run_files::reserve("-", "--json"));
  for (const auto* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const auto refused = run_files::reserve(name, "--svg");
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(describe(refused.error()), "--json and --svg cannot both go to standard output");
  }
}

TEST_F(RunFiles, DevicesMayBeShared) {
  EXPECT_TRUE(run_files::reads("/dev/null"));
  EXPECT_TRUE(run_files::reserve("/dev/null", "--json"));
  EXPECT_TRUE(run_files::reserve("/dev/null", "--svg"));
}

TEST_F(RunFiles, AWriteThatFailedInAForkedProcessIsKnownHere) {
  EXPECT_FALSE(run_files::write_error());
  const auto child = fork();
  if (child == 0) {
    run_files::note_write_error(fail(Errc::io_error, "cannot write {}: {}", "x", "why"));
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  ASSERT_TRUE(run_files::write_error());
  EXPECT_EQ(describe(*run_files::write_error()), "cannot write x: why");
}

TEST_F(RunFiles, NothingIsRefusedWhereNoRunHasBegun) {
  run_files::end();
  const auto input = file("in");
  EXPECT_TRUE(run_files::reads(input));
  EXPECT_TRUE(run_files::writes(input));
}

}  // namespace
}  // namespace emm
