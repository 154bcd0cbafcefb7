#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// Makes memory out of totals: for a recording that says how many bytes there are at a moment, and
/// not of which blocks. A greater total is one more allocation of the difference; a smaller one
/// ends the latest allocations, and what remains of the last is an allocation again ("x-no_row").
/// The sum of what is live is the total at every step.
class TotalSteps {
 public:
  /// Where the memory belongs: to the program, or to its manager as segments "s1", "s2", ...
  TotalSteps(ImportRun& run, Layer layer, std::uint64_t& last_segment) noexcept
      : run_(run), layer_(layer), last_segment_(last_segment) {}

  /// Emits what leads to `total`. `at` has the members that every operation gets. `preexisting`
  /// memory was there before the recording.
  Status step(const Operation& at, std::uint64_t total, bool preexisting = false);

  std::uint64_t total() const noexcept { return total_; }
  std::uint64_t blocks() const noexcept { return blocks_.size(); }

 private:
  struct Block {
    std::uint64_t id = 0, size = 0;
  };
  Status begin(const Operation& at, std::uint64_t size, bool preexisting, bool has_row);
  Status end(const Operation& at, const Block& block);
  Status emit(Operation& made, std::uint64_t id);

  ImportRun& run_;
  Layer layer_;
  std::uint64_t& last_segment_;
  std::vector<Block> blocks_;
  std::uint64_t total_ = 0;
  std::string name_, extension_;
};

/// Adds `"name":value` to an operation's "x-" members. `text` holds them, and must outlive it.
void add_extension(Operation& operation, std::string& text, std::string_view member);

}  // namespace emm::trace
