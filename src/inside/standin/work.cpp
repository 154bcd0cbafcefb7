#include "standin/work.hpp"

#include <iterator>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "driver/sim/content.hpp"
#include "driver/sim/memory_access.hpp"
#include "driver/sim/sim_platform.hpp"
#include "standin/graph.hpp"
#include "standin/report.hpp"

namespace emm::standin::work {
namespace {

using All = std::vector<Done>;

/// What streams and events wait for. Never destroyed, like the machine.
struct Book {
  std::mutex mutex;
  std::unordered_map<Handle, All> streams, events;
  std::unordered_set<Handle> apart;  // streams that the legacy one does not order
};
Book& book() {
  static auto& made = *new Book;
  return made;
}
/// The number of streams and events in the book, so that a program without such work takes no lock.
std::atomic<std::size_t> noted{0};

Handle one_name(Handle stream) { return stream == 1 ? 0 : stream; }  // of the legacy stream

/// Drops what has ended. True if nothing is left.
bool is_over(All& all) {
  std::erase_if(all, [](const Done& one) { return one->load(std::memory_order_acquire); });
  return all.empty();
}

void count() { noted = book().streams.size() + book().events.size(); }

void add(All& to, const All& more) { to.insert(to.end(), more.begin(), more.end()); }

/// What a stream waits for. The caller holds the lock.
All of_stream(Handle stream) {
  const auto legacy_orders = [](Handle other) { return book().apart.count(other) == 0; };
  All all;
  for (auto& [handle, one] : book().streams) {
    const bool before = handle == stream || (stream == 0 && legacy_orders(handle)) ||
                        (handle == 0 && legacy_orders(stream));
    if (before && !is_over(one)) add(all, one);
  }
  return all;
}

}  // namespace

bool holds_stream(Handle stream) {
  if (noted == 0) return false;
  const std::lock_guard lock(book().mutex);
  auto& streams = book().streams;
  for (auto at = streams.begin(); at != streams.end();)
    at = is_over(at->second) ? streams.erase(at) : std::next(at);
  count();
  return !of_stream(one_name(stream)).empty();
}

bool holds_event(Handle event) {
  if (noted == 0) return false;
  const std::lock_guard lock(book().mutex);
  const auto found = book().events.find(event);
  if (found == book().events.end()) return false;
  if (!is_over(found->second)) return true;
  book().events.erase(found);
  count();
  return false;
}

void recorded(Handle event, Handle stream) {
  if (noted == 0) return;
  const std::lock_guard lock(book().mutex);
  auto all = of_stream(one_name(stream));
  if (all.empty()) {
    book().events.erase(event);
  } else {
    book().events[event] = std::move(all);
  }
  count();
}

void waits(Handle stream, Handle event) {
  if (noted == 0) return;
  const std::lock_guard lock(book().mutex);
  const auto found = book().events.find(event);
  if (found != book().events.end() && !is_over(found->second))
    add(book().streams[one_name(stream)], found->second);
  count();
}

void forget_event(Handle event) {
  if (noted == 0) return;
  const std::lock_guard lock(book().mutex);
  book().events.erase(event);
  count();
}

void made_apart(Handle stream) {
  const std::lock_guard lock(book().mutex);
  book().apart.insert(stream);
}

void forget_stream(Handle stream) {
  const std::lock_guard lock(book().mutex);
  book().streams.erase(one_name(stream));
  book().apart.erase(stream);
  count();
}

}  // namespace emm::standin::work

