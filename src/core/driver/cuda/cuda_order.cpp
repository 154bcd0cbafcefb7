#include "driver/call.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/cuda/handles.hpp"

// Streams, events, work on them, and access between devices.
namespace emm {

using cuda::native;
using cuda::number;

Result<EventHandle> CudaDriver::event_create() {
  CUevent event = nullptr;
  auto made = make(Call::event_create, [&](const CudaApi& api) {
    return api.event_create(&event, CU_EVENT_DISABLE_TIMING);
  });
  if (!made) return std::move(made).error();
  return EventHandle{number(event)};
}

Status CudaDriver::event_destroy(EventHandle event) {
  return make(Call::event_destroy,
              [&](const CudaApi& api) { return api.event_destroy(native(event)); });
}

Status CudaDriver::event_record(EventHandle event, StreamHandle stream) {
  return make(Call::event_record,
              [&](const CudaApi& api) { return api.event_record(native(event), native(stream)); });
}

Result<bool> CudaDriver::event_query(EventHandle event) {
  return ask(Call::event_query, [&](const CudaApi& api) { return api.event_query(native(event)); });
}

Status CudaDriver::event_synchronize(EventHandle event) {
  return make(Call::event_synchronize,
              [&](const CudaApi& api) { return api.event_synchronize(native(event)); });
}

Result<StreamHandle> CudaDriver::stream_create(StreamKind kind) {
  CUstream stream = nullptr;
  auto made = make(Call::stream_create, [&](const CudaApi& api) {
    return api.stream_create(&stream, static_cast<unsigned>(kind));
  });
  if (!made) return std::move(made).error();
  return StreamHandle{number(stream)};
}

Status CudaDriver::stream_destroy(StreamHandle stream) {
  return make(Call::stream_destroy,
              [&](const CudaApi& api) { return api.stream_destroy(native(stream)); });
}

Status CudaDriver::stream_synchronize(StreamHandle stream) {
  return make(Call::stream_synchronize,
              [&](const CudaApi& api) { return api.stream_synchronize(native(stream)); });
}

Result<bool> CudaDriver::stream_query(StreamHandle stream) {
  return ask(Call::stream_query,
             [&](const CudaApi& api) { return api.stream_query(native(stream)); });
}

Status CudaDriver::stream_wait_event(StreamHandle stream, EventHandle event) {
  return make(Call::stream_wait_event, [&](const CudaApi& api) {
    return api.stream_wait_event(native(stream), native(event), 0);
  });
}

Status CudaDriver::memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                                   StreamHandle stream) {
  return make(Call::memset_d8_async, [&](const CudaApi& api) {
    return api.memset_d8_async(ptr.value, value, size, native(stream));
  });
}

Status CudaDriver::memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                                     StreamHandle stream) {
  return make(Call::memcpy_dtod_async, [&](const CudaApi& api) {
    return api.memcpy_dtod_async(to.value, from.value, size, native(stream));
  });
}

Status CudaDriver::launch_host_func(StreamHandle stream, HostFunction function, void* argument) {
  return make(Call::launch_host_func, [&](const CudaApi& api) {
    return api.launch_host_func(native(stream), function, argument);
  });
}

Status CudaDriver::ctx_enable_peer_access(ContextHandle peer) {
  return make(Call::ctx_enable_peer_access,
              [&](const CudaApi& api) { return api.ctx_enable_peer_access(native(peer), 0); });
}

Status CudaDriver::ctx_disable_peer_access(ContextHandle peer) {
  return make(Call::ctx_disable_peer_access,
              [&](const CudaApi& api) { return api.ctx_disable_peer_access(native(peer)); });
}

Status CudaDriver::memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                               ContextHandle from_context, std::uint64_t size) {
  return make(Call::memcpy_peer, [&](const CudaApi& api) {
    auto answer =
        api.memcpy_peer(to.value, native(to_context), from.value, native(from_context), size);
    // CUDA orders the copy with both contexts, and may return before it is done (cuMemcpyPeer).
    for (const auto context : {to_context, from_context}) {
      if (answer != 0) break;
      CUcontext popped = nullptr;
      answer = api.ctx_push_current(native(context));
      if (answer != 0) break;
      answer = api.ctx_synchronize();
      api.ctx_pop_current(&popped);
    }
    return answer;
  });
}

}  // namespace emm
