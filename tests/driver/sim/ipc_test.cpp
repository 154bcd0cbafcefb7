#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "sim/fixture.hpp"

namespace emm {
namespace {

using Check = std::function<bool(Driver& importer)>;

/// Runs `check` with the same device in a second process; whether it held there.
bool holds_in_another_process(SimPlatform& platform, const Check& check) {
  const auto pid = fork();
  if (pid == 0) {
    SimPlatform same(platform.options());
    auto device = *same.open(0);
    _exit(check(*device.driver) ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::uint32_t word(Driver& driver, DevicePtr ptr) {
  std::uint32_t value = 0;
  EXPECT_TRUE(driver.memcpy_dtoh(std::as_writable_bytes(std::span(&value, 1)), ptr));
  return value;
}

TEST_F(SimTest, MemoryThatNobodyWroteToReadsTheSameOnBothSides) {
  const auto ptr = *driver().mem_alloc(1_MiB);
  const auto fresh = word(driver(), ptr);
  const auto handle = *driver().ipc_get_mem_handle(ptr);

  EXPECT_EQ(word(driver(), ptr), fresh);
  EXPECT_TRUE(holds_in_another_process(platform(), [&](Driver& importer) {
    return word(importer, *importer.ipc_open_mem_handle(handle)) == fresh;
  }));
}

TEST_F(SimTest, ImportedMemoryHasItsSizeAndIsNotTheImportersToFreeOrExport) {
  const auto handle = *driver().ipc_get_mem_handle(*driver().mem_alloc(3_MiB));

  EXPECT_TRUE(holds_in_another_process(platform(), [&](Driver& importer) {
    const auto ptr = *importer.ipc_open_mem_handle(handle);
    const auto range = importer.mem_get_address_range(ptr + (3_MiB - 1));
    return range && range->base == ptr && range->size == 3_MiB &&
           native(importer.mem_free(ptr)) == 1 && native(importer.ipc_get_mem_handle(ptr)) == 1 &&
           native(importer.memset_d8(ptr, 0, 3_MiB + 1)) == 1 && importer.held_bytes() == 0;
  }));
}

TEST_F(SimTest, SeveralImportsLieApart) {
  const auto first = *driver().ipc_get_mem_handle(*driver().mem_alloc(3_MiB));
  const auto second = *driver().ipc_get_mem_handle(*driver().mem_alloc(1_KiB));

  EXPECT_TRUE(holds_in_another_process(platform(), [&](Driver& importer) {
    const auto a = *importer.ipc_open_mem_handle(first), b = *importer.ipc_open_mem_handle(second);
    if (b - a < 3_MiB || !importer.ipc_close_mem_handle(a)) return false;
    return *importer.ipc_open_mem_handle(first) == a &&
           importer.ipc_close_mem_handle(b).has_value();
  }));
}

TEST_F(SimTest, AHandleOfFreedMemoryIsNotOpened) {
  const auto ptr = *driver().mem_alloc(1_MiB);
  const auto handle = *driver().ipc_get_mem_handle(ptr);
  ASSERT_TRUE(driver().mem_free(ptr));
  ASSERT_TRUE(driver().ipc_get_mem_handle(*driver().mem_alloc(1_MiB)))
      << "takes the descriptor that fell free";

  EXPECT_TRUE(holds_in_another_process(platform(), [&](Driver& importer) {
    return native(importer.ipc_open_mem_handle(handle)) == 1;
  }));
}

TEST_F(SimTest, BytesThatAreNoHandleAreNotOpened) {
  IpcMemHandle noise;
  noise.bytes.fill(std::byte{0x5a});

  EXPECT_EQ(native(driver().ipc_open_mem_handle(noise)), 1);
  EXPECT_EQ(native(driver().ipc_open_mem_handle({})), 1);
}

TEST_F(SimTest, AnExporterThatIsKilledLeavesNothingBehind) {
  const auto names = [] {
    std::vector<std::string> ours;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().find("emm") != std::string::npos)
        ours.push_back(entry.path());
    }
    return ours;
  };
  const auto before = names();
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const auto exporter = fork();
  if (exporter == 0) {
    SimPlatform own({.capacity = 64_MiB});
    auto device = *own.open(0);
    const auto handle = *device.driver->ipc_get_mem_handle(*device.driver->mem_alloc(1_MiB));
    if (write(pipe_ends[1], &handle, sizeof handle) != sizeof handle) _exit(1);
    for (;;) pause();
  }
  IpcMemHandle handle;
  ASSERT_EQ(read(pipe_ends[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  const auto ptr = driver().ipc_open_mem_handle(handle);
  ASSERT_TRUE(ptr);
  kill(exporter, SIGKILL);
  waitpid(exporter, nullptr, 0);

  EXPECT_TRUE(driver().memset_d32(*ptr, 1, 1024)) << "what is mapped stays";
  EXPECT_TRUE(driver().ipc_close_mem_handle(*ptr));
  EXPECT_EQ(native(driver().ipc_open_mem_handle(handle)), 1);
  EXPECT_EQ(names(), before);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace emm
