#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "standin/libraries/handles.hpp"
#include "standin/libraries/nccl/meeting.hpp"
#include "standin/libraries/nccl/pipe.hpp"
#include "standin/work.hpp"

namespace emm::standin::nccl {

/// What emmctl's Python package asks of the collectives of one operation: how well their results
/// are known. Any thread may call.
struct Ticket {
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

  std::mutex mutex;
  std::condition_variable changed;
  int level = kKnown;
  int given = 0, done = 0;      // collectives
  bool is_queued = false;       // no group holds them back
  std::vector<Handle> streams;  // of the collectives
  std::vector<Handle> marks;    // behind the operation, on these
};

/// A collective, a send or a receive, as a program called it.
struct Step {
  Kind kind = Kind::count;
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t count = 0;
  std::int32_t type = 0, operation = 0;
  std::int32_t root = 0;  // or the peer
  std::int32_t level = kKnown;
  std::vector<std::byte> factor{};  // of a sum that multiplies first
  const void* factor_at = nullptr;  // likewise, in memory of the device
  std::shared_ptr<Ticket> ticket{};
};

class Communicator;

/// Steps that are on a stream together. Those of one communicator are done in the order in which
/// they were put there, as NCCL does it.
struct Batch {
  std::shared_ptr<Communicator> communicator;
  std::vector<Step> steps;
  std::uint64_t turn = 0;  // 0: a graph's, which takes its turn when it runs
  work::Done done = std::make_shared<std::atomic<bool>>(false);
};

/// One rank of a communicator. Any thread may call.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int size, int rank, int device, void* context);

  /// Meets the other ranks. `shown` is the rank in the whole program, and `members` has that of
  /// each where some do not run.
  Status enter(const std::string& name, int shown, const std::vector<int>& members);
  int size() const noexcept { return size_; }
  int rank() const noexcept { return rank_; }
  int device() const noexcept { return device_; }
  void* context() const noexcept { return context_; }
  /// What went wrong; 0 while nothing has.
  Status error() const noexcept { return error_; }
  const Meeting* meeting() const noexcept { return meeting_.get(); }

  /// Puts the steps on the stream. Null where the device refuses; or if the stream is captured.
  Status put(Handle stream, std::vector<Step> steps, std::shared_ptr<Batch>& batch);
  /// Waits a while for the batch. In most programs the ranks come together, and what follows then
  /// finds it done; where they do not, the program goes on, as on a card, and the next wait of this
  /// communicator is shorter.
  void wait_a_while(const Batch& batch);

  /// Another communicator of those of the colour, ordered by the keys; null for no colour.
  Status split(int colour, int key, std::shared_ptr<Communicator>& made);
  /// Another one, without the ranks of `without`.
  Status shrink(const std::vector<int>& without, std::shared_ptr<Communicator>& made);

  /// Waits until what is on streams is done.
  void finish();
  void leave(bool aborts);

 private:
  static void run(void* batch);
  void perform(Batch& batch);
  std::optional<Failure> collect(const Step& step);
  std::optional<Failure> transfer(std::vector<Step*>& steps);
  bool receive_of_absent(const Step& step, const std::vector<Step*>& all);
  struct Transfer;
  std::optional<Failure> advance(std::vector<Transfer>& all);
  Pipe* pipe(int from, int to);
  Status fail(const Failure& failure);
  std::uint64_t whole_bytes(const Step& step) const noexcept;
  std::int32_t read_values(const Step& step, const void* from, std::vector<std::byte>& values,
                           std::uint64_t bytes) const;

  const int size_, rank_, device_;
  void* const context_;
  std::unique_ptr<Meeting> meeting_;
  std::uint64_t noted_ = ~std::uint64_t{0};  // its number in this process's report
  std::atomic<Status> error_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_turn_ = 0, turns_done_ = 0;
  std::uint64_t collectives_ = 0, makings_ = 0;  // the number of the last one
  bool is_running_ = false;
  int patience_ms_;  // how long the next call waits for the others
  std::map<std::pair<int, int>, std::unique_ptr<Pipe>> pipes_;
};

/// What a rank of a program is: the launcher's word, or the rank of its first communicator.
int shown_rank(int rank);
/// The words of the last error.
const char* last_error() noexcept;
void set_last_error(const std::string& words);
/// Tells emmctl what ended in an error.
void tell(const char* kind, const std::string& words);
/// Runs on a thread of ours, where no signal handler of the program runs.
void on_own_thread(std::function<void()> call);

}  // namespace emm::standin::nccl
