// One rank of a program with NCCL: ranks WHAT, with RANK and SIZE in its environment, and in MEET
// a folder where rank 0 leaves the unique id.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
struct Id {
  char bytes[128];
};
int cudaSetDevice(int);
int cudaGetDevice(int*);
int cudaGetDeviceCount(int*);
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, std::size_t, int);
int cudaMemcpyAsync(void*, const void*, std::size_t, int, void*);
int cudaStreamCreateWithFlags(void**, unsigned);
int cudaStreamSynchronize(void*);
int cudaStreamQuery(void*);
int cudaStreamWaitEvent(void*, void*, unsigned);
int cudaEventCreate(void**);
int cudaEventRecord(void*, void*);
int cudaEventQuery(void*);
int cudaEventSynchronize(void*);
int cudaDeviceSynchronize();

int ncclGetVersion(int*);
int ncclGetUniqueId(Id*);
int ncclCommInitRank(void**, int, Id, int);
int ncclCommInitRankConfig(void**, int, Id, int, void*);
int ncclCommInitRankScalable(void**, int, int, int, Id*, void*);
int ncclCommInitAll(void**, int, const int*);
int ncclCommSplit(void*, int, int, void**, void*);
int ncclCommShrink(void*, int*, int, void**, void*, int);
int ncclCommFinalize(void*);
int ncclCommDestroy(void*);
int ncclCommAbort(void*);
int ncclCommGetAsyncError(void*, int*);
int ncclCommCount(void*, int*);
int ncclCommUserRank(void*, int*);
int ncclCommCuDevice(void*, int*);
int ncclMemAlloc(void**, std::size_t);
int ncclMemFree(void*);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*);
int ncclBroadcast(const void*, void*, std::size_t, int, int, void*, void*);
int ncclBcast(void*, std::size_t, int, int, void*, void*);
int ncclReduce(const void*, void*, std::size_t, int, int, int, void*, void*);
int ncclAllGather(const void*, void*, std::size_t, int, void*, void*);
int ncclReduceScatter(const void*, void*, std::size_t, int, int, void*, void*);
int ncclAlltoAll(const void*, void*, std::size_t, int, void*, void*);
int ncclGather(const void*, void*, std::size_t, int, int, void*, void*);
int ncclScatter(const void*, void*, std::size_t, int, int, void*, void*);
int ncclSend(const void*, std::size_t, int, int, void*, void*);
int ncclRecv(void*, std::size_t, int, int, void*, void*);
int ncclRedOpCreatePreMulSum(int*, void*, int, int, void*);
int ncclRedOpDestroy(int, void*);
const char* ncclGetErrorString(int);
const char* ncclGetLastError(void*);
}

