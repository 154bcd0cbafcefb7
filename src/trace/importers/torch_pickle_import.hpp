#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/pickle.hpp"
#include "trace/importers/import_run.hpp"
#include "trace/importers/torch_pickle_baseline.hpp"
#include "trace/importers/torch_pickle_rows.hpp"
#include "trace/importers/torch_pickle_sites.hpp"
#include "trace/importers/torch_session.hpp"

namespace emm::trace {

/// One PyTorch snapshot on its way into a trace. Two walks over the rows: the first finds what was
/// there before them, the second makes operations, those of several devices in the order of their
/// times.
class TorchPickleImport {
 public:
  TorchPickleImport(const format::Pickle& pickle, ImportRun& run)
      : pickle_(pickle), run_(run), rows_(pickle), sites_(pickle, run) {}

  Result<ImportCounts> read();

 private:
  /// The row that is next of a device.
  struct Head {
    TorchRow row;
    format::PickleValue frames, metadata, category, pool, context;
  };
  struct Device {
    format::PickleValue rows;
    format::Pickle::Elements each;
    std::uint64_t row = 0;         // of each: how many were given
    std::uint64_t whole_rows = 0;  // those that count
    std::size_t segment_rows = 0;  // how many were given
    std::uint32_t alloc_rows = 0;  // the same
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
  TorchPickleRows rows_;
  TorchPickleSites sites_;
  TorchNumbers numbers_;
  std::map<std::uint32_t, Device> devices_;
  std::vector<Annotation> annotations_;
  std::size_t annotated_ = 0;
  std::vector<std::string_view> categories_;
  std::map<std::string, std::uint64_t> unknown_actions_;
  format::PickleValue no_context_;  // what the last row that has no compile context says
  std::uint64_t forward_frames_ = 0;
  std::string extension_;
  bool overflowed_ = false, has_segments_ = false;
  /// The place where the file was cut: the state at the end and the rows cannot be joined then.
  enum class Cut : std::uint8_t { nowhere, in_state, in_rows, behind_rows } cut_ = Cut::nowhere;
  std::uint32_t cut_device_ = 0;
  std::optional<std::uint64_t>
      cut_us_;  // the time of the last row of the device whose rows were cut
  std::uint64_t after_cut_ = 0;
};

}  // namespace emm::trace
