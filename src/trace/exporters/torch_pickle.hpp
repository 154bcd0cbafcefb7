#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.hpp"
#include "format/byte_sink.hpp"
#include "format/pickle_writer.hpp"
#include "trace/exporter.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Call stacks to make up for allocations that name no site; 0 stacks: none.
struct TorchFrames {
  std::uint64_t stacks = 0;   ///< Distinct ones, of which each allocation has one.
  std::uint64_t depth = 16;   ///< Frames of a stack.
  std::uint64_t frames = 1;   ///< Distinct frames that stacks share. 0: each frame is its stack's own.
  bool own = false;           ///< Each allocation writes its stack anew, as PyTorch does; of 0 `stacks` all differ.
  std::uint64_t seed = 1;
};

/// Writes device allocations and their frees as PyTorch's _dump_snapshot would: rows of device 0, and the segments
/// at the end. Addresses are those of an allocator that keeps blocks by exact size and never gives back. Sites with
/// frames are kept, shared. Other operations are left out, and counted. `out` outlives it. Errors: io_error;
/// not_supported of a trace of several devices, whose rows cannot be written as they come.
class TorchPickleWriter final : public ExportSink {
 public:
  explicit TorchPickleWriter(format::ByteSink& out, const TorchFrames& frames = {});

  Status on_header(const Header& header) override;
  Status on_operation(const Operation& operation) override;
  Status finish() override;

  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t left_out() const noexcept { return left_out_; }

 private:
  struct Block {
    std::uint64_t address = 0, size = 0, stream = 0;
    bool live = false;
  };
  struct Row {
    std::string_view action;
    std::uint64_t address = 0, size = 0, stream = 0;
  };

  Status memalloc(const Operation& operation);
  Status free(const Operation& operation);
  void define(const Operation& operation);
  Status row(const Row& row, const Operation& operation, std::string_view site);
  void put_stack(std::string_view site);
  void put_made_up_stack();
  void put_frame(std::string_view file, std::uint64_t line, std::string_view name);
  void put_made_up_frame(std::uint64_t number);
  void put_segments();
  std::uint64_t stream_of(const Operation& operation);

  format::PickleWriter pickle_;
  TorchFrames frames_;
  Prng random_;
  std::map<std::string, std::size_t, std::less<>> live_;                      // an id's block
  std::map<std::uint64_t, std::vector<std::size_t>> free_;                    // by rounded size and stream
  std::vector<Block> blocks_;                                                 // each alone in its segment
  std::map<std::string, std::vector<std::string>, std::less<>> sites_;        // that no row named yet
  std::map<std::string, format::PickleWriter::Memo, std::less<>> stacks_;
  std::vector<format::PickleWriter::Memo> made_up_stacks_, made_up_frames_;   // plus one; 0: not written yet
  format::PickleWriter::Memo no_frames_ = 0;                                  // plus one
  std::map<std::string, std::uint64_t, std::less<>> streams_;
  std::uint64_t next_address_, rows_ = 0, left_out_ = 0, batch_ = 0, stacks_made_ = 0;
};

}  // namespace emm::trace
