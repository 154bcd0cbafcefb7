#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conformance/model/operation.hpp"
#include "conformance/model/scripted_device.hpp"
#include "conformance/model/trail.hpp"
#include "driver/call.hpp"

namespace emm::model {

/// The contract's rules as numbers and choices. They follow the text of the clauses alone. Changing
/// one models a manager that is wrong in that one way.
///
/// Where a clause is a quirk (Q), numba() does as numba's code and standard() does the corrected
/// thing:
///
/// | clause       | standard                                     | numba
/// | ------------ | -------------------------------------------- | ------------------------------
/// | HST-3, PIN-2 | every host allocation and pin is retried     | only mapped ones
/// | HST-7, PIN-8 | what cannot be mapped is released at once, | the same: managers/README.md
/// |              | past the queue, with the mapping's error     | mends the leak in both
/// | HST-8        | pinned memory is queued with its size        | queued unsized
/// | PD-11        | a flush goes on past a free that fails and   | it stops there, the rest stays
/// |              | gives the first error; bytes are exact       | queued, no byte is subtracted
/// | DEV-7        | the allocation is retried all the same, and  | the flush's error is the
/// |              | the retry is the outcome                     | outcome; no retry
/// | INI-4        | a total of 0 is a total, asked for once      | asked for by each initialize
/// | INI-5, HST-9 | host-only asks for its capacity too          | it never does
/// | RST-5        | reset ends pinned memory and pins too, each  | they survive, their pointers
/// |              | at its place in the order of allocation      | are alive
/// | ERR-3        | the manager's end frees what is queued       | it is abandoned
///
/// Both assume the following, which the clauses leave open. Reset adds what it clears to the queue
/// record by record, so limits apply meanwhile (RST-2). get_device_pointer is never retried. Errors
/// inside reset and inside a pointer's end go to the observer, one by one. Freeing dead memory is
/// an error of the pointer itself (PTR-5, RST-6). Memory made before initialize meets an unset
/// capacity (PD-6). A flush is one record of the frees that it attempted, with the bytes counted
/// for them.
struct Rules {
  // The queue
  std::size_t count_limit = 10;
  double ratio = 0.2;
  bool count_limit_flushes = false;             ///< At the limit, not only above it (wrong: PD-2).
  bool bytes_limit_flushes = false;             ///< Likewise (wrong: PD-2).
  bool rounds_limit = false;                    ///< It rounds to nearest, not down (wrong: PD-4).
  bool newest_first = false;                    ///< (wrong: PD-8)
  bool flushes_to_limit_only = false;           ///< (wrong: PD-9)
  bool flush_leaves_what_is_added = false;      ///< Those added meanwhile (wrong: PD-10).
  bool flushes_while_deferred = false;          ///< When a limit is exceeded (wrong: PD-13).
  bool out_of_memory_flushes_deferred = false;  ///< (wrong: DEV-5)
  bool flushes_at_end_of_deferral = false;      ///< (wrong: PD-14)
  bool deferral_nests = true;                   ///< (false is wrong: PD-12)
  bool failed_free_stops_flush = false;         ///< PD-11
  bool unset_capacity_is_no_limit = false;      ///< (wrong: PD-6)

  // Allocation
  int retries = 1;                       ///< (other than 1 is wrong: DEV-3)
  bool retry_flushes = true;             ///< (false is wrong: DEV-3)
  bool any_error_retries = false;        ///< (wrong: DEV-4)
  bool retries_while_deferred = true;    ///< (false is wrong: DEV-5)
  bool failed_flush_is_outcome = false;  ///< DEV-7
  bool unmapped_retries = true;          ///< HST-3, PIN-2
  bool mapping_failure_leaks = false;    ///< As numba's code (wrong: HST-7, PIN-8).
  bool managed_retries = true;           ///< (false is wrong: MAN-2)
  bool device_memory = true;             ///< False for host-only: memalloc is not supported.

  // Ends
  bool pinned_is_sized = true;          ///< HST-8
  bool mapped_is_sized = true;          ///< (false is wrong: HST-5)
  bool unpin_is_queued = false;         ///< (wrong: PIN-5)
  bool frees_at_once = false;           ///< (wrong: DEV-9)
  bool reset_ends_untracked = true;     ///< RST-5
  bool reset_flushes_first = false;     ///< Flushes before it adds its records (wrong: RST-2).
  bool reset_flushes_deferred = false;  ///< (wrong: RST-8)
  bool end_abandons_queue = false;      ///< ERR-3
  bool reset_leaves_queue = false;      ///< (wrong: RST-2)

  // Capacity
  bool zero_total_is_unset = false;     ///< INI-4
  bool initialize_asks_always = false;  ///< (wrong: INI-3)
  bool initialize_asks = true;          ///< False for host-only in numba: INI-5.

  static Rules standard() { return {}; }
  static Rules numba();
  /// The rules of a HostOnly plugin that adds nothing.
  static Rules host_only(Rules rules);
};

/// Does what a manager with `rules` would do, as a plain program over integers.
class ContractModel final : public Subject {
 public:
  /// The arguments outlive the model. It pushes adds and flushes to `trail`.
  ContractModel(const Rules& rules, ScriptedDevice& device, Trail& trail);
  /// Prepares for another sequence, whose slots are below `slots`.
  void restart(int slots);

  Outcome perform(const Operation& operation) override;
  void drop(int slot) override;
  void finish() override;
  Pending pending() const override { return {queue_.size(), queued_bytes_}; }
  std::uint64_t live_bytes() const override { return live_bytes_; }

 private:
  enum class Kind : std::uint8_t {
    none,
    device,
    managed,
    pinned_host,
    mapped_host,
    pinned_region,
    mapped_region
  };
  struct Memory {
    Kind kind = Kind::none;
    bool alive = false;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
  };
  struct Item {
    Call dtor;
    std::uint64_t address;
    std::uint64_t size;  ///< 0 when it is not counted.
  };

  std::int32_t initialize();
  Outcome memalloc(const Operation& operation);
  Outcome memhostalloc(const Operation& operation);
  Outcome mempin(const Operation& operation);
  Outcome memallocmanaged(const Operation& operation);
  Outcome free(int slot);
  Outcome reset();
  void defer_cleanup();
  void end_defer_cleanup();
  Outcome get_memory_info();

  template <class Attempt>
  std::int32_t allocate(bool retries, Attempt&& attempt);
  Outcome keep(int slot, Kind kind, std::uint64_t address, std::uint64_t device_address,
               std::uint64_t size);
  Outcome map_host_memory(const Operation& operation, Kind kind, std::uint64_t address);
  /// Ends live memory, as its finalizer does.
  std::int32_t end(Memory& memory);

  std::int32_t add(Call dtor, const Memory& memory, bool sized);
  bool above_limits() const;
  std::int32_t clear(bool even_deferred, bool to_limit_only = false);
  std::int32_t destroy(const Item& item);

  Rules rules_;
  ScriptedDevice& device_;
  Trail& trail_;
  std::vector<Memory> slots_;
  std::vector<int> records_;  ///< Slots of live memory, in the order of allocation.
  std::vector<Item> queue_;
  std::uint64_t queued_bytes_ = 0;
  std::uint64_t live_bytes_ = 0;
  std::size_t deferred_ = 0;  ///< How many deferrals hold the queue.
  std::size_t guards_ = 0;    ///< How many guards callers hold.
  bool has_capacity_ = false;
  std::uint64_t capacity_ = 0;
};

}  // namespace emm::model
