#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "record/raw.hpp"

namespace emm::record {

/// Makes room in the raw files of a folder ahead of the programs that write them, so that these
/// need not wait for the disk: FileHeader says how.
///
/// A thread of its own works from the constructor on until the object ends. `control` must outlive
/// it. What cannot be done is left: the programs then make room themselves, and say why not.
class RoomAhead {
 public:
  struct Limits {
    std::uint64_t file_bytes = 0;  ///< What a file may hold; 0: no limit.
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
  bool ends_ = false;          ///< Read and written as an atomic.
  std::thread thread_;
};

}  // namespace emm::record
