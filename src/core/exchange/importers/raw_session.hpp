#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exchange/importers/address_book.hpp"
#include "exchange/importers/import_run.hpp"
#include "raw/raw.hpp"

namespace emm::trace {

struct RawCall {
  record::CallRecord record;
  std::uint32_t thread = 0;
  std::uint32_t site = 0;     ///< The number of the call stack in the recording; 0: none.
  std::uint64_t request = 0;  ///< The number of the request that caused the call; 0: none.
};

/// The call stacks of a recording: frame numbers by stack number, and texts by frame number.
struct RawSites {
  std::unordered_map<std::uint32_t, std::string> texts;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks;
};

/// Turns the driver's calls into operations, in the order of the calls. Each handle or address
/// becomes an id, and a new id whenever the driver hands it out again.
class RawSession {
 public:
  RawSession(ImportRun& run, const record::FileHeader& header, const RawSites& sites);

  /// Takes ImportOptions::requests, which must outlive this object.
  void go_beneath(const RequestPlaces& places) noexcept { places_ = &places; }
  Status take(const RawCall& call);
  Status gap(std::uint64_t lost, std::string_view reason);
  Result<ImportCounts> finish(std::uint64_t lost);

 private:
  /// Live memory: its id and where it was made.
  struct Live {
    std::uint64_t id = 0, size = 0;
    std::uint8_t context = 0, device = 0;
    bool managed = false;
  };
  /// Physical memory is live while its handle is held or a mapping of it exists.
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
  Operation common(const record::CallRecord& record, Op op);
  void put_place(Operation& operation, std::uint8_t context, std::uint8_t device);
  /// Where memory is, not who asked for it.
  struct Place {
    std::uint8_t context = 0, device = 0;
  };
  void move_to(Operation& operation, Place place);
  Place place_on(const record::CallRecord& record, std::uint64_t device) const;
  void put_stream(Operation& operation, const record::CallRecord& record);
  void put_result(Operation& operation, const record::CallRecord& record) const;
  void put_beneath(Operation& operation, const record::CallRecord& record) const;
  Status define_site(std::uint32_t number);
  void put_preexisting(Operation& operation, const record::CallRecord& record) const;
  Status emit(Operation& operation);
  /// Emits an operation of a kind that only this recorder knows.
  Status extension(const record::CallRecord& record, std::string_view name, std::string members);

  // Each takes the calls of one kind, and returns nothing of a call of another kind.
  std::optional<Status> take_memory(const record::CallRecord& record);
  std::optional<Status> take_pool(const record::CallRecord& record);
  std::optional<Status> take_physical(const record::CallRecord& record);
  std::optional<Status> take_stream_order(const record::CallRecord& record);
  std::optional<Status> take_graph(const record::CallRecord& record);
  std::optional<Status> take_context(const record::CallRecord& record);
  Status keep(const record::CallRecord& record);
  void note_foreign(const record::CallRecord& record);
  Status pass_over();
  Status leave_out();
  /// The name of a pool; "default" for a device's default pool.
  std::string pool_name(std::uint64_t pool);
  std::string stream_or_legacy(std::uint64_t handle);
  std::uint64_t device_of(const record::CallRecord& record) const;

  static std::uint64_t begin_of_overlapped(const Book& book, std::uint64_t address,
                                           std::uint64_t size);
  Status allocate(const record::CallRecord& record, Op op, Book& book, std::string_view api);
  Status free(const record::CallRecord& record, Book& book, std::string_view api);
  Status pool_operation(const record::CallRecord& record, Op op);
  Status stream_operation(const record::CallRecord& record, Op op);
  Status event_operation(const record::CallRecord& record);
  Status export_handle(const record::CallRecord& record);
  Status create_physical(const record::CallRecord& record);
  Status end_physical(const record::CallRecord& record, std::uint64_t handle);
  Status unmap(const record::CallRecord& record);
  Status reserve(const record::CallRecord& record);
  Status map(const record::CallRecord& record);
  /// Sets the reserved range of the address, and its offset there. Returns false if no range has
  /// it.
  bool put_range(Operation& operation, std::uint64_t address);
  Status graph_operation(const record::CallRecord& record, Op op, std::uint64_t graph);
  Status peer_operation(const record::CallRecord& record, Op op);
  Status end_context(const record::CallRecord& record, Op op, std::uint8_t context);
  /// Handles a new start of the recording, which lists all live memory again.
  Status begin_window(const record::CallRecord& record);
  Status refused(const record::CallRecord& record, std::string_view name);
  std::uint8_t primary_context(std::uint64_t device) const;

