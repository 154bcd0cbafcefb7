#include "standin/libraries/nccl/communicator.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <thread>

#include "standin/launched.hpp"
#include "standin/libraries/nccl/reduce.hpp"
#include "standin/libraries/nccl/watch.hpp"

extern "C" {
int cuCtxGetCurrent(void**);
int cuCtxSetCurrent(void*);
void emm_standin_note_rank(int rank, int ranks);
void emm_standin_note_answered(int copies, int nothing);
std::uint64_t emm_standin_note_communicator(int ranks);
void emm_standin_note_use(std::uint64_t communicator, int sends);
}

namespace emm::standin::nccl {
namespace {

Address address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

std::mutex words_mutex;
/// All of them, since a program may keep a pointer to one.
std::deque<std::string>& all_words() {
  static auto& words = *new std::deque<std::string>{""};
  return words;
}

/// Threads that wait for others to do their part. An idle one takes the next call.
struct Crew {
  std::mutex mutex;
  std::condition_variable called;
  std::deque<std::function<void()>> calls;
  std::size_t idle = 0;
};
Crew& crew() {
  static auto& made = *new Crew;
  return made;
}
void work_in_crew() {
  auto& all = crew();
  std::unique_lock lock(all.mutex);
  for (;;) {
    ++all.idle;
    constexpr auto kIdle = std::chrono::seconds(10);  // a thread that has no call for so long ends
    const bool is_called = all.called.wait_for(lock, kIdle, [&] { return !all.calls.empty(); });
    --all.idle;
    if (!is_called) return;
    const auto call = std::move(all.calls.front());
    all.calls.pop_front();
    lock.unlock();
    call();
    lock.lock();
  }
}

/// The calling thread is in the context while it lives.
class InContext {
 public:
  explicit InContext(void* context) {
    (void)cuCtxGetCurrent(&before_);
    if (before_ != context) (void)cuCtxSetCurrent(context);
    changed_ = before_ != context;
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    if (changed_) (void)cuCtxSetCurrent(before_);
  }

 private:
  void* before_ = nullptr;
  bool changed_ = false;
};

bool is_transfer(Kind kind) { return kind == Kind::send || kind == Kind::receive; }
bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}
/// Do the values of one rank alone matter?
bool is_from_root(Kind kind) { return kind == Kind::broadcast || kind == Kind::scatter; }

}  // namespace

int shown_rank(int rank) {
  static const int known = launched().rank;
  return known >= 0 ? known : rank;
}

const char* last_error() noexcept {
  const std::lock_guard lock(words_mutex);
  return all_words().back().c_str();
}
void set_last_error(const std::string& words) {
  const std::lock_guard lock(words_mutex);
  if (all_words().back() != words) all_words().push_back(words);
}

