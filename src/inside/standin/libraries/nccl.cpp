// NCCL: communicators whose ranks meet, and collectives that exchange the values of small pieces.
// Large pieces are not moved, but their ranks meet all the same.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/handles.hpp"
#include "standin/libraries/nccl/absent.hpp"
#include "standin/libraries/nccl/communicator.hpp"
#include "standin/libraries/nccl/reduce.hpp"

using namespace emm::standin;
using namespace emm::standin::nccl;

extern "C" {
int cuMemAlloc_v2(std::uint64_t*, std::size_t);
int cuMemFree_v2(std::uint64_t);
int cuCtxGetCurrent(void**);
int cuCtxSetCurrent(void*);
int cuCtxGetDevice(int*);
int cudaGetDevice(int*);
int cudaSetDevice(int);
}

namespace {

/// What a program has of a communicator.
struct Handle_ {};
using Comm = Handle_*;

struct Id {
  char bytes[128];
};

/// The communicators by their handles, so that a stale handle is an error and no crash. Never
/// destroyed: programs end communicators in their exit handlers.
struct Book {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> all;
  std::unordered_map<int, std::vector<std::byte>> factors;  // of operations that multiply first
  std::unordered_map<int, const void*> factors_on_device;
  int last_operation = operation_count + 100;
  std::unordered_map<std::uint64_t, std::shared_ptr<Ticket>> tickets;
  std::uint64_t last_ticket = 0;
  pid_t process = getpid();
};
Book& book() {
  static auto& made = *new Book;
  return made;
}

std::shared_ptr<Communicator> find(Comm comm) {
  auto& all = book();
  if (all.process != getpid()) return nullptr;  // a child has none
  const std::lock_guard lock(all.mutex);
  const auto found = all.all.find(comm);
  return found != all.all.end() ? found->second : nullptr;
}
Comm keep(std::shared_ptr<Communicator> made) {
  auto* const handle = new Handle_;
  const std::lock_guard lock(book().mutex);
  book().all[handle] = std::move(made);
  return handle;
}
std::shared_ptr<Communicator> take(Comm comm) {
  auto made = find(comm);
  if (made == nullptr) return nullptr;
  {
    const std::lock_guard lock(book().mutex);
    book().all.erase(comm);
  }
  delete comm;
  return made;
}

Status refuse(const char* words, Status status = kInvalidArgument) {
  set_last_error(words);
  return status;
}

/// What a thread has called between ncclGroupStart and ncclGroupEnd.
struct Group {
  struct Call {
    std::shared_ptr<Communicator> communicator;
    emm::standin::Handle stream;
    Step step;
  };
  int depth = 0;
  std::vector<Call> calls;
  std::vector<std::function<Status()>> makings;  // of communicators
};
Group& group() {
  thread_local Group made;
  return made;
}

thread_local std::shared_ptr<Ticket> current_ticket;
thread_local std::int32_t current_level = kKnown;

/// Carries the calls out. Those of one communicator and stream go together.
Status put(std::vector<Group::Call> calls) {
  Status status = kSuccess;
  std::vector<std::shared_ptr<Batch>> batches;
  while (!calls.empty()) {
    const auto communicator = calls.front().communicator;
    const auto stream = calls.front().stream;
    std::vector<Step> steps;
    std::vector<Group::Call> others;
    for (auto& call : calls) {
      if (call.communicator == communicator && call.stream == stream) {
        steps.push_back(std::move(call.step));
      } else {
        others.push_back(std::move(call));
      }
    }
    std::shared_ptr<Batch> batch;
    const auto code = communicator->put(stream, std::move(steps), batch);
    if (status == kSuccess) status = code;
    if (batch != nullptr) batches.push_back(std::move(batch));
    calls = std::move(others);
  }
  for (const auto& batch : batches) {
    batch->communicator->wait_a_while(*batch);
    if (status == kSuccess) status = batch->communicator->error();
  }
  return status;
}

/// Makes communicators, each on a thread of its own, since each waits for the others.
Status make_all(std::vector<std::function<Status()>> makings) {
  if (makings.size() == 1) return makings.front()();
  void* context = nullptr;
  (void)cuCtxGetCurrent(&context);
  std::atomic<Status> status{kSuccess};
  std::vector<std::thread> threads;
  for (auto& making : makings) {
    threads.emplace_back([&] {
      (void)cuCtxSetCurrent(context);
      const auto code = making();
      Status none = kSuccess;
      if (code != kSuccess) status.compare_exchange_strong(none, code);
    });
  }
  for (auto& thread : threads) thread.join();
  return status;
}

Status now_or_in_group(std::function<Status()> making) {
  if (group().depth == 0) return making();
  group().makings.push_back(std::move(making));
  return kSuccess;
}

Status end_group() {
  auto makings = std::move(group().makings);
  auto calls = std::move(group().calls);
  group().makings.clear();
  group().calls.clear();
  if (!makings.empty()) {
    if (const auto code = make_all(std::move(makings)); code != kSuccess) return code;
  }
  return put(std::move(calls));
}

std::string name_of(const Id& id) {
  std::string name = "nccl.";
  // Bytes of the id: enough to tell communicators apart in a file's name.
  constexpr std::size_t kNamed = 24;
  for (std::size_t i = 0; i < kNamed; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(id.bytes[i]));
    name += digits;
  }
  return name;
}