  std::string stream_name(std::uint64_t handle);
  /// A stream is new: returns the number in its name.
  std::uint64_t number_stream(std::uint64_t handle);
  /// The stream of a call. A thread's own default stream has one handle in all threads, so the
  /// thread stands for it: no handle is so large a number.
  std::uint64_t lane_of(const record::CallRecord& record) const noexcept {
    constexpr std::uint64_t kPerThread = 2;  // CU_STREAM_PER_THREAD
    return record.stream == kPerThread ? ~thread_ : record.stream;
  }
  bool is_captured(const record::CallRecord& record) const {
    return !capturing_.empty() && capturing_.count(lane_of(record)) != 0;
  }

  ImportRun& run_;
  const record::FileHeader& header_;
  const RawSites& sites_;
  std::unordered_set<std::uint32_t> defined_;  // numbers of sites
  std::uint32_t site_ = 0;                     // of the current call
  std::uint64_t request_ = 0;                  // of the current call
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
  std::deque<std::uint64_t> ended_streams_;  // their numbers, the longest ended first
  std::unordered_map<std::uint64_t, std::uint64_t> events_;     // their last record
  std::unordered_map<std::uint64_t, std::uint64_t> primaries_;  // by device: the newest handle
  std::unordered_set<std::uint64_t> created_;                   // contexts, by handle
  std::unordered_set<std::uint64_t> captured_events_;
  std::unordered_map<std::uint64_t, std::uint64_t> capturing_events_;
  std::unordered_map<std::uint64_t, std::uint64_t> graph_of_;       // of a capture, by its stream
  std::unordered_map<std::uint64_t, std::uint64_t> executables_;    // their graphs
  std::unordered_map<std::uint64_t, std::uint64_t> capturing_;      // streams: whose capture it is
  std::unordered_map<std::uint64_t, std::uint64_t> default_pools_;  // their devices
  std::unordered_map<std::uint64_t, std::uint64_t> pool_devices_;   // of those that were made
  std::unordered_set<std::uint64_t> host_pools_;                    // of host memory
  std::unordered_map<std::uint64_t, std::uint64_t> current_pools_;  // by device, where it was set
  std::unordered_map<std::uint64_t, std::uint64_t> attached_;       // contexts: how often
  // Memory of others: what was imported, multicasts, what external memory is mapped to, and what
  // pools of the host gave.
  std::unordered_set<std::uint64_t> foreign_memory_, foreign_events_;
  std::unordered_map<std::uint64_t, std::uint64_t>
      foreign_handles_;  // number of times that each is held
  std::map<std::uint64_t, std::uint64_t> retained_;
  std::uint64_t stream_count_ = 0, pool_count_ = 0, record_count_ = 0, graph_count_ = 0;
  std::uint64_t ended_contexts_ = 0, window_ = 0;
  std::vector<std::uint32_t> generations_;  // by context: the number of times it ended

  // Texts that an operation refers to until the sink has taken it.
  std::string stream_text_, pool_text_, context_text_, handle_text_, buffer_text_, range_text_,
      graph_text_, members_;
  std::uint64_t live_again_ = 0, failed_ = 0, unknown_calls_ = 0;
};

}  // namespace emm::trace