void tell(const char* kind, const std::string& words) {
  const int file = ::open((program_folder() + "/ranks.said").c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  const auto line = std::string(kind) + '\t' + words + '\n';
  (void)!::write(file, line.data(), line.size());
  ::close(file);
}

void on_own_thread(std::function<void()> call) {
  auto& all = crew();
  const std::lock_guard lock(all.mutex);
  all.calls.push_back(std::move(call));
  if (all.idle >= all.calls.size()) {
    all.called.notify_one();
    return;
  }
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread(work_in_crew).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Ticket::~Ticket() {
  for (const auto mark : marks) emm_standin_drop(mark);
}

Communicator::Communicator(int size, int rank, int device, void* context)
    : size_(size), rank_(rank), device_(device), context_(context) {
  static const int patience_ms = [] {
    // What a call waits for its batch, which other ranks may hold up, before it returns.
    constexpr int kPatienceMs = 5000;
    const char* const given = std::getenv("EMM_STANDIN_TOGETHER");  // tests set another one
    return given != nullptr ? std::atoi(given) : kPatienceMs;
  }();
  patience_ms_ = patience_ms;
}

Status Communicator::fail(const Failure& failure) {
  Status none = 0;
  if (error_.compare_exchange_strong(none, failure.status)) {
    set_last_error(failure.words);
    if (meeting_ == nullptr || !meeting_->is_aborted()) {
      tell(failure.status == kInvalidUsage ? "mismatch" : "gone", failure.words);
    }
  }
  return failure.status;
}

Status Communicator::enter(const std::string& name, int shown, const std::vector<int>& members) {
  Failure why;
  meeting_ = Meeting::enter(name, size_, rank_, shown, members, why);
  if (meeting_ == nullptr) return fail(why);
  emm_standin_note_rank(shown, size_);
  if (size_ > 1) noted_ = emm_standin_note_communicator(size_);
  is_rank(shown);
  if (auto failure = meeting_->wait_for_all()) return fail(*failure);
  return kSuccess;
}

Status Communicator::put(Handle stream, std::vector<Step> steps, std::shared_ptr<Batch>& batch) {
  if (const auto known = error(); known != 0) return known;
  const InContext in(context_);
  auto made = std::make_shared<Batch>(Batch{shared_from_this(), std::move(steps)});
  auto* const kept = new std::shared_ptr<Batch>(made);  // run() ends it, unless a graph has it
  Handle mark = 0;
  {
    const std::lock_guard lock(mutex_);
    made->turn = last_turn_ + 1;
    if (emm_standin_put_work(stream, run, kept, &made->done, &mark) != 0) {
      delete kept;
      return kCudaError;
    }
    if (mark == 0) {  // captured
      made->turn = 0;
      return kSuccess;
    }
    ++last_turn_;
  }
  for (auto& step : made->steps) {
    if (step.ticket == nullptr) continue;
    const std::lock_guard lock(step.ticket->mutex);
    step.ticket->is_queued = true;
  }
  on_own_thread([mark, stream, context = context_] {
    emm_standin_finish(mark);
    // What was put behind it meanwhile, such as the record of an event, is done as on a card.
    const InContext in_its(context);
    Handle rest = 0;
    if (emm_standin_mark(stream, &rest) == 0) emm_standin_finish(rest);
  });
  batch = std::move(made);
  return kSuccess;
}

void Communicator::wait_a_while(const Batch& batch) {
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return batch.done->load(std::memory_order_acquire); };
  if (changed_.wait_for(lock, std::chrono::milliseconds(patience_ms_), is_done)) return;
  constexpr int kLeast = 10;  // ms: a batch after one that was waited for in vain waits less
  patience_ms_ = std::max(patience_ms_ / 4, kLeast);
}

void Communicator::run(void* argument) {
  auto* const kept = static_cast<std::shared_ptr<Batch>*>(argument);
  const auto batch = *kept;
  auto& self = *batch->communicator;
  auto turn = batch->turn;
  if (turn != 0) delete kept;
  {
    std::unique_lock lock(self.mutex_);
    if (turn == 0) turn = ++self.last_turn_;
    self.changed_.wait(lock, [&] { return self.turns_done_ + 1 == turn || self.error_ != 0; });
    self.is_running_ = true;
  }
  if (self.error_ == 0) self.perform(*batch);
  const std::lock_guard lock(self.mutex_);
  for (auto& step : batch->steps) {
    if (step.ticket == nullptr) continue;
    const std::lock_guard ticket_lock(step.ticket->mutex);
    if (self.error_ != 0) step.ticket->level = kUnknown;
    ++step.ticket->done;
    step.ticket->changed.notify_all();
  }
  self.is_running_ = false;
  self.turns_done_ = std::max(self.turns_done_, turn);
  batch->done->store(true, std::memory_order_release);
  self.changed_.notify_all();
}

void Communicator::perform(Batch& batch) {
  std::vector<Step*> transfers;
  for (auto& step : batch.steps) {
    if (is_transfer(step.kind)) transfers.push_back(&step);
  }
  if (transfers.size() < batch.steps.size()) emm_standin_note_use(noted_, 0);
  if (!transfers.empty()) emm_standin_note_use(noted_, 1);
  for (const auto& step : batch.steps) {
    if (is_transfer(step.kind)) continue;
    if (const auto failure = collect(step)) {
      fail(*failure);
      return;
    }
  }
  if (transfers.empty()) return;
  if (const auto failure = transfer(transfers)) fail(*failure);
}

std::uint64_t Communicator::whole_bytes(const Step& step) const noexcept {
  const auto one = step.count * size_of(step.type);
  switch (step.kind) {
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::all_to_all:
    case Kind::gather:
    case Kind::scatter:
      return one * static_cast<std::uint64_t>(size_);
    default:
      return one;
  }
}

/// How well the values are known that the step brings.
std::int32_t Communicator::read_values(const Step& step, const void* from,
                                       std::vector<std::byte>& values, std::uint64_t bytes) const {
  if (step.level == kUnknown) return kUnknown;
  values.resize(bytes);
  if (emm_standin_read(address(from), values.data(), bytes) != 0) {
    values.clear();
    return kUnknown;
  }
  auto factor = step.factor;
  if (step.factor_at != nullptr) {
    factor.resize(size_of(step.type));
    if (emm_standin_read(address(step.factor_at), factor.data(), factor.size()) != 0)
      return kUnknown;
  }
  if (!factor.empty()) scale(step.type, values, factor);
  return step.level;
}

std::optional<Failure> Communicator::collect(const Step& step) {
  using Sort = Meeting::Sort;
  const auto number = ++collectives_;
  const auto whole = whole_bytes(step), one = step.count * size_of(step.type);
  const bool is_small = whole <= kMostExchanged;
  const bool is_sum_of_products = !step.factor.empty() || step.factor_at != nullptr;
  CollectiveCall own{.kind = step.kind,
                     .type = step.type,
                     .operation = is_sum_of_products ? sum : step.operation,
                     .root = step.root,
                     .count = step.count};
  std::vector<std::byte> values;
  if (is_small && (!is_from_root(step.kind) || rank_ == step.root)) {
    const bool brings_all = step.kind == Kind::reduce_scatter || step.kind == Kind::all_to_all ||
                            step.kind == Kind::scatter;
    own.level = read_values(step, step.from, values, brings_all ? whole : one);
  } else if (!is_small) {
    own.level = kUnknown;
  }
  meeting_->give(Sort::collective, number, own, values);
  if (auto failure = meeting_->wait_for(Sort::collective, number)) return failure;

  std::int32_t level = kKnown;
  bool has_copies = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (meeting_->is_absent(rank)) {
      // What one that does not run would bring is not known; of all but a root, it is as ours.
      // What a broadcast of its leaves as it is may well be what it would bring.
      if (is_from_root(own.kind) && rank == own.root)
        level =
            own.kind == Kind::broadcast && is_small && step.level < kUnknown ? kAssumed : kUnknown;
      has_copies = has_copies || !is_from_root(own.kind);
      continue;
    }
    const auto& part = meeting_->part(Sort::collective, number, rank);
    bool is_alike = part.kind == own.kind && part.root == own.root;
    if (reduces(own.kind)) {
      is_alike = is_alike && part.type == own.type && part.count == own.count &&
                 part.operation == own.operation;
    } else {
      is_alike = is_alike && part.count * size_of(part.type) == own.count * size_of(own.type);
    }
    if (!is_alike)
      return Failure{kInvalidUsage, "ranks call different collectives: number " +
                                        std::to_string(number) + " of " + meeting_->words_of_all() +
                                        " is " + words_of(own) + " at " +
                                        meeting_->words_of_rank(rank_) + ", and " + words_of(part) +
                                        " at " + meeting_->words_of_rank(rank)};
    if (!is_from_root(own.kind) || rank == own.root) level = std::max(level, part.level);
  }
  if (has_copies) level = std::max(level, kAssumed);
  const bool is_left = is_from_root(own.kind) && meeting_->is_absent(own.root);
  if (is_small && meeting_->has_absent()) {
    emm_standin_note_answered(has_copies && level != kUnknown, is_left);
  }
  if (step.ticket != nullptr) {
    const std::lock_guard lock(step.ticket->mutex);
    step.ticket->level = std::max(step.ticket->level, level);
  }
  if (level == kUnknown || whole == 0 || is_left) return std::nullopt;

  const auto of = [&](int rank) { return meeting_->values(number, rank); };
  std::vector<std::byte> result;
  const auto append = [&](std::span<const std::byte> more) {
    result.insert(result.end(), more.begin(), more.end());
  };
  const auto mine = static_cast<std::size_t>(rank_) * one;
  switch (step.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter: {
      if (step.kind == Kind::reduce && rank_ != step.root) return std::nullopt;
      Reduction reduction(step.type, own.operation, step.count);
      const auto begin = step.kind == Kind::reduce_scatter ? mine : 0;
      for (int rank = 0; rank < size_; ++rank) reduction.add(of(rank).subspan(begin, one));
      result.resize(one);
      reduction.write(result);
      break;
    }
    case Kind::broadcast:
      append(of(step.root));
      break;
    case Kind::all_gather:
    case Kind::gather:
      if (step.kind == Kind::gather && rank_ != step.root) return std::nullopt;
      for (int rank = 0; rank < size_; ++rank) append(of(rank));
      break;
    case Kind::all_to_all:  // one that does not run sends what it is sent
      for (int rank = 0; rank < size_; ++rank)
        append(of(rank).subspan(
            meeting_->is_absent(rank) ? static_cast<std::size_t>(rank) * one : mine, one));
      break;
    case Kind::scatter:
      append(of(step.root).subspan(mine, one));
      break;
    default:
      return std::nullopt;
  }
  (void)emm_standin_write(address(step.to), result.data(), result.size());
  return std::nullopt;
}