/// `is_here`: all its ranks are this process's.
Status make(Comm* out, int size, const Id& id, int rank, int shown, bool is_here = false) {
  if (out == nullptr) return refuse("the communicator's place is null");
  *out = nullptr;
  if (size < 1 || rank < 0 || rank >= size)
    return refuse("the rank is not one of the communicator");
  if (cudart::enter() != cudart::kSuccess) return refuse("there is no CUDA device", kCudaError);
  int device = 0;
  void* context = nullptr;
  (void)cuCtxGetDevice(&device);
  (void)cuCtxGetCurrent(&context);
  const auto members = is_here ? std::optional<std::vector<int>>{std::vector<int>{}}
                               : members_of(id.bytes, sizeof id.bytes, size, rank, shown);
  if (!members)
    return refuse("it is not known which ranks a communicator has, of which some do not run");
  auto made = std::make_shared<Communicator>(size, rank, device, context);
  *out = keep(made);
  const auto status = now_or_in_group(
      [made, name = name_of(id), shown, all = *members] { return made->enter(name, shown, all); });
  if (status != kSuccess) {
    (void)take(*out);
    *out = nullptr;
  }
  return status;
}

/// A call of a collective, which is put on the stream at once or at the end of the group.
Status call(Comm comm, void* stream, Step step) {
  auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  if (communicator->meeting() == nullptr && group().depth == 0)
    return refuse("the communicator is not made yet");
  if (size_of(step.type) == 0) return refuse("the type is none of NCCL's");
  const bool has_root = step.kind == Kind::broadcast || step.kind == Kind::reduce ||
                        step.kind == Kind::gather || step.kind == Kind::scatter ||
                        step.kind == Kind::send || step.kind == Kind::receive;
  if (has_root && (step.root < 0 || step.root >= communicator->size()))
    return refuse("the root or the peer is not a rank of the communicator");
  if (step.operation >= operation_count) {
    const std::lock_guard lock(book().mutex);
    const auto factor = book().factors.find(step.operation);
    const auto on_device = book().factors_on_device.find(step.operation);
    if (factor != book().factors.end()) {
      step.factor = factor->second;
    } else if (on_device != book().factors_on_device.end()) {
      step.factor_at = on_device->second;
    } else {
      return refuse("the operation is none of NCCL's, or was destroyed");
    }
  }
  // As in NCCL, a collective of nothing meets nobody.
  if (step.count == 0 && step.kind != Kind::send && step.kind != Kind::receive) return kSuccess;
  step.level = current_level;
  step.ticket = current_ticket;
  if (step.ticket != nullptr) {
    const std::lock_guard lock(step.ticket->mutex);
    ++step.ticket->given;
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    auto& streams = step.ticket->streams;
    if (std::find(streams.begin(), streams.end(), handle) == streams.end())
      streams.push_back(handle);
  }
  Group::Call made{std::move(communicator), reinterpret_cast<std::uintptr_t>(stream),
                   std::move(step)};
  if (group().depth != 0) {
    group().calls.push_back(std::move(made));
    return kSuccess;
  }
  std::vector<Group::Call> one;
  one.push_back(std::move(made));
  return put(std::move(one));
}

Status make_operation(int* out, std::vector<std::byte> factor, const void* on_device) {
  const std::lock_guard lock(book().mutex);
  *out = ++book().last_operation;
  if (on_device != nullptr) {
    book().factors_on_device[*out] = on_device;
  } else {
    book().factors[*out] = std::move(factor);
  }
  return kSuccess;
}

