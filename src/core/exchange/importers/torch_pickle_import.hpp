#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/torch_pickle_baseline.hpp"
#include "exchange/importers/torch_pickle_rows.hpp"
#include "exchange/importers/torch_pickle_sites.hpp"
#include "exchange/importers/torch_session.hpp"
#include "format/pickle.hpp"

namespace emm::trace {

/// The import of one PyTorch snapshot, in two walks over its rows. The first finds out what existed
/// before them. The second makes operations and merges several devices by time.
class TorchPickleImport {
 public:
  TorchPickleImport(const format::Pickle& pickle, ImportRun& run)
      : pickle_(pickle), run_(run), rows_(pickle), sites_(pickle, run) {}

  Result<ImportCounts> read();

 private:
  /// The next row of a device.
  struct Head {
    TorchRow row;
    format::PickleValue frames, metadata, category, pool, context;
  };
  struct Device {
    format::PickleValue rows;
    format::Pickle::Elements each;
    std::uint64_t row = 0;         // rows that `each` has given
    std::uint64_t whole_rows = 0;  // rows that count
    std::size_t segment_rows = 0;  // segment rows given
    std::uint32_t alloc_rows = 0;  // alloc rows given
    std::optional<Head> head;
    TorchBaseline before;
    TorchState state;
    std::unique_ptr<TorchSession> session;
  };
  struct Annotation {
    std::uint64_t time_us = 0;
    Phase phase = Phase::instant;
    std::string_view name;
    std::optional<std::uint32_t> device;
  };

  bool is_sequence(format::PickleValue value) const;
  bool is_snapshot(format::PickleValue value) const;
  /// The state's segments: a member of a snapshot, or all of what memory_snapshot() returns.
  format::PickleValue segments_of(format::PickleValue value) const;
  Status find_root();
  Status find_devices();
  void find_cut();
  Status find_before();
  Status find_state();
  Status header();
  Status before();
  Status rows();
  Status advance(std::uint32_t number, Device& device);
  Status emit(Device& device);
  void annotations();
  Status annotate();
  Status bad_row(std::uint32_t number, const Device& device);
  Status say(std::uint32_t number, Device& device);
  bool is_after_cut(const TorchRow& row) const;
  Status find_site(TorchMemory& memory);
  void say_cut();
  Error wrong(std::string_view what, std::string_view expected) const;

  const format::Pickle& pickle_;
  ImportRun& run_;
  format::PickleValue root_;  // the snapshot
  TorchPickleRows rows_;
  TorchPickleSites sites_;
  TorchNumbers numbers_;
  std::map<std::uint32_t, Device> devices_;
  std::vector<Annotation> annotations_;
  std::size_t annotated_ = 0;
  std::vector<std::string_view> categories_;
  std::map<std::string, std::uint64_t> unknown_actions_;
  format::PickleValue no_context_;  // means "no compile context"
  std::uint64_t forward_frames_ = 0;
  std::string extension_;
  bool overflowed_ = false, has_segments_ = false;
  /// Where the file was cut. If it was, the rows do not lead to the state at the end.
  enum class Cut : std::uint8_t { nowhere, in_state, in_rows, behind_rows } cut_ = Cut::nowhere;
  std::uint32_t cut_device_ = 0;
  std::optional<std::uint64_t> cut_us_;  // time of the last row of the device whose rows were cut
  std::uint64_t after_cut_ = 0;
};

}  // namespace emm::trace