struct Communicator::Transfer {
  Step* step = nullptr;
  Pipe* pipe = nullptr;
  CollectiveCall part{};
  std::vector<std::byte> values{};
  std::uint64_t number = 0;  // of a message that was sent
  bool is_done = false;
};

Pipe* Communicator::pipe(int from, int to) {
  auto& found = pipes_[{from, to}];
  if (found == nullptr) found = Pipe::open(meeting_->name(), from, to);
  return found.get();
}

/// Does what can be done now.
std::optional<Failure> Communicator::advance(std::vector<Transfer>& all) {
  std::set<std::pair<Kind, int>> waiting;  // messages of a pair do not overtake
  bool has_changed = false;
  for (auto& one : all) {
    const auto& step = *one.step;
    if (one.is_done) continue;
    if (step.kind == Kind::send) {
      if (one.number == 0 && waiting.count({step.kind, step.root}) == 0)
        has_changed |= one.pipe->send(one.part, one.values, one.number);
      if (one.number == 0) waiting.insert({step.kind, step.root});
      const bool is_small = one.part.count * size_of(one.part.type) <= kMostExchanged;
      one.is_done = one.number != 0 && (is_small || one.pipe->is_received(one.number));
      continue;
    }
    if (waiting.count({step.kind, step.root}) != 0) continue;
    CollectiveCall sent;
    std::vector<std::byte> values;
    if (!one.pipe->receive(sent, values)) {
      waiting.insert({step.kind, step.root});
      continue;
    }
    one.is_done = has_changed = true;
    const auto bytes = one.part.count * size_of(one.part.type);
    if (sent.count * size_of(sent.type) != bytes)
      return Failure{kInvalidUsage, "a send and its receive differ: " + words_of(sent) + " at " +
                                        meeting_->words_of_rank(step.root) + ", and " +
                                        words_of(one.part) + " at " +
                                        meeting_->words_of_rank(rank_)};
    const bool came = sent.level < kUnknown && values.size() == bytes;
    if (came) (void)emm_standin_write(address(step.to), values.data(), values.size());
    if (step.ticket != nullptr) {
      const std::lock_guard lock(step.ticket->mutex);
      step.ticket->level = std::max(step.ticket->level, came ? sent.level : kUnknown);
    }
  }
  if (has_changed) meeting_->ring();
  return std::nullopt;
}