namespace {

constexpr int kInt32 = 2, kFloat = 7, kToDevice = 1, kToHost = 2, kNotReady = 600;
constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

int rank = 0, size = 1;
void* stream = nullptr;

/// Ends the rank where a call does not answer as it should.
void must(int code, const char* what, int wanted = 0) {
  if (code == wanted) return;
  std::printf("rank %d: %s is %d, %s\n", rank, what, code, ncclGetLastError(nullptr));
  std::fflush(stdout);
  _exit(1);
}
#define MUST(call) must(call, #call)

std::string meeting_place() { return std::getenv("MEET"); }

/// The id that rank 0 made, under a name of its own for each.
Id unique_id(const char* name) {
  const auto path = meeting_place() + "/" + name;
  Id id{};
  const char* const first = std::getenv("FIRST");  // where rank 0 does not run
  if (rank == (first != nullptr ? std::atoi(first) : 0)) {
    MUST(ncclGetUniqueId(&id));
    auto* const file = std::fopen((path + ".part").c_str(), "wb");
    std::fwrite(&id, sizeof id, 1, file);
    std::fclose(file);
    std::rename((path + ".part").c_str(), path.c_str());
    return id;
  }
  for (;;) {
    auto* const file = std::fopen(path.c_str(), "rb");
    if (file != nullptr && std::fread(&id, sizeof id, 1, file) == 1) {
      std::fclose(file);
      return id;
    }
    if (file != nullptr) std::fclose(file);
    usleep(1000);
  }
}

void* enter(const char* name = "id") {
  void* comm = nullptr;
  const auto id = unique_id(name);
  MUST(ncclCommInitRank(&comm, size, id, rank));
  return comm;
}

/// Memory of the device with these bytes.
char* memory(const std::vector<char>& bytes) {
  void* made = nullptr;
  must(cudaMalloc(&made, bytes.size()), "cudaMalloc");
  must(cudaMemcpy(made, bytes.data(), bytes.size(), kToDevice), "cudaMemcpy");
  return static_cast<char*>(made);
}
std::vector<char> read(const void* from, std::size_t bytes) {
  std::vector<char> found(bytes);
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  must(cudaMemcpy(found.data(), from, bytes, kToHost), "cudaMemcpy");
  return found;
}

/// A number that the type has, as its bytes.
void put(int type, double value, char* to) {
  const auto integer = static_cast<std::int64_t>(value);
  const auto single = static_cast<float>(value);
  const auto small = [&](int exponent_bits, int mantissa_bits) {
    const int exponent = std::ilogb(value), bias = (1 << (exponent_bits - 1)) - 1;
    const auto mantissa =
        static_cast<int>(std::ldexp(value, mantissa_bits - exponent)) - (1 << mantissa_bits);
    const auto bits = ((exponent + bias) << mantissa_bits) | mantissa;
    std::memcpy(to, &bits, kSizes[type]);
  };
  switch (type) {
    case 6:
      return small(5, 10);
    case 7:
      std::memcpy(to, &single, sizeof single);
      return;
    case 8:
      std::memcpy(to, &value, sizeof value);
      return;
    case 9:
      return small(8, 7);
    case 10:
      return small(4, 3);
    case 11:
      return small(5, 2);
    default:
      std::memcpy(to, &integer, kSizes[type]);
  }
}
std::vector<char> row(int type, std::size_t count, const std::function<double(std::size_t)>& of) {
  std::vector<char> made(count * kSizes[type]);
  for (std::size_t i = 0; i < count; ++i) put(type, of(i), made.data() + i * kSizes[type]);
  return made;
}

int wrong = 0;
void expect(const std::vector<char>& found, const std::vector<char>& wanted, const char* what,
            int type, int operation = -1) {
  if (found == wanted) return;
  ++wrong;
  std::printf("rank %d: %s of type %d, operation %d, is wrong\n", rank, what, type, operation);
}

/// What rank r has at place i: ones and twos, so that every type has their sums and products.
double given(int r, std::size_t i) { return 1 + (static_cast<int>(i) + r) % 2; }

double reduced(int operation, std::size_t i, int type) {
  double all = operation == 1 ? 1 : 0, least = 2, most = 1;
  for (int r = 0; r < size; ++r) {
    const auto value = given(r, i);
    all = operation == 1 ? all * value : all + value;
    least = std::fmin(least, value);
    most = std::fmax(most, value);
  }
  if (operation == 2) return most;
  if (operation == 3) return least;
  if (operation == 4) return type <= 5 ? std::floor(all / size) : all / size;
  return all;
}

/// All collectives, of all types and with all operations.
int values() {
  auto* const comm = enter();
  constexpr std::size_t kCount = 5;
  const auto whole = kCount * static_cast<std::size_t>(size);
  for (int type = 0; type < 12; ++type) {
    const auto bytes = kCount * kSizes[type], all = whole * kSizes[type];
    auto* const own = memory(row(type, kCount, [](std::size_t i) { return given(rank, i); }));
    auto* const many = memory(row(type, whole, [](std::size_t i) { return given(rank, i); }));
    auto* const to = memory(std::vector<char>(all, 'x'));
    const auto mine = static_cast<std::size_t>(rank) * kCount;
    for (int operation = 0; operation < 5; ++operation) {
      const auto sum_of = [&](std::size_t i) { return reduced(operation, i, type); };
      MUST(ncclAllReduce(own, to, kCount, type, operation, comm, stream));
      expect(read(to, bytes), row(type, kCount, sum_of), "AllReduce", type, operation);
      MUST(ncclReduceScatter(many, to, kCount, type, operation, comm, stream));
      expect(read(to, bytes), row(type, kCount, [&](std::size_t i) { return sum_of(mine + i); }),
             "ReduceScatter", type, operation);
      const int root = size - 1;
      const auto before = read(to, bytes);
      MUST(ncclReduce(own, to, kCount, type, operation, root, comm, stream));
      expect(read(to, bytes), rank == root ? row(type, kCount, sum_of) : before, "Reduce", type,
             operation);
    }
    const auto of_root = row(type, kCount, [](std::size_t i) { return given(1 % size, i); });
    MUST(ncclBroadcast(own, to, kCount, type, 1 % size, comm, stream));
    expect(read(to, bytes), of_root, "Broadcast", type);
    auto* const copy = memory(row(type, kCount, [](std::size_t i) { return given(rank, i); }));
    MUST(ncclBcast(copy, kCount, type, 1 % size, comm, stream));
    expect(read(copy, bytes), of_root, "Bcast", type);
    const auto gathered = row(
        type, whole, [](std::size_t i) { return given(static_cast<int>(i / kCount), i % kCount); });
    MUST(ncclAllGather(own, to, kCount, type, comm, stream));
    expect(read(to, all), gathered, "AllGather", type);
    // In place.
    must(cudaMemcpy(to + mine * kSizes[type], read(own, bytes).data(), bytes, kToDevice), "copy");
    MUST(ncclAllGather(to + mine * kSizes[type], to, kCount, type, comm, stream));
    expect(read(to, all), gathered, "AllGather in place", type);
    MUST(ncclAlltoAll(many, to, kCount, type, comm, stream));
    expect(
        read(to, all),
        row(type, whole,
            [&](std::size_t i) { return given(static_cast<int>(i / kCount), mine + i % kCount); }),
        "AlltoAll", type);
    MUST(ncclGather(own, to, kCount, type, 0, comm, stream));
    if (rank == 0) expect(read(to, all), gathered, "Gather", type);
    MUST(ncclScatter(many, to, kCount, type, 0, comm, stream));
    expect(read(to, bytes), row(type, kCount, [&](std::size_t i) { return given(0, mine + i); }),
           "Scatter", type);
    // A sum whose values are doubled first.
    char two[8] = {};
    int doubled = 0;
    put(type, 2, two);
    MUST(ncclRedOpCreatePreMulSum(&doubled, two, type, 1, comm));
    MUST(ncclAllReduce(own, to, kCount, type, doubled, comm, stream));
    MUST(ncclRedOpDestroy(doubled, comm));
    expect(read(to, bytes),
           row(type, kCount, [&](std::size_t i) { return 2 * reduced(0, i, type); }),
           "AllReduce of doubled values", type);
    must(ncclAllReduce(own, to, kCount, type, doubled, comm, stream), "a destroyed operation", 4);
  }
  // What is too large moves nothing, and meets.
  void* large = nullptr;
  must(cudaMalloc(&large, 4 << 20), "cudaMalloc");
  MUST(ncclAllReduce(large, large, 1 << 20, kFloat, 0, comm, stream));
  MUST(ncclAllReduce(large, large, 0, kFloat, 0, comm, stream));
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  MUST(ncclCommFinalize(comm));
  MUST(ncclCommDestroy(comm));
  std::printf("rank %d: %d wrong\n", rank, wrong);
  return wrong != 0;
}

void say(const char* what, const std::vector<char>& found) {
  std::string words = "rank " + std::to_string(rank) + ": " + what;
  for (std::size_t i = 0; i < found.size(); i += 4) {
    int value = 0;
    std::memcpy(&value, found.data() + i, sizeof value);
    words += " " + std::to_string(value);
  }
  std::puts(words.c_str());
}
char* integers(std::size_t count, int first) {
  return memory(row(kInt32, count, [&](std::size_t i) { return first + static_cast<int>(i); }));
}

/// Sends and receives, alone and in groups; to itself; large ones.
int sends() {
  auto* const comm = enter();
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  auto* const own = integers(2, 10 * rank);
  auto* const to = integers(2, -1);
  // A small send ends before it is received, as on a card.
  MUST(ncclSend(own, 2, kInt32, next, comm, stream));
  MUST(ncclRecv(to, 2, kInt32, before, comm, stream));
  say("ring", read(to, 8));
  auto* const all = integers(static_cast<std::size_t>(size), -1);
  MUST(ncclGroupStart());
  for (int peer = 0; peer < size; ++peer) {
    MUST(ncclRecv(all + 4 * peer, 1, kInt32, peer, comm, stream));
    MUST(ncclSend(own, 1, kInt32, peer, comm, stream));
  }
  MUST(ncclGroupEnd());
  say("all", read(all, 4 * static_cast<std::size_t>(size)));
  void* large = nullptr;
  must(cudaMalloc(&large, 8 << 20), "cudaMalloc");
  MUST(ncclGroupStart());
  MUST(ncclSend(large, 2 << 20, kFloat, next, comm, stream));
  MUST(ncclRecv(large, 2 << 20, kFloat, before, comm, stream));
  MUST(ncclGroupEnd());
  // More than lies in between.
  for (int i = 0; i < 40; ++i) {
    MUST(ncclGroupStart());
    MUST(ncclSend(large, 1 << 18, kFloat, next, comm, stream));
    MUST(ncclRecv(large, 1 << 18, kFloat, before, comm, stream));
    MUST(ncclGroupEnd());
  }
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  MUST(ncclCommDestroy(comm));
  return 0;
}

/// Other communicators of one: by colours and keys, by another way of making them, without a rank.
int splits() {
  auto* const comm = enter();
  void *half = nullptr, *none = &none, *fewer = nullptr, *scalable = nullptr;
  MUST(ncclCommSplit(comm, rank % 2, -rank, &half, nullptr));
  int count = 0, place = -1, device = -1;
  MUST(ncclCommCount(half, &count));
  MUST(ncclCommUserRank(half, &place));
  MUST(ncclCommCuDevice(half, &device));
  auto* const own = integers(1, rank);
  auto* const all = integers(static_cast<std::size_t>(size), -1);
  MUST(ncclAllGather(own, all, 1, kInt32, half, stream));
  say("half", read(all, 4 * static_cast<std::size_t>(count)));
  std::printf("rank %d: place %d of %d, device %d\n", rank, place, count, device);
  MUST(ncclCommSplit(comm, rank == 0 ? -1 : 5, 0, &none, nullptr));
  std::printf("rank %d: colour none %d\n", rank, none == nullptr);
  if (rank != 1) {
    int without[] = {1};
    MUST(ncclCommShrink(comm, without, 1, &fewer, nullptr, 0));
    MUST(ncclAllReduce(own, all, 1, kInt32, 0, fewer, stream));
    say("without 1", read(all, 4));
    MUST(ncclCommDestroy(fewer));
  }
  auto ids = std::vector<Id>{unique_id("first"), unique_id("second")};
  MUST(ncclCommInitRankScalable(&scalable, size, rank, 2, ids.data(), nullptr));
  MUST(ncclAllReduce(own, all, 1, kInt32, 2, scalable, stream));
  say("most", read(all, 4));
  for (auto* const one : {half, none, scalable, comm}) MUST(ncclCommDestroy(one));
  must(ncclCommCount(comm, &count), "a destroyed communicator", 4);
  return 0;
}

/// One process with all the devices.
int all_devices() {
  std::vector<void*> comms(static_cast<std::size_t>(size)), streams(comms);
  std::vector<char*> memories;
  MUST(ncclCommInitAll(comms.data(), size, nullptr));
  for (int device = 0; device < size; ++device) {
    must(cudaSetDevice(device), "cudaSetDevice");
    must(cudaStreamCreateWithFlags(&streams[static_cast<std::size_t>(device)], 0), "stream");
    memories.push_back(integers(3, device));
  }
  MUST(ncclGroupStart());
  for (int device = 0; device < size; ++device) {
    const auto i = static_cast<std::size_t>(device);
    MUST(ncclAllReduce(memories[i], memories[i], 3, kInt32, 0, comms[i], streams[i]));
  }
  MUST(ncclGroupEnd());
  for (int device = 0; device < size; ++device) {
    const auto i = static_cast<std::size_t>(device);
    must(cudaSetDevice(device), "cudaSetDevice");
    stream = streams[i];
    say("sum", read(memories[i], 12));
    MUST(ncclCommDestroy(comms[i]));
  }
  // The same by ids, in a group.
  Id id{};
  MUST(ncclGetUniqueId(&id));
  MUST(ncclGroupStart());
  for (int device = 0; device < size; ++device) {
    must(cudaSetDevice(device), "cudaSetDevice");
    MUST(ncclCommInitRank(&comms[static_cast<std::size_t>(device)], size, id, device));
  }
  MUST(ncclGroupEnd());
  for (auto* const comm : comms) MUST(ncclCommDestroy(comm));
  return 0;
}

/// Two ranks whose collectives are on two streams in another order. On a card both end, since the
/// calls only put them there.
int crossed() {
  auto *const first = enter("first"), *const second = enter("second");
  void *other = nullptr, *event = nullptr;
  must(cudaStreamCreateWithFlags(&other, 1), "stream");
  must(cudaEventCreate(&event), "event");
  auto *const a = integers(1, rank + 1), *const b = integers(1, 10 * (rank + 1));
  if (rank == 0) {
    MUST(ncclAllReduce(a, a, 1, kInt32, 0, first, stream));
    must(cudaEventRecord(event, stream), "record");
    std::printf("rank 0: ready %d %d\n", cudaStreamQuery(stream) != kNotReady,
                cudaEventQuery(event) != kNotReady);
    std::fclose(std::fopen((meeting_place() + "/asked").c_str(), "wb"));
    MUST(ncclAllReduce(b, b, 1, kInt32, 0, second, other));
  } else {
    MUST(ncclAllReduce(b, b, 1, kInt32, 0, second, other));
    while (access((meeting_place() + "/asked").c_str(), F_OK) != 0) usleep(1000);
    MUST(ncclAllReduce(a, a, 1, kInt32, 0, first, stream));
  }
  must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  say("a", read(a, 4));
  say("b", read(b, 4));
  if (rank == 0) must(cudaEventQuery(event), "cudaEventQuery");
  MUST(ncclCommDestroy(first));
  MUST(ncclCommDestroy(second));
  return 0;
}

/// Work behind a collective on another stream sees what it gave.
int ordered() {
  auto* const comm = enter();
  void *other = nullptr, *event = nullptr;
  must(cudaStreamCreateWithFlags(&other, 1), "stream");
  must(cudaEventCreate(&event), "event");
  auto *const a = integers(1, rank + 1), *const b = integers(1, -1);
  if (rank == 1) usleep(200'000);
  MUST(ncclAllReduce(a, a, 1, kInt32, 0, comm, stream));
  must(cudaEventRecord(event, stream), "record");
  must(cudaStreamWaitEvent(other, event, 0), "wait");
  must(cudaMemcpyAsync(b, a, 4, 3, other), "copy");
  must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  say("copied", read(b, 4));
  MUST(ncclCommDestroy(comm));
  return 0;
}

/// Waits as programs do that look for errors.
int wait_for_error(void* comm) {
  for (int error = 0;;) {
    MUST(ncclCommGetAsyncError(comm, &error));
    if (error != 0) {
      std::printf("rank %d: %s; %s\n", rank, ncclGetErrorString(error), ncclGetLastError(comm));
      MUST(ncclCommAbort(comm));
      return 0;
    }
    if (cudaStreamQuery(stream) == 0) return 1;
    usleep(1000);
  }
}

int ends(const std::string& how) {
  if (how == "never" && rank == size - 1) {  // after it has begun with its device
    (void)integers(1, 1);
    std::raise(SIGKILL);
  }
  auto* const comm = enter();
  auto* const own = integers(4, rank);
  MUST(ncclAllReduce(own, own, 4, kInt32, 0, comm, stream));
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  if (rank == size - 1) {
    if (how == "killed") std::raise(SIGKILL);
    if (how == "exits") std::_Exit(0);
    if (how == "aborts") return ncclCommAbort(comm);
    if (how == "leaves") return ncclCommDestroy(comm);
    if (how == "late") usleep(1'000'000);
    if (how == "sleeps") usleep(60'000'000);
    for (const auto begun = time(nullptr); how == "computes" && time(nullptr) - begun < 8;) {
    }
  }
  const int code =
      how == "mismatch" && rank == size - 1 ? ncclBroadcast(own, own, 4, kInt32, 0, comm, stream)
      : how == "mismatch-send" ? rank == 0 ? ncclSend(own, 4, kInt32, size - 1, comm, stream)
                                 : rank == size - 1 ? ncclRecv(own, 3, kInt32, 0, comm, stream)
                                                    : 0
      : how == "receives"      ? ncclRecv(own, 4, kInt32, size - 1, comm, stream)
                               : ncclAllReduce(own, own, 4, kInt32, 0, comm, stream);
  if (code != 0 && code != 5 && code != 6) must(code, "the collective");
  if (how == "late" || how == "computes") {
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    say(how.c_str(), read(own, 16));
    return ncclCommDestroy(comm);
  }
  return wait_for_error(comm);
}

/// A rank that does not come, and one that waits for another collective.
int stuck() {
  auto* const comm = enter();
  auto* const own = integers(4, rank);
  void* pair = nullptr;
  MUST(ncclCommSplit(comm, rank / 2, 0, &pair, nullptr));
  if (rank == 1) {
    MUST(ncclAllReduce(own, own, 4, kInt32, 0, comm, stream));
  } else {
    MUST(ncclAllReduce(own, own, 2, kInt32, 0, pair, stream));
    if (rank > 1) MUST(ncclBroadcast(own, own, 1, kInt32, 0, comm, stream));
  }
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return 0;
}

/// Each rank more than the one before it.
int takes(std::size_t each_mib) {
  auto* const comm = enter();
  auto* const own = integers(1, rank);
  MUST(ncclAllReduce(own, own, 1, kInt32, 0, comm, stream));
  void* more = nullptr;
  const int code = cudaMalloc(&more, each_mib * static_cast<std::size_t>(rank + 1) << 20);
  MUST(ncclCommDestroy(comm));
  return code != 0;
}

/// A communicator of all, and one with each neighbour, as a pipeline of PyTorch's has them.
int pairs() {
  auto* const comm = enter();
  auto* const own = integers(1, rank);
  MUST(ncclAllReduce(own, own, 1, kInt32, 0, comm, stream));
  std::vector<void*> all{comm};
  const auto as_of_pair = [&](int lower) {
    const int whole = size, shown = rank;
    rank = shown - lower;
    size = 2;
    all.push_back(enter(("pair" + std::to_string(lower)).c_str()));
    MUST(ncclSend(own, 1, kInt32, 1 - rank, all.back(), stream));
    MUST(ncclRecv(own, 1, kInt32, 1 - rank, all.back(), stream));
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    size = whole;
    rank = shown;
  };
  if (rank > 0) as_of_pair(rank - 1);
  if (rank < size - 1) as_of_pair(rank);
  for (auto* const one : all) MUST(ncclCommDestroy(one));
  return 0;
}

/// Ranks 3 and 5 of a program as a communicator of its own.
int members_of_pair(const char*, std::uint64_t, int of, int, int* members) {
  if (of != 2) return 0;
  members[0] = 3;
  members[1] = 5;
  return 1;
}

/// Ranks of which some do not run: 0 and 3 of 8 do.
int named() {
  std::printf("rank %d: of %s, %s of %s on node %s of %s\n", rank, std::getenv("WORLD_SIZE"),
              std::getenv("LOCAL_RANK"), std::getenv("LOCAL_WORLD_SIZE"), std::getenv("GROUP_RANK"),
              std::getenv("GROUP_WORLD_SIZE"));
  auto* const comm = enter();
  auto *const own = integers(1, rank + 1), *const to = integers(8, -1);
  MUST(ncclAllReduce(own, to, 1, kInt32, 0, comm, stream));
  say("sum", read(to, 4));
  MUST(ncclAllGather(own, to, 1, kInt32, comm, stream));
  say("all", read(to, 32));
  MUST(ncclBroadcast(own, to, 1, kInt32, 3, comm, stream));
  say("of 3", read(to, 4));
  MUST(ncclBroadcast(own, to, 1, kInt32, 5, comm, stream));
  say("of 5", read(to, 4));
  MUST(ncclRecv(to, 1, kInt32, 5, comm, stream));
  say("from 5", read(to, 4));
  MUST(ncclGroupStart());
  for (int peer = 0; peer < size; ++peer) {
    MUST(ncclSend(own, 1, kInt32, peer, comm, stream));
    MUST(ncclRecv(to + 4 * peer, 1, kInt32, peer, comm, stream));
  }
  MUST(ncclGroupEnd());
  say("from each", read(to, 32));
  auto* const rows = memory(
      row(kInt32, 8, [](std::size_t i) { return 100.0 * (rank + 1) + static_cast<double>(i); }));
  MUST(ncclAlltoAll(rows, to, 1, kInt32, comm, stream));
  say("exchanged", read(to, 32));
  MUST(ncclReduceScatter(rows, to, 1, kInt32, 0, comm, stream));
  say("piece", read(to, 4));
  void* large = nullptr;
  must(cudaMalloc(&large, 4 << 20), "cudaMalloc");
  MUST(ncclAllReduce(large, large, 1 << 20, kFloat, 0, comm, stream));
  MUST(ncclAllGather(large, large, 1 << 17, kFloat, comm, stream));
  MUST(ncclReduceScatter(large, large, 1 << 17, kFloat, 0, comm, stream));
  MUST(ncclRecv(large, 1 << 20, kFloat, 5, comm, stream));
  int without[] = {5};
  void *fewer = nullptr, *half = nullptr;
  MUST(ncclCommShrink(comm, without, 1, &fewer, nullptr, 0));
  MUST(ncclAllReduce(own, to, 1, kInt32, 0, fewer, stream));
  say("fewer", read(to, 4));
  MUST(ncclCommDestroy(fewer));
  must(ncclCommSplit(comm, rank % 2, 0, &half, nullptr), "a split", 5);
  Id id{};
  MUST(ncclGetUniqueId(&id));
  must(ncclCommInitRank(&half, 2, id, 0), "two ranks that nobody knows", 4);
  std::printf("rank %d: %s\n", rank, ncclGetLastError(comm));
  if (rank == 3) {
    std::string path = std::getenv("EMM_STANDIN_DRIVER");
    path.resize(path.rfind('/'));
    void* const answers = dlopen((path + "/libemm-answers.so").c_str(), RTLD_NOW);
    reinterpret_cast<void (*)(void*)>(dlsym(answers, "emm_standin_ask_members"))(
        reinterpret_cast<void*>(members_of_pair));
    MUST(ncclCommInitRank(&half, 2, id, 0));
    MUST(ncclAllReduce(own, to, 1, kInt32, 0, half, stream));
    say("pair", read(to, 4));
    MUST(ncclCommDestroy(half));
  }
  must(cudaMalloc(&large, static_cast<std::size_t>(8 * (rank + 1)) << 20), "cudaMalloc");
  MUST(ncclCommDestroy(comm));
  return 0;
}

int forks() {
  auto* const comm = enter();
  auto* const own = integers(1, rank);
  const auto child = fork();
  if (child == 0) {
    int count = 0;
    std::printf("rank %d: in a child %d\n", rank, ncclCommCount(comm, &count));
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  MUST(ncclAllReduce(own, own, 1, kInt32, 0, comm, stream));
  say("sum", read(own, 4));
  MUST(ncclCommDestroy(comm));
  return 0;
}

int wrong_calls() {
  void* comm = nullptr;
  Id id{};
  MUST(ncclGetUniqueId(&id));
  must(ncclCommInitRank(&comm, 2, id, 2), "a rank beyond", 4);
  must(ncclGroupEnd(), "ncclGroupEnd alone", 5);
  MUST(ncclCommInitRank(&comm, 1, id, 0));
  auto* const own = integers(1, 7);
  must(ncclAllReduce(own, own, 1, 99, 0, comm, stream), "a type of none", 4);
  must(ncclBroadcast(own, own, 1, kInt32, 1, comm, stream), "a root beyond", 4);
  MUST(ncclAllReduce(own, own, 1, kInt32, 0, comm, stream));
  say("alone", read(own, 4));
  MUST(ncclCommDestroy(comm));
  void* made = nullptr;
  MUST(ncclMemAlloc(&made, 1 << 20));
  MUST(ncclMemFree(made));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  // Takes the first variable that is there: launchers set different ones.
  const auto number = [](const std::vector<const char*>& names, int otherwise) {
    for (const auto* name : names) {
      if (const char* const given_one = std::getenv(name)) return std::atoi(given_one);
    }
    return otherwise;
  };
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  rank = number({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
                 "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK"},
                0);
  size = number({"SIZE"}, 1);
  const int local = number(
      {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
       "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID", "JSM_NAMESPACE_LOCAL_RANK"},
      rank);
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  must(cudaSetDevice(local % devices), "cudaSetDevice");
  must(cudaStreamCreateWithFlags(&stream, 1), "stream");
  if (what == "values") return values();
  if (what == "sends") return sends();
  if (what == "splits") return splits();
  if (what == "devices") return all_devices();
  if (what == "crossed") return crossed();
  if (what == "ordered") return ordered();
  if (what == "ends") return ends(words[2]);
  if (what == "stuck") return stuck();
  if (what == "takes") return takes(count > 2 ? std::strtoul(words[2], nullptr, 10) : 8);
  if (what == "forks") return forks();
  if (what == "named") return named();
  if (what == "pairs") return pairs();
  if (what == "fails") return rank == 3 ? 7 : 0;
  if (what == "wrong") return wrong_calls();
  return 2;
}
