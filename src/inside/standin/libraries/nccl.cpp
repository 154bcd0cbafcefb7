// NCCL: communicators that know their size and rank. Nothing is sent.
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "standin/libraries/handles.hpp"

using namespace emm::standin;

extern "C" {
int cuMemAlloc_v2(std::uint64_t*, std::size_t);
int cuMemFree_v2(std::uint64_t);
int cuCtxGetDevice(int*);
}

namespace {

struct Communicator {
  int size = 1, rank = 0, device = 0;
};
struct Id {
  char bytes[128];
};

Status make(Communicator** out, int size, int rank) {
  auto* const made = new Communicator{size, rank, 0};
  (void)cuCtxGetDevice(&made->device);
  *out = made;
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Status ncclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
Status ncclGetUniqueId(Id* out) {
  static std::atomic<unsigned> last{0};
  std::memset(out, 0, sizeof *out);
  const struct {
    pid_t process;
    unsigned number;
  } words{getpid(), ++last};
  std::memcpy(out->bytes, &words, sizeof words);
  return 0;
}
Status ncclCommInitRank(Communicator** out, int size, Id, int rank) {
  return make(out, size, rank);
}
Status ncclCommInitRankConfig(Communicator** out, int size, Id, int rank, void*) {
  return make(out, size, rank);
}
Status ncclCommInitRankScalable(Communicator** out, int size, int rank, int, void*, void*) {
  return make(out, size, rank);
}
Status ncclCommInitAll(Communicator** out, int size, const int* devices) {
  for (int rank = 0; rank < size; ++rank) {
    out[rank] = new Communicator{size, rank, devices != nullptr ? devices[rank] : rank};
  }
  return 0;
}
// Every rank of it is taken to be in the new one: which colours the others chose is not known.
Status ncclCommSplit(const Communicator* of, int colour, int, Communicator** out, void*) {
  constexpr int kNone = -1;  // NCCL_SPLIT_NOCOLOR
  *out = nullptr;
  if (colour == kNone) return 0;
  *out = new Communicator(*of);
  return 0;
}
Status ncclCommDestroy(Communicator* comm) {
  delete comm;
  return 0;
}
Status ncclCommAbort(Communicator* comm) { return ncclCommDestroy(comm); }
Status ncclCommGetAsyncError(const Communicator*, Status* error) {
  *error = 0;
  return 0;
}
Status ncclCommCount(const Communicator* comm, int* count) {
  *count = comm->size;
  return 0;
}
Status ncclCommUserRank(const Communicator* comm, int* rank) {
  *rank = comm->rank;
  return 0;
}
Status ncclCommCuDevice(const Communicator* comm, int* device) {
  *device = comm->device;
  return 0;
}
Status ncclMemAlloc(void** out, std::size_t size) {
  std::uint64_t made = 0;
  const auto code = cuMemAlloc_v2(&made, size);
  *out = reinterpret_cast<void*>(made);  // NOLINT
  return code == 0 ? 0 : 1;              // ncclUnhandledCudaError
}
Status ncclMemFree(void* ptr) {
  return cuMemFree_v2(reinterpret_cast<std::uintptr_t>(ptr)) == 0 ? 0 : 1;
}
Status ncclCommRegister(const Communicator*, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return 0;
}
const char* ncclGetErrorString(Status status) {
  return status == 0 ? "no error" : "unhandled cuda error";
}
const char* ncclGetLastError(const Communicator*) { return ""; }

}  // extern "C"
#pragma GCC visibility pop