/// From a rank that does not run: memory stays as it is. Where each rank sends to each other one,
/// as when all are told how many rows they get, it is taken to send what it is sent. True if so.
bool Communicator::receive_of_absent(const Step& step, const std::vector<Step*>& all) {
  const auto has_all = [&](Kind kind) {
    std::set<int> peers{rank_};
    for (const auto* one : all) {
      if (one->kind == kind) peers.insert(one->root);
    }
    return static_cast<int>(peers.size()) == size_;
  };
  const auto bytes = whole_bytes(step);
  std::int32_t level = kUnknown;
  if (size_ > 2 && bytes <= kMostExchanged && has_all(Kind::send) && has_all(Kind::receive)) {
    const auto sent = std::find_if(all.begin(), all.end(), [&](const Step* one) {
      return one->kind == Kind::send && one->root == step.root && whole_bytes(*one) == bytes;
    });
    std::vector<std::byte> values;
    if (sent != all.end()) level = read_values(**sent, (*sent)->from, values, bytes);
    if (level != kUnknown) {
      (void)emm_standin_write(address(step.to), values.data(), values.size());
      level = std::max(level, kAssumed);
    }
  }
  if (step.ticket != nullptr) {
    const std::lock_guard lock(step.ticket->mutex);
    step.ticket->level = std::max(step.ticket->level, level);
  }
  if (level == kUnknown) emm_standin_note_answered(0, 1);
  return level != kUnknown;
}

