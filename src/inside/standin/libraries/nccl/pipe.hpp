#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "standin/libraries/nccl/meeting.hpp"

namespace emm::standin::nccl {

/// What one rank sends another in a communicator: a file that both map. The sender writes its part
/// and the receiver its own, without a lock. Values of small pieces lie in a ring of 4 MiB; as on a
/// card, a small send ends before it is received, while there is room.
class Pipe {
 public:
  /// Opens the pipe; null if there is no room for it in the file system.
  static std::unique_ptr<Pipe> open(const std::string& meeting, int from, int to);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  /// The sender's side. True if there was room for the message; `number` is then its number.
  bool send(const CollectiveCall& part, std::span<const std::byte> values, std::uint64_t& number);
  /// Has the message been received?
  bool is_received(std::uint64_t number) const noexcept;

  /// The receiver's side. True if there is a message: its part, and the values that came.
  bool receive(CollectiveCall& part, std::vector<std::byte>& values);

  void unlink() const noexcept;

 private:
  struct Page;
  Pipe() = default;

  std::string path_;
  int file_ = -1;
  Page* page_ = nullptr;
  std::uint64_t room_ = 0;  // bytes of the ring for which there is room in the file system
};

}  // namespace emm::standin::nccl
