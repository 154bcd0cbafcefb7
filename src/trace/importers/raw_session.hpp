#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "record/raw.hpp"
#include "trace/importers/address_book.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

struct RawCall {
  record::Record record;
  std::uint32_t thread = 0;
  std::uint32_t site = 0;     ///< The number of its call stack in the recording; 0: none.
  std::uint64_t request = 0;  ///< The number of the request that caused it; 0: none.
};

/// The call stacks of a recording, by number: their frames' numbers, and the frames' texts.
struct RawSites {
  std::unordered_map<std::uint32_t, std::string> texts;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks;
};

/// Takes the driver's calls in their order and makes operations of them. A handle or an address
/// becomes an id, and a new one each time that the driver hands it out again.
class RawSession {
 public:
  RawSession(ImportRun& run, const record::FileHeader& header, const RawSites& sites);

  /// What ImportOptions::requests says, which outlives this.
  void go_beneath(const RequestPlaces& places) noexcept { places_ = &places; }
  Status take(const RawCall& call);
  Status gap(std::uint64_t lost, int reason);
  Result<ImportCounts> finish(std::uint64_t lost);

 private:
  /// Memory that lives: its id, and where it was made.
  struct Live {
    std::uint64_t id = 0, size = 0;
    std::uint8_t context = 0, device = 0;
    bool managed = false;
  };
  /// Physical memory lives as long as its handle is held or it is mapped.
  struct Physical {
    Live live;
    std::uint64_t mappings = 0;
    std::uint64_t handles = 1;
  };
  struct MappedRange {
    std::uint64_t size = 0, handle = 0;
  };
  using Book = std::map<std::uint64_t, Live>;

  std::uint64_t ns_of(std::uint64_t ticks) const noexcept;
  Operation common(const record::Record& record, Op op);
  void put_place(Operation& operation, std::uint8_t context, std::uint8_t device);
  void put_stream(Operation& operation, const record::Record& record);
  void put_result(Operation& operation, const record::Record& record) const;
  void put_beneath(Operation& operation, const record::Record& record) const;
  Status define_site(std::uint32_t number);
  void put_preexisting(Operation& operation, const record::Record& record) const;
  Status emit(Operation& operation);
  /// An operation of a kind that only this recorder knows.
  Status extension(const record::Record& record, std::string_view name, std::string members);

  Status allocate(const record::Record& record, Op op, Book& book, std::string_view api);
  Status free(const record::Record& record, Book& book, std::string_view api);
  Status pool_operation(const record::Record& record, Op op);
  Status stream_operation(const record::Record& record, Op op);
  Status event_operation(const record::Record& record);
  Status export_handle(const record::Record& record);
  Status create_physical(const record::Record& record);
  Status end_physical(const record::Record& record, std::uint64_t handle);
  Status unmap(const record::Record& record);
  Status reserve(const record::Record& record);
  Status map(const record::Record& record);
  /// Says where in a reserved range the address lies; false where it lies in none.
  bool put_range(Operation& operation, std::uint64_t address);
  Status graph_operation(const record::Record& record, Op op, std::uint64_t graph);
  Status peer_operation(const record::Record& record, Op op);
  Status end_context(const record::Record& record, Op op, std::uint8_t context);
  /// Recording begins again: what lived is told anew.
  Status begin_window(const record::Record& record);
  Status refused(const record::Record& record, std::string_view name);
  std::uint8_t primary_context(std::uint64_t device) const;

  std::string stream_name(std::uint64_t handle);
  bool is_captured(const record::Record& record) const {
    return !capturing_.empty() && capturing_.count(record.stream) != 0;
  }

  ImportRun& run_;
  const record::FileHeader& header_;
  const RawSites& sites_;
  std::unordered_set<std::uint32_t> defined_;  // sites
  std::uint32_t site_ = 0;                     // of the call that is taken
  std::uint64_t request_ = 0;                  // likewise
  const RequestPlaces* places_ = nullptr;
  double ns_per_tick_ = 1;
  std::uint64_t thread_ = 0, default_thread_ = 0;
  bool any_ = false, several_contexts_ = false;

  Book device_memory_, host_memory_, registered_;
  std::unordered_map<std::uint64_t, Physical> physical_;
  struct Range {
    std::uint64_t number = 0, size = 0;
  };
  std::map<std::uint64_t, MappedRange> mappings_;
  std::map<std::uint64_t, Range> ranges_;
  std::uint64_t range_count_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> buffers_;
  std::unordered_map<std::uint64_t, std::uint64_t> streams_, pools_, graphs_;  // by handle: numbers
  std::unordered_map<std::uint64_t, std::uint64_t> events_;                    // their last record
  std::unordered_set<std::uint64_t> captured_events_;
  std::unordered_map<std::uint64_t, std::uint64_t> capturing_events_;
  std::unordered_map<std::uint64_t, std::uint64_t> graph_of_;     // of a capture, by its stream
  std::unordered_map<std::uint64_t, std::uint64_t> executables_;  // their graphs
  std::unordered_map<std::uint64_t, std::uint64_t> capturing_;    // streams: whose capture it is
  std::unordered_set<std::uint64_t> default_pools_;
  std::map<std::uint64_t, std::uint64_t> retained_;
  std::uint64_t stream_count_ = 0, pool_count_ = 0, record_count_ = 0, graph_count_ = 0;
  std::uint64_t ended_contexts_ = 0, window_ = 0;
  std::vector<std::uint32_t> generations_;  // of each context: how often it has ended

  // Text that operations point to until they are given to the sink.
  std::string stream_text_, pool_text_, context_text_, handle_text_, buffer_text_, range_text_,
      graph_text_, members_;
  std::uint64_t live_again_ = 0, failed_ = 0, unknown_calls_ = 0;
};

}  // namespace emm::trace