Status leave(Comm comm, bool aborts) {
  if (comm == nullptr) return kSuccess;
  const auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  if (!aborts && communicator->error() == 0) communicator->finish();
  communicator->leave(aborts || communicator->error() != 0);
  (void)take(comm);
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// What emmctl's Python package calls, none of NCCL's. Collectives that the thread calls between
// the two bring values that are known so well; the number that is returned asks for the results'.
std::uint64_t emm_standin_collectives_begin(int level) {
  current_level = level;
  current_ticket = std::make_shared<Ticket>();
  auto& all = book();
  const std::lock_guard lock(all.mutex);
  constexpr std::uint64_t kMostTickets = 4096;  // of those that nobody asks for
  const auto number = ++all.last_ticket;
  if (number > kMostTickets) all.tickets.erase(number - kMostTickets);
  all.tickets[number] = current_ticket;
  return number;
}
/// True if there was a collective.
int emm_standin_collectives_end() {
  const auto ticket = std::move(current_ticket);
  current_ticket = nullptr;
  current_level = kKnown;
  if (ticket == nullptr) return 0;
  const std::lock_guard lock(ticket->mutex);
  for (const auto stream : ticket->streams) {
    emm::standin::Handle mark = 0;
    if (emm_standin_mark(stream, &mark) == 0) ticket->marks.push_back(mark);
  }
  return ticket->given != 0;
}
/// Waits until the results are there, and says how well they are known.
int emm_standin_collectives_level(std::uint64_t number) {
  std::shared_ptr<Ticket> ticket;
  {
    const std::lock_guard lock(book().mutex);
    const auto found = book().tickets.find(number);
    if (found == book().tickets.end()) return kUnknown;
    ticket = std::move(found->second);
    book().tickets.erase(found);
  }
  std::unique_lock lock(ticket->mutex);
  if (ticket->given == 0 || !ticket->is_queued) return kUnknown;
  ticket->changed.wait(lock, [&] { return ticket->done == ticket->given; });
  for (const auto mark : std::exchange(ticket->marks, {})) emm_standin_finish(mark);
  return ticket->level;
}

Status ncclGetVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = 22703;
  return kSuccess;
}
Status ncclGetUniqueId(Id* out) {
  static std::atomic<std::uint32_t> last{0};
  if (out == nullptr) return kInvalidArgument;
  std::memset(out, 0, sizeof *out);
  const struct {
    std::int64_t time;
    std::int32_t process;
    std::uint32_t number;
  } words{std::chrono::steady_clock::now().time_since_epoch().count(), getpid(), ++last};
  std::memcpy(out->bytes, &words, sizeof words);
  return kSuccess;
}
Status ncclCommInitRank(Comm* out, int size, Id id, int rank) {
  return make(out, size, id, rank, shown_rank(rank));
}
Status ncclCommInitRankConfig(Comm* out, int size, Id id, int rank, void*) {
  return ncclCommInitRank(out, size, id, rank);
}
Status ncclCommInitRankScalable(Comm* out, int size, int rank, int ids, const Id* all, void*) {
  if (ids < 1 || all == nullptr) return refuse("there is no unique id");
  return ncclCommInitRank(out, size, all[0], rank);
}
Status ncclGroupStart();
Status ncclGroupEnd();
Status ncclCommInitAll(Comm* out, int size, const int* devices) {
  if (out == nullptr || size < 1) return refuse("there is no communicator to make");
  Id id;
  int before = 0;
  (void)ncclGetUniqueId(&id);
  (void)cudaGetDevice(&before);
  (void)ncclGroupStart();
  Status status = kSuccess;
  for (int rank = 0; rank < size && status == kSuccess; ++rank) {
    if (cudaSetDevice(devices != nullptr ? devices[rank] : rank) != 0)
      status = refuse("a device is none of this process");
    if (status == kSuccess) status = make(out + rank, size, id, rank, rank, true);
  }
  if (status != kSuccess) group().makings.clear();
  const auto ended = ncclGroupEnd();
  (void)cudaSetDevice(before);
  return status != kSuccess ? status : ended;
}
Status ncclCommSplit(Comm of, int colour, int key, Comm* out, void*) {
  const auto parent = find(of);
  if (parent == nullptr || out == nullptr)
    return refuse("the communicator is none, or was destroyed");
  *out = nullptr;
  return now_or_in_group([parent, colour, key, out] {
    std::shared_ptr<Communicator> made;
    const auto status = parent->split(colour, key, made);
    if (status == kSuccess && made != nullptr) *out = keep(std::move(made));
    return status;
  });
}
Status ncclCommShrink(Comm of, const int* without, int count, Comm* out, void*, int) {
  const auto parent = find(of);
  if (parent == nullptr || out == nullptr)
    return refuse("the communicator is none, or was destroyed");
  *out = nullptr;
  std::vector<int> ranks(without, without + count);
  return now_or_in_group([parent, ranks, out] {
    std::shared_ptr<Communicator> made;
    const auto status = parent->shrink(ranks, made);
    if (status == kSuccess) *out = keep(std::move(made));
    return status;
  });
}
Status ncclCommFinalize(Comm comm) {
  const auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  communicator->finish();
  return communicator->error();
}
Status ncclCommDestroy(Comm comm) { return leave(comm, false); }
Status ncclCommAbort(Comm comm) { return leave(comm, true); }
Status ncclCommGetAsyncError(Comm comm, Status* error) {
  const auto communicator = find(comm);
  if (communicator == nullptr || error == nullptr)
    return refuse("the communicator is none, or was destroyed");
  *error = communicator->error();
  return kSuccess;
}
Status ncclCommCount(Comm comm, int* count) {
  const auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  *count = communicator->size();
  return kSuccess;
}
Status ncclCommUserRank(Comm comm, int* rank) {
  const auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  *rank = communicator->rank();
  return kSuccess;
}
Status ncclCommCuDevice(Comm comm, int* device) {
  const auto communicator = find(comm);
  if (communicator == nullptr) return refuse("the communicator is none, or was destroyed");
  *device = communicator->device();
  return kSuccess;
}

