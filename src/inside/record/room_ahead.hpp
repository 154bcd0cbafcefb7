#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "raw/raw.hpp"

namespace emm::record {

/// Makes room in a folder's raw files ahead of the programs that write them, so that the programs
/// need not wait for the disk: it empties the blocks that they have filled, and appends new ones.
/// FileHeader describes the protocol.
///
/// A thread works from the constructor to the destructor. `control` must outlive the object. Errors
/// are ignored here: the program then makes the room itself and reports why it cannot.
class RoomAhead {
 public:
  struct Limits {
    std::uint64_t file_bytes = 0;  ///< The most bytes of a file; 0: no limit.
  };
  RoomAhead(std::string folder, Control& control, Limits limits);
  ~RoomAhead();
  RoomAhead(const RoomAhead&) = delete;
  RoomAhead& operator=(const RoomAhead&) = delete;

 private:
  void work() noexcept;

  std::string folder_;
  Control& control_;
  std::uint64_t blocks_most_;  ///< 0: no limit.
  bool ends_ = false;          ///< Accessed as an atomic.
  std::thread thread_;
};

}  // namespace emm::record