std::optional<Failure> Communicator::transfer(std::vector<Step*>& steps) {
  std::vector<Transfer> all;
  bool has_copies = false;
  for (auto* const step : steps) {
    const bool sends = step->kind == Kind::send;
    if (meeting_->is_absent(step->root)) {
      if (!sends && receive_of_absent(*step, steps)) has_copies = true;
      continue;
    }
    Transfer one{.step = step,
                 .pipe = pipe(sends ? rank_ : step->root, sends ? step->root : rank_)};
    if (one.pipe == nullptr)
      return Failure{kSystemError, "there is no room for what ranks send in " + program_folder()};
    one.part = {.kind = step->kind, .type = step->type, .root = step->root, .count = step->count};
    const auto bytes = whole_bytes(*step);
    if (sends) {
      one.part.level =
          bytes <= kMostExchanged ? read_values(*step, step->from, one.values, bytes) : kUnknown;
    }
    all.push_back(std::move(one));
  }
  if (has_copies) emm_standin_note_answered(1, 0);
  std::optional<Failure> failure;
  const auto first = [&] {
    return std::find_if(all.begin(), all.end(), [](const Transfer& one) { return !one.is_done; });
  };
  const auto in_what = [&] {
    const auto& step = *first()->step;
    return words_of(first()->part) + (step.kind == Kind::send ? " to " : " from ") +
           meeting_->words_of_rank(step.root);
  };
  failure = advance(all);
  if (failure || first() == all.end()) return failure;
  auto gone = meeting_->wait(
      [&] {
        failure = advance(all);
        return failure.has_value() || first() == all.end();
      },
      [&](int rank) { return first() == all.end() || rank != first()->step->root; }, in_what());
  return failure ? failure : gone;
}

Status Communicator::split(int colour, int key, std::shared_ptr<Communicator>& made) {
  using Sort = Meeting::Sort;
  if (const auto known = error(); known != 0) return known;
  if (meeting_->has_absent()) {
    set_last_error(
        "CommSplit among ranks of which some do not run: it is not known who of them would be in "
        "the communicator that it makes");
    tell("mismatch", last_error());
    return kInvalidUsage;
  }
  const auto number = ++makings_;
  meeting_->give(Sort::making, number, {.kind = Kind::split, .colour = colour, .key = key}, {});
  if (const auto failure = meeting_->wait_for(Sort::making, number)) return fail(*failure);
  if (colour < 0) return kSuccess;  // NCCL_SPLIT_NOCOLOR
  std::vector<std::pair<int, int>> members;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& part = meeting_->part(Sort::making, number, rank);
    if (part.kind == Kind::split && part.colour == colour) members.emplace_back(part.key, rank);
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find(members.begin(), members.end(), std::pair(key, rank_));
  made = std::make_shared<Communicator>(static_cast<int>(members.size()),
                                        static_cast<int>(own - members.begin()), device_, context_);
  return made->enter(
      meeting_->name() + ".s" + std::to_string(number) + "." + std::to_string(colour),
      meeting_->shown(rank_), {});
}

Status Communicator::shrink(const std::vector<int>& without, std::shared_ptr<Communicator>& made) {
  const auto number = ++makings_;
  int place = 0, size = 0;
  std::string members;
  std::vector<int> shown;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(without.begin(), without.end(), rank) != without.end()) continue;
    if (meeting_->has_absent()) shown.push_back(meeting_->shown(rank));
    if (rank == rank_) place = size;
    ++size;
    members += "." + std::to_string(rank);
  }
  made = std::make_shared<Communicator>(size, place, device_, context_);
  // Those that are left know one another by their ranks, so that the others need not come.
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : members) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return made->enter(meeting_->name() + ".k" + std::to_string(number) + "." + std::to_string(hash),
                     meeting_->shown(rank_), shown);
}

void Communicator::finish() {
  std::unique_lock lock(mutex_);
  const auto last = last_turn_;
  changed_.wait(lock, [&] { return turns_done_ >= last || error_ != 0; });
}

void Communicator::leave(bool aborts) {
  if (meeting_ == nullptr) return;
  if (aborts) {
    meeting_->abort();
    (void)fail({kInvalidUsage, "the communicator was aborted"});
    std::unique_lock lock(mutex_);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_running_; });
  }
  meeting_->leave(aborts);
  // What was sent to others stays until they have it.
  for (const auto& [ends, one] : pipes_) {
    if (ends.second == rank_ && one != nullptr) one->unlink();
  }
}

}  // namespace emm::standin::nccl
