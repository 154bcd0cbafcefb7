#include "driver/call.hpp"
#include "driver/sim/memory_access.hpp"
#include "driver/sim/sim_driver.hpp"

// Streams, events, and the work on them.
namespace emm {

using sim::Answer;
using sim::MemoryAccess;
using sim::Work;

/// Makes a call that returns only a code, if the context's state allows.
template <class Ask>
Status SimDriver::ask(Call call, Ask&& question) {
  auto native = state();
  if (native == sim::kSuccess) native = question(platform_.scheduler());
  return platform_.conclude(call, {.native = native});
}

// The finished work may have caused a fault, so the state is read after it.
std::int32_t SimDriver::synchronized() {
  platform_.pools().synchronized(ordinal());
  return state();
}

Result<EventHandle> SimDriver::event_create() {
  Answer<EventHandle> answer{.native = state()};
  if (answer.native == sim::kSuccess) answer.value = {platform_.scheduler().create_event(asker())};
  return platform_.conclude(Call::event_create, answer);
}

Status SimDriver::event_destroy(EventHandle event) {
  return ask(Call::event_destroy, [&](auto& scheduler) { return scheduler.destroy_event(event); });
}

Status SimDriver::event_record(EventHandle event, StreamHandle stream) {
  return ask(Call::event_record,
             [&](auto& scheduler) { return scheduler.record(asker(), event, stream); });
}

Result<bool> SimDriver::event_query(EventHandle event) {
  Answer<bool> answer{.native = state()};
  if (answer.native == sim::kSuccess) answer = platform_.scheduler().query(event);
  return platform_.conclude(Call::event_query, answer);
}

Status SimDriver::event_synchronize(EventHandle event) {
  return ask(Call::event_synchronize, [&](auto& scheduler) {
    const auto native = scheduler.synchronize(event);
    return native == sim::kSuccess ? synchronized() : native;
  });
}

Result<StreamHandle> SimDriver::stream_create(StreamKind kind) {
  Answer<StreamHandle> answer{.native = state()};
  if (answer.native == sim::kSuccess)
    answer.value = {platform_.scheduler().create_stream(asker(), kind)};
  return platform_.conclude(Call::stream_create, answer);
}

Status SimDriver::stream_destroy(StreamHandle stream) {
  return ask(Call::stream_destroy,
             [&](auto& scheduler) { return scheduler.destroy_stream(stream); });
}

Status SimDriver::stream_synchronize(StreamHandle stream) {
  return ask(Call::stream_synchronize, [&](auto& scheduler) {
    const auto native = scheduler.synchronize(asker(), stream);
    return native == sim::kSuccess ? synchronized() : native;
  });
}

Result<bool> SimDriver::stream_query(StreamHandle stream) {
  Answer<bool> answer{.native = state()};
  if (answer.native == sim::kSuccess) answer = platform_.scheduler().query(asker(), stream);
  return platform_.conclude(Call::stream_query, answer);
}

Status SimDriver::stream_wait_event(StreamHandle stream, EventHandle event) {
  return ask(Call::stream_wait_event,
             [&](auto& scheduler) { return scheduler.wait_event(asker(), stream, event); });
}

Status SimDriver::ctx_synchronize() {
  platform_.scheduler().finish(ordinal());
  return platform_.conclude(Call::ctx_synchronize, {.native = synchronized()});
}

// Refuses at once an address that belongs to no memory. If memory is freed later, the work finds
// that when it is done, which is a fault of the context.
Status SimDriver::put(Call call, StreamHandle stream, const Work& work) {
  return ask(call, [&](auto& scheduler) -> std::int32_t {
    if (work.size == 0) return scheduler.check(asker(), stream);
    {
      const bool copies = work.kind == Work::Kind::copy;
      MemoryAccess access(platform_, work.to, copies ? work.from : work.to);
      if (!access.holds(work.to, work.size, sim::Use::write)) return sim::kInvalidValue;
      if (copies && !access.holds(work.from, work.size, sim::Use::read)) return sim::kInvalidValue;
    }
    return scheduler.put(asker(), stream, work);
  });
}

Status SimDriver::memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                                  StreamHandle stream) {
  return put(Call::memset_d8_async, stream,
             {.kind = Work::Kind::fill, .to = ptr, .size = size, .value = value * 0x01010101u});
}

Status SimDriver::memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                                    StreamHandle stream) {
  return put(Call::memcpy_dtod_async, stream,
             {.kind = Work::Kind::copy, .to = to, .from = from, .size = size});
}

Status SimDriver::launch_host_func(StreamHandle stream, HostFunction function, void* argument) {
  const Work work{.kind = Work::Kind::host_function, .function = function, .argument = argument};
  return ask(Call::launch_host_func, [&](auto& scheduler) -> std::int32_t {
    return function == nullptr ? sim::kInvalidValue : scheduler.put(asker(), stream, work);
  });
}

}  // namespace emm
