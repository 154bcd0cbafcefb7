// libemm-rmm.so offers RMM's memory resources as managers: --manager rmm:pool, arena, async,
// binning or cuda.
//
// It needs an RMM whose resources are classes under device_memory_resource; it was tried
// with 25.10.
#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#else
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#endif

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "emm_plugin.h"

namespace {

using Resource = rmm::mr::device_memory_resource;
using Cuda = rmm::mr::cuda_memory_resource;
using Pool = rmm::mr::pool_memory_resource<Cuda>;
using Arena = rmm::mr::arena_memory_resource<Cuda>;
using Binning = rmm::mr::binning_memory_resource<Pool>;

thread_local std::string last_words;

/// The order of the arguments is RMM's of that year.
template <class Any>
void* begin(Any& resource, std::size_t size, rmm::cuda_stream_view stream) {
  if constexpr (requires { resource.allocate(stream, size); }) {
    return resource.allocate(stream, size);
  } else {
    return resource.allocate(size, stream);
  }
}
template <class Any, class Memory>
void end(Any& resource, const Memory& memory) {
  if constexpr (requires { resource.allocate(memory.stream, memory.size); }) {
    resource.deallocate(memory.stream, memory.pointer, memory.size);
  } else {
    resource.deallocate(memory.pointer, memory.size, memory.stream);
  }
}

emm_status failed(emm_status status, const char* words) {
  last_words = words;
  return status;
}

}  // namespace

struct emm_manager {
  struct Memory {
    void* pointer;
    std::size_t size;
    rmm::cuda_stream_view stream;
  };

  std::string kind;
  std::unique_ptr<Cuda> cuda;  // bottom to top
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Resource> top;

  std::mutex mutex;
  std::map<emm_token, Memory> alive;  // by age
  emm_token last = 0;
  std::uint64_t live_bytes = 0;

  Resource& resource() {
    return top != nullptr ? *top : pool != nullptr ? static_cast<Resource&>(*pool) : *cuda;
  }

  void make() {
    if (cuda != nullptr) return;
    cuda = std::make_unique<Cuda>();
    if (kind == "pool" || kind == "binning") pool = std::make_unique<Pool>(cuda.get(), 0);
    if (kind == "binning")
      top = std::make_unique<Binning>(pool.get(), std::int8_t{18}, std::int8_t{22});
    if (kind == "arena") top = std::make_unique<Arena>(cuda.get());
    if (kind == "async") top = std::make_unique<rmm::mr::cuda_async_memory_resource>();
  }

  void release(const Memory& memory) { end(resource(), memory); }

  ~emm_manager() {
    if (cuda != nullptr) end_all();
  }
  void end_all() {
    for (const auto& [token, memory] : alive) release(memory);
    alive.clear();
    live_bytes = 0;
  }
};

namespace {

/// Runs `body` and returns its status, or the status of what RMM throws.
template <class Body>
emm_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc& error) {  // rmm::out_of_memory is one
    return failed(EMM_OUT_OF_MEMORY, error.what());
  } catch (const std::exception& error) {
    return failed(EMM_UNKNOWN_ERROR, error.what());
  }
}

std::size_t put_text(const std::string& text, char* buffer, std::size_t size) {
  if (size != 0) {
    const auto length = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return text.size();
}

rmm::cuda_stream_view view(emm_stream stream) {
  return rmm::cuda_stream_view{reinterpret_cast<cudaStream_t>(stream)};
}

/// RMM knows the freeing stream alone; emmctl's contract says that the memory's own counts, too.
void make_wait(rmm::cuda_stream_view stream, rmm::cuda_stream_view other) {
  cudaEvent_t event = nullptr;
  const bool ordered = cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
                       cudaEventRecord(event, other.value()) == cudaSuccess &&
                       cudaStreamWaitEvent(stream.value(), event, 0) == cudaSuccess;
  if (!ordered) static_cast<void>(cudaDeviceSynchronize());
  if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
}

emm_status create(const emm_create_v1* create, emm_manager** self) {
  std::string kind = create->options != nullptr ? create->options : "";
  for (const auto* known : {"pool", "arena", "async", "binning", "cuda"}) {
    if (kind != known) continue;
    *self = new emm_manager;
    (*self)->kind = kind;
    return EMM_SUCCESS;
  }
  return failed(EMM_INVALID_VALUE, "expected one of pool, arena, async, binning, cuda");
}

emm_status memalloc(emm_manager* self, std::uint64_t size, emm_stream stream, emm_memory* memory) {
  return guarded([&]() -> emm_status {
    auto* pointer = begin(self->resource(), size, view(stream));
    if (pointer == nullptr && size != 0)  // a size that RMM rounds beyond 2^64
      return failed(EMM_OUT_OF_MEMORY, "RMM gave no address");
    const std::lock_guard lock(self->mutex);
    memory->token = ++self->last;
    memory->device_pointer = reinterpret_cast<emm_device_ptr>(pointer);
    memory->host_pointer = nullptr;
    self->alive.emplace(memory->token, emm_manager::Memory{pointer, size, view(stream)});
    self->live_bytes += size;
    return EMM_SUCCESS;
  });
}

emm_status free_memory(emm_manager* self, emm_token token, emm_stream stream) {
  return guarded([&]() -> emm_status {
    std::unique_lock lock(self->mutex);
    const auto found = self->alive.find(token);
    if (found == self->alive.end()) return EMM_SUCCESS;
    auto memory = found->second;
    self->alive.erase(found);
    self->live_bytes -= memory.size;
    lock.unlock();
    if (stream != 0 && view(stream) != memory.stream) {
      make_wait(view(stream), memory.stream);
      memory.stream = view(stream);
    }
    self->release(memory);
    return EMM_SUCCESS;
  });
}

emm_status memory_info(emm_manager*, emm_memory_info* info) {
  std::size_t free = 0, total = 0;
  const auto code = cudaMemGetInfo(&free, &total);
  info->free = free;
  info->total = total;
  return static_cast<emm_status>(code);
}

const emm_plugin_table_v1 kTable = [] {
  emm_plugin_table_v1 table{};
  table.struct_size = sizeof table;
  table.abi_version = EMM_PLUGIN_ABI_VERSION;
  table.flags = EMM_PLUGIN_CALLS_CUDA;
  table.name = "rmm";
  table.summary = "RMM's memory resources";
  table.options = "pool, arena, async, binning or cuda";
  table.create = create;
  table.destroy = [](emm_manager* self) { delete self; };
  table.last_error = [](emm_manager*, char* buffer, std::size_t size) {
    return put_text(last_words, buffer, size);
  };
  table.report = [](emm_manager* self, char* buffer, std::size_t size) {
    if (self->pool == nullptr) return put_text("", buffer, size);
    return put_text("rmm: reserved_bytes: " + std::to_string(self->pool->pool_size()) + "\n",
                    buffer, size);
  };
  table.initialize = [](emm_manager* self) {
    return guarded([&]() -> emm_status {
      self->make();
      return EMM_SUCCESS;
    });
  };
  table.memalloc = memalloc;
  table.free = free_memory;
  table.get_memory_info = memory_info;
  table.reset = [](emm_manager* self) {
    const std::lock_guard lock(self->mutex);
    if (self->cuda != nullptr) self->end_all();
  };
  table.state = [](emm_manager* self, emm_state* state) {
    const std::lock_guard lock(self->mutex);
    state->live_bytes = self->live_bytes;
    if (self->pool != nullptr) state->reserved_bytes = self->pool->pool_size();
  };
  return table;
}();

}  // namespace

extern "C" const emm_plugin_table_v1* emm_plugin_v1() { return &kTable; }
