#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Where the ranks of a communicator meet: a file in the folder of the program, which each of them
/// maps. Only the rank itself writes to its cell, and nobody holds a lock, so that a rank which is
/// killed leaves nothing half done.
namespace emm::standin::nccl {

// ncclResult_t
inline constexpr int kSuccess = 0, kCudaError = 1, kSystemError = 2, kInvalidArgument = 4,
                     kInvalidUsage = 5, kRemoteError = 6;

enum class Kind : std::uint32_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  receive,
  split,
  shrink,
  count
};
/// "AllReduce"
const char* name_of(Kind kind) noexcept;

/// Values of a larger piece are not exchanged.
inline constexpr std::uint64_t kMostExchanged = std::uint64_t{1} << 20;

/// How well the values of a piece are known; 3 is not at all.
inline constexpr std::int32_t kKnown = 0, kAssumed = 2, kUnknown = 3;

/// A rank's part in a collective: what it called.
struct CollectiveCall {
  Kind kind = Kind::count;
  std::int32_t type = 0, operation = 0, root = 0;
  std::uint64_t count = 0;
  std::int32_t level = kKnown;
  std::int32_t colour = 0, key = 0;  // of a split
  std::uint64_t content = 0;         // bytes that lie beside it
};
/// "AllReduce of 4 float32, sum"
std::string words_of(const CollectiveCall& part);

/// A process, by its number and the time of its start.
struct ProcessName {
  std::int32_t number = 0;
  std::uint64_t began = 0;
};
ProcessName this_process();
bool is_alive(const ProcessName& process);
/// When the process of that number began; 0 if there is none.
std::uint64_t began_of(int process);

/// Why a communicator cannot go on.
struct Failure {
  int status = 0;  ///< ncclResult_t
  std::string words{};
};

class Meeting {
 public:
  /// Which of a rank's two sorts of parts: those of streams, or those that make communicators.
  enum class Sort { collective, making };

  /// Enters as `rank` of `size`. `shown` is the rank in the whole program, and `members` has that
  /// of each where some do not run; else it is empty. Null, with the reason, if that cannot be.
  static std::unique_ptr<Meeting> enter(const std::string& name, int size, int rank, int shown,
                                        const std::vector<int>& members, Failure& why);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::string& name() const noexcept { return name_; }
  int size() const noexcept { return size_; }
  int rank() const noexcept { return rank_; }
  /// The rank in the whole program.
  int shown(int rank) const noexcept;
  /// Does the rank not run? It is answered for: its parts and values are this rank's.
  bool is_absent(int rank) const noexcept {
    return !absent_.empty() && absent_[static_cast<std::size_t>(rank)] != 0;
  }
  bool has_absent() const noexcept { return !absent_.empty(); }
  const std::vector<int>& members() const noexcept { return members_; }
  /// "rank 3 (process 4711)"
  std::string words_of_rank(int rank) const;
  /// "ranks 0, 2 and 3"
  std::string words_of_all() const;
  std::string words_of_those(const std::function<bool(int rank)>& are_meant) const;

  /// Waits until all are there.
  std::optional<Failure> wait_for_all();
  /// Gives this rank's part in the `number`-th collective, counted from 1, with the values that it
  /// brings.
  void give(Sort sort, std::uint64_t number, const CollectiveCall& part,
            std::span<const std::byte> values);
  /// Waits until all have given theirs. They may be looked at until this rank gives its next one.
  std::optional<Failure> wait_for(Sort sort, std::uint64_t number);
  const CollectiveCall& part(Sort sort, std::uint64_t number, int rank) const noexcept;
  std::span<const std::byte> values(std::uint64_t number, int rank) const noexcept;

  /// Waits until `is_there`, which others make true and ring for. `has_come` tells it of a rank;
  /// one that ends before is the failure. `is_entry`: others may not have started.
  std::optional<Failure> wait(const std::function<bool()>& is_there,
                              const std::function<bool(int rank)>& has_come,
                              const std::string& in_what, bool is_entry = false);
  void ring() noexcept;
  /// Ends each wait of this process, now and later.
  void abort() noexcept;
  bool is_aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// This rank comes to nothing more.
  void leave(bool aborts) noexcept;

 private:
  struct Cell;
  struct Page;
  Meeting() = default;
  Cell& cell(int rank) const noexcept;
  std::byte* slot(std::uint64_t number, int rank) const noexcept;
  /// Why the rank will not come; nothing if it still may.
  std::optional<Failure> absence(int rank, const std::string& in_what) const;
  /// Why a rank that has not entered will not come; nothing if it still may.
  std::optional<Failure> absence_before(const std::string& in_what) const;

  std::string name_, path_;
  std::vector<int> members_;
  std::vector<char> absent_;  // of each rank; empty where all run
  int size_ = 0, rank_ = 0, file_ = -1;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t room_[2] = {};  // of this rank's slots, for which there is room in the file system
  std::atomic<bool> aborted_{false};
  bool has_left_ = false;
};

/// The folder of the program; empty outside of one.
const std::string& program_folder();

}  // namespace emm::standin::nccl
