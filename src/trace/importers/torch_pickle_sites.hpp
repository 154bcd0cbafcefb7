#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/pickle.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// Numbers from 1 by what they stand for: for looking up what was said before by a hash of it.
class NumberSet {
 public:
  /// The number with that hash that `same` accepts; `next`, and added, where there is none.
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

/// The call stacks of a snapshot as the trace's sites: each becomes one `define` with frames
/// "file:line name" where it is first named. A stack is looked at once, however many rows name it.
/// Stacks that say the same are one, among the first million of stacks and of frames: PyTorch
/// shares them anyway, and a set of them all would need more memory than they do.
class TorchPickleSites {
 public:
  TorchPickleSites(const format::Pickle& pickle, ImportRun& run);

  /// The number of the site that a row's "frames" are; 0 where there are none. May emit the define.
  Result<std::uint64_t> site(format::PickleValue frames);

 private:
  struct Text {
    std::uint32_t at = 0, size = 0;
    bool kept = false;  // in kept_, else in passing_
  };

  std::uint32_t frame_number(format::PickleValue frame);
  std::uint32_t stack_number(format::PickleValue frames);
  /// A word that is equal for frames that are known to say the same: the frame's number, or what no
  /// number is. False for what is no frame.
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
      numbers_;  // by identity, of a stack, or a frame with kFrame; 0: not looked at
  NumberSet frame_set_, stack_set_;
  std::vector<format::PickleValue> frames_, stacks_;  // by number, less one: the first that said so
  std::vector<Text> texts_;  // of frames; size 0: not written yet, or not kept
  std::string kept_, passing_;
  std::vector<format::PickleValue> at_hand_;  // the frames of the stack that is looked at
  std::vector<std::uint64_t> words_;          // and their words
  std::vector<Text> places_;
  std::vector<std::string_view> views_;
  std::uint32_t sites_ = 0;
};

}  // namespace emm::trace
