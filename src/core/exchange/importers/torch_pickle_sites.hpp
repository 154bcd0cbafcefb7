#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"
#include "format/pickle.hpp"

namespace emm::trace {

/// A hash set of numbers from 1, each of which stands for a value. The hash is the value's.
class NumberSet {
 public:
  /// Returns the number with this hash that `same` accepts; otherwise adds and returns `next`.
  template <class Same>
  std::uint32_t intern(std::uint32_t hash, std::uint32_t next, const Same& same) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    for (auto at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      auto& slot = slots_[at];
      if (slot.number == 0) {
        slot = {.hash = hash, .number = next};
        ++count_;
        return next;
      }
      if (slot.hash == hash && same(slot.number)) return slot.number;
    }
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, number = 0;  // 0: free
  };
  void grow();

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

/// Turns the call stacks of a snapshot into the trace's sites. A stack becomes one `define`, with
/// frames "file:line name", where a row first names it. Each stack object is read once. Equal
/// stacks and equal frames share a number among the first million of each. PyTorch shares most of
/// them anyway, and a set of all would need more memory than the stacks themselves.
class TorchPickleSites {
 public:
  TorchPickleSites(const format::Pickle& pickle, ImportRun& run);

  /// The number of the site for a row's "frames"; 0 if it has none. May emit the `define`.
  Result<std::uint64_t> site(format::PickleValue frames);

 private:
  struct Text {
    std::uint32_t at = 0, size = 0;
    bool kept = false;  // in kept_; otherwise in passing_
  };

  std::uint32_t frame_number(format::PickleValue frame);
  std::uint32_t stack_number(format::PickleValue frames);
  /// Gives equal words to frames that are known to be equal: the number of the frame, or a value
  /// that is never a number. Returns false if the value is not a frame.
  bool word_of(format::PickleValue frame, std::uint64_t& word);
  Status define(std::uint32_t stack);
  void write(format::PickleValue frame, std::string& out) const;
  struct Frame {
    format::PickleValue file, line, name;
  };
  Frame read(format::PickleValue frame) const;

  const format::Pickle& pickle_;
  ImportRun& run_;
  struct Slots {
    std::optional<std::uint32_t> file, line, name;
  };
  std::vector<Slots> slots_;  // by shape
  std::vector<std::uint32_t>
      numbers_;  // by identity: the number of a stack, or of a frame with kFrame; 0: not read yet
  NumberSet frame_set_, stack_set_;
  std::vector<format::PickleValue> frames_, stacks_;  // by number - 1: the first with that content
  std::vector<Text> texts_;  // of frames; size 0: not written yet or not kept
  std::string kept_, passing_;
  std::vector<format::PickleValue> at_hand_;  // frames of the current stack
  std::vector<std::uint64_t> words_;          // words of the current stack's frames
  std::vector<Text> places_;
  std::vector<std::string_view> views_;
  std::uint32_t sites_ = 0;
};

}  // namespace emm::trace
