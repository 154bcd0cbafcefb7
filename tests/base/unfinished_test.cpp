#include "base/unfinished.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/sudden_end.hpp"

namespace emm {
namespace {

namespace fs = std::filesystem;

/// Runs `what` in a child, which then ends as at a signal.
template <typename What>
void and_end_suddenly(What&& what) {
  const auto child = fork();
  if (child == 0) {
    what();
    end_suddenly(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 3);
}

class UnfinishedTest : public testing::Test {
 protected:
  void SetUp() override {
    char made[] = "/tmp/emm-unfinished-XXXXXX";
    ASSERT_NE(mkdtemp(made), nullptr);
    place_ = made;
    setenv("TMPDIR", made, 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    fs::remove_all(place_);
  }
  void fill(const std::string& folder) const {
    for (int i = 0; i < 300; ++i) std::ofstream(folder + "/a-file-" + std::to_string(i)) << i;
  }
  bool is_empty() const { return fs::is_empty(place_); }

  std::string place_;
};

TEST_F(UnfinishedTest, ATemporaryFolderGoesWithItsFiles) {
  {
    auto made = Unfinished::temporary_folder("test");
    ASSERT_TRUE(made);
    fill((*made)->path());
  }
  EXPECT_TRUE(is_empty());

  and_end_suddenly([&] { fill((*Unfinished::temporary_folder("test"))->path()); });
  EXPECT_TRUE(is_empty());
  and_end_suddenly([&] {
    static auto made = Unfinished::temporary_folder("test");
    fill((*made)->path());
  });
  EXPECT_TRUE(is_empty());
}

TEST_F(UnfinishedTest, WhatIsWholeStays) {
  and_end_suddenly([&] {
    static auto made = Unfinished::folder(place_ + "/kept");
    fill(made->path());
    made->set_whole();
  });
  EXPECT_TRUE(fs::exists(place_ + "/kept/a-file-299"));
}

TEST_F(UnfinishedTest, AFolderThatWasThereIsNotTaken) {
  mkdir((place_ + "/mine").c_str(), 0777);
  EXPECT_EQ(Unfinished::folder(place_ + "/mine"), nullptr);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_TRUE(fs::exists(place_ + "/mine"));
}

TEST_F(UnfinishedTest, AForkedChildRemovesWhatItMadeAndNothingElse) {
  const auto parents = Unfinished::folder(place_ + "/parents");
  and_end_suddenly([&] {
    static const Unfinished childs(place_ + "/childs");
    std::ofstream(childs.path()) << "half";
  });
  EXPECT_TRUE(fs::exists(place_ + "/parents"));
  EXPECT_FALSE(fs::exists(place_ + "/childs"));
}

}  // namespace
}  // namespace emm
