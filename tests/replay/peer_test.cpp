#include "replay/peer.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "fake_device.hpp"

namespace emm::replay {
namespace {

std::unique_ptr<Peer> start(const std::string& how, int timeout_ms = kPeerTimeoutMs) {
  auto peer = start_peer_process({PEER_CHILD, how}, timeout_ms);
  EXPECT_TRUE(peer) << describe(peer.error());
  return peer ? std::move(*peer) : nullptr;
}

IpcHandle::Fields handle_at(std::uint64_t address, std::uint64_t offset, std::uint64_t size) {
  IpcHandle::Fields fields;
  std::memcpy(fields.handle.bytes.data(), &address, sizeof address);
  fields.offset = offset;
  fields.size = size;
  return fields;
}

TEST(Peer, OpensWritesReadsAndClosesInAnotherProcess) {
  const auto peer = start("serve");
  const std::vector<std::byte> content{std::byte{1}, std::byte{2}, std::byte{3}};

  const auto opening = peer->open(handle_at(FakeDriver::kBase, 512, 100));
  ASSERT_TRUE(opening);
  EXPECT_EQ(*peer->address(*opening), FakeDriver::kBase + 512);
  ASSERT_TRUE(peer->write(*opening, 97, content));
  EXPECT_EQ(*peer->read(*opening, 97, 3), content);
  EXPECT_EQ(*peer->read(*opening, 96, 2), (std::vector<std::byte>{std::byte{0}, std::byte{1}}));
  EXPECT_TRUE(peer->close(*opening));
}

TEST(Peer, AnswersErrorsAndGoesOn) {
  const auto peer = start("serve");

  const auto wrong = peer->open(handle_at(1, 0, 100));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Errc::invalid_value);
  EXPECT_EQ(wrong.error().native, 1);
  EXPECT_EQ(describe(wrong.error()),
            "[1] Call to cuIpcOpenMemHandle results in CUDA_ERROR_INVALID_VALUE");

  const auto opening = peer->open(handle_at(FakeDriver::kBase, 0, 100));
  ASSERT_TRUE(opening);
  EXPECT_EQ(peer->read(*opening, 99, 2).error().code, Errc::invalid_value) << "past the view";
  EXPECT_EQ(peer->close(77).error().code, Errc::not_found);
}

TEST(Peer, OneThatIsKilledSaysBySignal) {
  const auto peer = start("die");

  const auto opening = peer->open(handle_at(FakeDriver::kBase, 0, 1));

  ASSERT_FALSE(opening);
  EXPECT_EQ(opening.error().code, Errc::io_error);
  EXPECT_EQ(opening.error().message,
            "the second process of an IPC section was ended by signal 9 (Killed)");
  EXPECT_EQ(peer->address(1).error().message, opening.error().message) << "and stays so";
}

TEST(Peer, OneThatEndsSaysItsExitCode) {
  const auto peer = start("exit");

  EXPECT_EQ(peer->open(handle_at(FakeDriver::kBase, 0, 1)).error().message,
            "the second process of an IPC section ended with exit code 9");
}

TEST(Peer, OneThatHangsIsAnError) {
  const auto peer = start("hang", 50);

  EXPECT_EQ(peer->open(handle_at(FakeDriver::kBase, 0, 1)).error().message,
            "the second process of an IPC section does not answer within 50 ms");
}

TEST(Peer, OneThatSaysSomethingElseIsAnError) {
  const auto peer = start("babble");

  EXPECT_EQ(peer->open(handle_at(FakeDriver::kBase, 0, 1)).error().message,
            "the second process of an IPC section answers what was not asked");
}

TEST(Peer, AProgramThatDoesNotExistIsAnError) {
  const auto peer = start_peer_process({"/nowhere/peer"});

  ASSERT_FALSE(peer);
  EXPECT_EQ(
      peer.error().message,
      "the second process of an IPC section cannot be started as /nowhere/peer: No such file or "
      "directory");
}

}  // namespace
}  // namespace emm::replay
