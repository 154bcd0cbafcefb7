#include "log/whole_lines.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "read_file.hpp"

namespace emm::log {
namespace {

struct TemporaryFile {
  TemporaryFile() { close(mkstemp(path.data())); }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path = std::filesystem::temp_directory_path() / "emm_lines_XXXXXX";
};

/// A process that has written `content` to `path` under a WholeLines, and waits to be killed.
pid_t start_writer(const std::string& path, const std::string& content) {
  int written[2];
  EXPECT_EQ(pipe(written), 0);
  const pid_t child = fork();
  if (child == 0) {
    const WholeLines whole({path});
    std::ofstream(path, std::ios::binary) << content;
    if (write(written[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(written[0], &byte, 1), 1);
  close(written[0]);
  close(written[1]);
  return child;
}

void kill_and_wait_for_the_cut(pid_t child, const std::string& path) {
  const int watch = inotify_init1(IN_CLOEXEC);
  ASSERT_GE(inotify_add_watch(watch, path.c_str(), IN_CLOSE_WRITE), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  char event[512];
  EXPECT_GT(read(watch, event, sizeof event), 0);
  close(watch);
}

TEST(WholeLines, CutsWhatAKilledProcessLeftOfALine) {
  const TemporaryFile file;
  const auto child = start_writer(file.path, "one\ntwo\nthr");

  kill_and_wait_for_the_cut(child, file.path);

  EXPECT_EQ(read_file(file.path), "one\ntwo\n");
}

TEST(WholeLines, CutsALineThatIsLongerThanABlock) {
  const TemporaryFile file;
  const auto child = start_writer(file.path, "one\n" + std::string(10'000, 'x'));

  kill_and_wait_for_the_cut(child, file.path);

  EXPECT_EQ(read_file(file.path), "one\n");
}

TEST(WholeLines, LeavesAFileAloneThatIsWhole) {
  const TemporaryFile file;
  const auto child = start_writer(file.path, "one\ntwo\n");

  kill_and_wait_for_the_cut(child, file.path);

  EXPECT_EQ(read_file(file.path), "one\ntwo\n");
}

TEST(WholeLines, LeavesTheFilesOfAProcessAloneThatEndsItself) {
  const TemporaryFile file;
  {
    const WholeLines whole({file.path});
    std::ofstream(file.path, std::ios::binary) << "one\ntw";
  }

  EXPECT_EQ(read_file(file.path), "one\ntw");
}

}  // namespace
}  // namespace emm::log