Status ncclGroupStart() {
  ++group().depth;
  return kSuccess;
}
Status ncclGroupEnd() {
  if (group().depth == 0) return refuse("ncclGroupEnd without ncclGroupStart", kInvalidUsage);
  return --group().depth == 0 ? end_group() : kSuccess;
}

Status ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                     Comm comm, void* stream) {
  return call(comm, stream,
              {.kind = Kind::all_reduce,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .operation = operation});
}
Status ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                     void* stream) {
  return call(comm, stream,
              {.kind = Kind::broadcast,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .root = root});
}
Status ncclBcast(void* at, std::size_t count, int type, int root, Comm comm, void* stream) {
  return ncclBroadcast(at, at, count, type, root, comm, stream);
}
Status ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
                  Comm comm, void* stream) {
  return call(comm, stream,
              {.kind = Kind::reduce,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .operation = operation,
               .root = root});
}
Status ncclAllGather(const void* from, void* to, std::size_t count, int type, Comm comm,
                     void* stream) {
  return call(comm, stream,
              {.kind = Kind::all_gather, .from = from, .to = to, .count = count, .type = type});
}
Status ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation,
                         Comm comm, void* stream) {
  return call(comm, stream,
              {.kind = Kind::reduce_scatter,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .operation = operation});
}
Status ncclAlltoAll(const void* from, void* to, std::size_t count, int type, Comm comm,
                    void* stream) {
  return call(comm, stream,
              {.kind = Kind::all_to_all, .from = from, .to = to, .count = count, .type = type});
}
Status ncclGather(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                  void* stream) {
  return call(
      comm, stream,
      {.kind = Kind::gather, .from = from, .to = to, .count = count, .type = type, .root = root});
}
Status ncclScatter(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                   void* stream) {
  return call(
      comm, stream,
      {.kind = Kind::scatter, .from = from, .to = to, .count = count, .type = type, .root = root});
}
Status ncclSend(const void* from, std::size_t count, int type, int peer, Comm comm, void* stream) {
  return call(comm, stream,
              {.kind = Kind::send, .from = from, .count = count, .type = type, .root = peer});
}
Status ncclRecv(void* to, std::size_t count, int type, int peer, Comm comm, void* stream) {
  return call(comm, stream,
              {.kind = Kind::receive, .to = to, .count = count, .type = type, .root = peer});
}

Status ncclRedOpCreatePreMulSum(int* out, void* factor, int type, int residence, Comm comm) {
  if (out == nullptr || factor == nullptr || size_of(type) == 0 || find(comm) == nullptr)
    return refuse("an argument of ncclRedOpCreatePreMulSum is none");
  constexpr int kOnDevice = 0;  // ncclScalarDevice
  if (residence == kOnDevice) return make_operation(out, {}, factor);
  const auto* const bytes = static_cast<const std::byte*>(factor);
  return make_operation(out, {bytes, bytes + size_of(type)}, nullptr);
}
Status ncclRedOpDestroy(int operation, Comm) {
  const std::lock_guard lock(book().mutex);
  const auto found = book().factors.erase(operation) + book().factors_on_device.erase(operation);
  return found != 0 ? kSuccess : kInvalidArgument;
}

Status ncclMemAlloc(void** out, std::size_t size) {
  std::uint64_t made = 0;
  if (cudart::enter() != cudart::kSuccess) return kCudaError;
  const auto code = cuMemAlloc_v2(&made, size);
  *out = reinterpret_cast<void*>(made);  // NOLINT
  return code == 0 ? kSuccess : kCudaError;
}
Status ncclMemFree(void* ptr) {
  return cuMemFree_v2(reinterpret_cast<std::uintptr_t>(ptr)) == 0 ? kSuccess : kCudaError;
}
Status ncclCommRegister(Comm, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return kSuccess;
}
Status ncclCommDeregister(Comm, void*) { return kSuccess; }
const char* ncclGetErrorString(Status status) {
  switch (status) {
    case 0:
      return "no error";
    case 1:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case 2:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case 3:
      return "internal error - please report this issue to the NCCL developers";
    case 4:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case 5:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case 6:
      return "remote process exited or there was a network error";
    case 7:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
const char* ncclGetLastError(Comm) { return last_error(); }

}  // extern "C"
#pragma GCC visibility pop
