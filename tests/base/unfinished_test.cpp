#include "base/unfinished.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
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

/// Makes a temporary folder in a child, which goes on until kill_it().
class MadeByAnother {
 public:
  MadeByAnother() {
    int made[2];
    EXPECT_EQ(pipe(made), 0);
    child_ = fork();
    if (child_ == 0) {
      const auto folder = Unfinished::temporary_folder("test");
      std::ofstream((*folder)->path() + "/a-file") << "half";
      write_all(made[1], (*folder)->path());
      for (;;) pause();
    }
    close(made[1]);
    char path[4096];
    const auto length = read(made[0], path, sizeof path);
    close(made[0]);
    path_.assign(path, static_cast<std::size_t>(std::max<long>(length, 0)));
  }
  void kill_it() {
    kill(child_, SIGKILL);
    EXPECT_EQ(waitpid(child_, nullptr, 0), child_);
  }
  const std::string& path() const { return path_; }

 private:
  static void write_all(int file, const std::string& path) {
    if (write(file, path.data(), path.size()) != static_cast<long>(path.size())) _exit(1);
  }

  pid_t child_ = -1;
  std::string path_;
};

TEST_F(UnfinishedTest, ATemporaryFolderGoesWithItsFolders) {
  const auto kept = place_ + "/kept";
  fs::create_directory(kept);
  std::ofstream(kept + "/file") << "somebody else's";

  and_end_suddenly([&] {
    const auto made = Unfinished::temporary_folder("test");
    const auto inner = (*made)->path() + "/a/b/c";
    fs::create_directories(inner);
    fill(inner);
    fs::create_directory_symlink(kept, inner + "/link");
  });

  EXPECT_TRUE(fs::exists(kept + "/file")) << "a link is removed, and not what it leads to";
  fs::remove_all(kept);
  EXPECT_TRUE(is_empty());
}

TEST_F(UnfinishedTest, TheNextProcessRemovesFoldersWhoseMakersWereKilled) {
  MadeByAnother killed, alive;
  killed.kill_it();
  fs::create_directory(place_ + "/emmctl-notes");
  std::ofstream(place_ + "/emmctl-notes/mine") << "mine";
  EXPECT_TRUE(fs::exists(killed.path() + "/a-file"));

  remove_left_folders();
  EXPECT_FALSE(fs::exists(killed.path()));
  EXPECT_TRUE(fs::exists(alive.path() + "/a-file"));
  EXPECT_TRUE(fs::exists(place_ + "/emmctl-notes/mine"));
  alive.kill_it();
}

TEST_F(UnfinishedTest, AFolderThatAProgramGoesOnWithIsRemovedAfterIt) {
  MadeByAnother killed;
  const auto program = fork();
  if (program == 0) {
    const auto variable = "FOLDER=" + killed.path();
    const char* const environment[] = {variable.c_str(), nullptr};
    const char* const words[] = {"sleep", "1000", nullptr};
    execve("/bin/sleep", const_cast<char**>(words), const_cast<char**>(environment));
    _exit(1);
  }
  const auto has_begun = [&] {
    // Its name is there some time before its environment.
    std::ifstream environment("/proc/" + std::to_string(program) + "/environ");
    std::string said;
    return std::getline(environment, said, '\0') && said == "FOLDER=" + killed.path();
  };
  while (!has_begun() && waitpid(program, nullptr, WNOHANG) == 0) usleep(1000);
  killed.kill_it();
  remove_left_folders();
  EXPECT_TRUE(fs::exists(killed.path()));

  kill(program, SIGKILL);
  EXPECT_EQ(waitpid(program, nullptr, 0), program);
  remove_left_folders();
  EXPECT_FALSE(fs::exists(killed.path()));
}

TEST_F(UnfinishedTest, ThreeAtATimeRemoveAndMakeFolders) {
  for (int i = 0; i < 20; ++i) MadeByAnother().kill_it();
  pid_t children[3];
  for (auto& child : children) {
    child = fork();
    if (child != 0) continue;
    for (int i = 0; i < 50; ++i) {
      const auto mine = Unfinished::temporary_folder("test");
      if (!mine) _exit(1);
      std::ofstream((*mine)->path() + "/a-file") << "half";
      remove_left_folders();
      if (!fs::exists((*mine)->path() + "/a-file")) _exit(2);
    }
    _exit(0);
  }
  for (const auto child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_TRUE(is_empty());
}

TEST_F(UnfinishedTest, WhatIsWholeStays) {
  and_end_suddenly([&] {
    static auto made = Unfinished::folder(place_ + "/kept");
    fill(made->path());
    made->set_whole();
    static auto temporary = Unfinished::temporary_folder("test");
    fs::create_symlink((*temporary)->path(), place_ + "/made");
    std::ofstream(place_ + "/made/a-file") << "whole";
    (*temporary)->set_whole();
  });
  remove_left_folders();
  EXPECT_TRUE(fs::exists(place_ + "/kept/a-file-299"));
  EXPECT_TRUE(fs::exists(place_ + "/made/a-file"));
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