namespace {

using namespace emm::standin;
using emm::sim::Asker;
using emm::sim::Work;

/// Calls `use` with the simulated platform and the calling thread's context.
template <class Use>
Code with_platform(Use use) {
  auto* const machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* const platform = machine->simulated();
  auto* const context = Machine::current();
  if (platform == nullptr) return Machine::kNotSupported;
  if (context == nullptr) return Machine::kInvalidContext;
  auto& driver = *context->device.driver;
  return use(*platform, Asker{driver.device_ordinal(), driver.context_handle()});
}

Code access(Address at, std::size_t size, auto use) {
  auto* const machine = Machine::started();
  auto* const platform = machine != nullptr ? machine->simulated() : nullptr;
  if (platform == nullptr) return Machine::kNotInitialized;
  if (size == 0) return Machine::kSuccess;
  emm::sim::MemoryAccess memory(*platform, {at});
  return use(memory);
}

emm::sim::Scheduler* scheduler_of_machine() {
  auto* const machine = Machine::started();
  auto* const platform = machine != nullptr ? machine->simulated() : nullptr;
  return platform != nullptr ? &platform->scheduler() : nullptr;
}

struct Writing {
  Address to;
  std::vector<std::byte> bytes;
};
void write_now(void* argument) {
  const std::unique_ptr<Writing> writing(static_cast<Writing*>(argument));
  (void)emm_standin_write(writing->to, writing->bytes.data(), writing->bytes.size());
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code emm_standin_put_work(Handle on, void (*function)(void*), void* argument,
                          const work::Done* done, Handle* mark) {
  *mark = 0;
  if (graph::is_capturing(on)) return graph::add_host_function(on, function, argument);
  const auto code = with_platform([&](emm::SimPlatform& platform, Asker asker) {
    return platform.scheduler().put(
        asker, stream(on),
        {.kind = Work::Kind::host_function, .function = function, .argument = argument});
  });
  if (code != Machine::kSuccess) return code;
  {
    const std::lock_guard lock(work::book().mutex);
    work::book().streams[work::one_name(on)].push_back(*done);
    work::count();
  }
  return emm_standin_mark(on, mark);
}

Code emm_standin_mark(Handle on, Handle* mark) {
  return with_platform([&](emm::SimPlatform& platform, Asker asker) {
    auto& scheduler = platform.scheduler();
    *mark = scheduler.create_event(asker);
    return scheduler.record(asker, {*mark}, stream(on));
  });
}

void emm_standin_finish(Handle mark) {
  if (auto* const scheduler = scheduler_of_machine()) {
    (void)scheduler->synchronize(emm::EventHandle{mark});
    (void)scheduler->destroy_event({mark});
  }
}
void emm_standin_drop(Handle mark) {
  if (auto* const scheduler = scheduler_of_machine()) (void)scheduler->destroy_event({mark});
}

Code emm_standin_read(Address from, void* to, std::size_t size) {
  return access(from, size, [&](emm::sim::MemoryAccess& memory) {
    return memory.read({from}, {static_cast<std::byte*>(to), size});
  });
}
Code emm_standin_write(Address to, const void* from, std::size_t size) {
  // Bytes: numbers and masks that a program reads back to decide by.
  constexpr std::size_t kAlwaysKept = 4096;
  if (size > kAlwaysKept && emm::sim::kept_bytes() > kMostContent) return Machine::kNotSupported;
  return access(to, size, [&](emm::sim::MemoryAccess& memory) {
    return memory.write({to}, {static_cast<const std::byte*>(from), size});
  });
}
Code emm_standin_put_write(Handle on, Address to, const void* from, std::size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  auto writing = std::make_unique<Writing>(Writing{to, {bytes, bytes + size}});
  const auto code = with_platform([&](emm::SimPlatform& platform, Asker asker) {
    return platform.scheduler().put(
        asker, stream(on),
        {.kind = Work::Kind::host_function, .function = write_now, .argument = writing.get()});
  });
  if (code != Machine::kSuccess) return code;
  (void)writing.release();  // write_now() deletes it
  // Where nothing else is in its way it is done at once, so that no event behind it seems late.
  if (work::holds_stream(on)) return code;
  Handle mark = 0;
  if (emm_standin_mark(on, &mark) == Machine::kSuccess) emm_standin_finish(mark);
  return code;
}

}  // extern "C"
#pragma GCC visibility pop
