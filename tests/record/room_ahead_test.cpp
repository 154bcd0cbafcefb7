#include "record/room_ahead.hpp"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace emm::record {
namespace {

/// The file of a process that has taken the first blocks.
class RoomAheadTest : public testing::Test {
 protected:
  RoomAheadTest() {
    folder_ = testing::TempDir() + "room-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    std::memcpy(header_.magic, kMagic, sizeof kMagic);
    header_.version = kVersion;
  }
  ~RoomAheadTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/1.emmraw"; }
  void put(std::uint64_t blocks) {
    header_.blocks = header_.numbered = blocks;
    std::string bytes(kHeaderBytes, '\0');
    std::memcpy(bytes.data(), &header_, sizeof header_);
    std::ofstream(path() + ".new", std::ios::binary)
        << bytes << std::string(blocks * kBlockBytes, 'x');
    std::filesystem::rename(path() + ".new", path());  // it has its name when it is whole
  }
  FileHeader get() const {
    FileHeader found{};
    std::ifstream(path(), std::ios::binary).read(reinterpret_cast<char*>(&found), sizeof found);
    return found;
  }
  std::uint64_t file_blocks() const {
    return (std::filesystem::file_size(path()) - kHeaderBytes) / kBlockBytes;
  }

  std::string folder_;
  FileHeader header_{};
  Control control_;
};

TEST_F(RoomAheadTest, KeepsOneBlockMoreReadyThanWereTaken) {
  put(3);

  { const RoomAhead room(folder_, control_, {}); }

  const auto found = get();
  for (std::uint64_t at = 0; at < 4; ++at) EXPECT_EQ(found.ready[at], 4 + at);
  EXPECT_EQ(found.ready[4], 0u);
  EXPECT_EQ(found.numbered, 7u);
  EXPECT_EQ(file_blocks(), 7u);
}

TEST_F(RoomAheadTest, LeavesTheBlocksOfTheProcessAlone) {
  put(2);

  { const RoomAhead room(folder_, control_, {}); }

  std::ifstream file(path(), std::ios::binary);
  file.seekg(kHeaderBytes);
  std::string taken(2 * kBlockBytes, '\0'), ready(3 * kBlockBytes, '\0');
  file.read(taken.data(), static_cast<std::streamsize>(taken.size()));
  EXPECT_EQ(taken, std::string(taken.size(), 'x'));
  file.read(ready.data(), static_cast<std::streamsize>(ready.size()));
  EXPECT_EQ(ready, std::string(ready.size(), '\0'));
}

TEST_F(RoomAheadTest, EmptiesAFullBlockAndMakesItReady) {
  header_.full[5] = 2;
  put(3);
  std::string block(kBlockBytes, 'y');
  BlockHeader about{};
  about.magic = kBlockMagic;
  about.turn = 9;
  about.number = 2;
  about.state = 2;
  std::memcpy(block.data(), &about, sizeof about);
  {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(kHeaderBytes + kBlockBytes);
    file.write(block.data(), static_cast<std::streamsize>(block.size()));
  }

  { const RoomAhead room(folder_, control_, {}); }

  const auto found = get();
  EXPECT_EQ(found.full[5], 0u);
  EXPECT_EQ(found.ready[0], 2u);
  EXPECT_EQ(found.ready[1], 5u);  // 4 is the copy
  std::string emptied(kBlockBytes, '\0'), copy(kBlockBytes, '\0');
  std::ifstream file(path(), std::ios::binary);
  file.seekg(kHeaderBytes + kBlockBytes);
  file.read(emptied.data(), static_cast<std::streamsize>(emptied.size()));
  file.seekg(kHeaderBytes + 3 * kBlockBytes);
  file.read(copy.data(), static_cast<std::streamsize>(copy.size()));
  EXPECT_EQ(emptied, std::string(kBlockBytes, '\0'));
  about.number = 4;
  std::memcpy(block.data(), &about, sizeof about);
  EXPECT_EQ(copy, block);
}

TEST_F(RoomAheadTest, LeavesWhatIsNoFullBlockAsItIs) {
  header_.full[0] = 1;
  put(1);

  { const RoomAhead room(folder_, control_, {}); }

  std::ifstream file(path(), std::ios::binary);
  file.seekg(kHeaderBytes);
  std::string block(kBlockBytes, '\0');
  file.read(block.data(), static_cast<std::streamsize>(block.size()));
  EXPECT_EQ(block, std::string(kBlockBytes, 'x'));
}

TEST_F(RoomAheadTest, EmptiesNoMoreBlocksThanItCanMakeReady) {
  header_.full[0] = 1;
  for (auto& ready : header_.ready) ready = 2;
  put(2);

  { const RoomAhead room(folder_, control_, {}); }

  EXPECT_EQ(get().full[0], 1u);
  EXPECT_EQ(file_blocks(), 2u);
}

TEST_F(RoomAheadTest, StopsAtTheSizeThatAFileMayHave) {
  put(3);

  { const RoomAhead room(folder_, control_, {.file_bytes = 4 * kBlockBytes}); }

  EXPECT_EQ(get().ready[0], 4u);
  EXPECT_EQ(get().ready[1], 0u);
  EXPECT_EQ(file_blocks(), 4u);
}

TEST_F(RoomAheadTest, LeavesAFileOfAnotherVersionAlone) {
  header_.version = kVersion + 1;
  put(3);

  { const RoomAhead room(folder_, control_, {}); }

  EXPECT_EQ(file_blocks(), 3u);
}

TEST_F(RoomAheadTest, MakesMoreWhenAProcessHasTakenOne) {
  const RoomAhead room(folder_, control_, {});
  put(1);  // later than the thread's first look

  while (get().ready[1] == 0) {
    std::atomic_ref<std::uint32_t>(control_.taken).fetch_add(1);
    syscall(SYS_futex, &control_.taken, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    std::this_thread::yield();
  }

  EXPECT_EQ(get().ready[0], 2u);
  EXPECT_EQ(get().ready[1], 3u);
}

}  // namespace
}  // namespace emm::record
