// Captures of streams, and graphs.
#include "standin/graph.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

using namespace emm::standin;

namespace emm::standin::graph {
namespace {

struct Node {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
};
struct Graph {
  std::vector<Node> nodes;
  std::vector<std::pair<Address, std::size_t>> ranges;
  std::size_t kernels = 0;  // they are nodes that do nothing
};
struct Capture {
  Handle origin = 0;
  bool valid = true;
  std::set<Handle> streams;
  std::set<Handle> events;
  Graph graph;
};

/// All captures and graphs. Never destroyed, like the machine.
struct Book {
  std::mutex mutex;
  std::vector<std::unique_ptr<Capture>> captures;
  std::map<Handle, Graph> graphs, executables;
  Handle next = 0x67000000;
};
Book& book() {
  static auto& made = *new Book;
  return made;
}
/// The number of captures, so that a program without captures takes no lock.
std::atomic<std::size_t> running{0};

Capture* capture_of(Handle stream) {
  for (const auto& one : book().captures) {
    if (one->streams.count(stream) != 0) return one.get();
  }
  return nullptr;
}

/// Calls `use` with the capture of the stream.
template <class Use>
Code with_capture(Handle stream, Use use) {
  const std::lock_guard lock(book().mutex);
  auto* const found = capture_of(stream);
  if (found == nullptr) return kIllegalState;
  if (!found->valid) return kInvalidated;
  use(*found);
  return Machine::kSuccess;
}

void release_ranges(const Graph& graph) {
  for (const auto& range : graph.ranges) {
    (void)in_context(
        [&](Driver& driver) { return driver.mem_address_free({range.first}, range.second); });
  }
}

}  // namespace

bool is_capturing(Handle stream) {
  if (running.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(book().mutex);
  return capture_of(stream) != nullptr;
}

Code add_alloc(Address* out, std::size_t size, Handle stream) {
  constexpr std::size_t kStep = std::size_t{2} << 20;  // the granularity of cuMemAddressReserve
  const auto whole = (size + kStep - 1) / kStep * kStep;
  const auto code =
      in_context([&](Driver& driver) { return driver.mem_address_reserve(whole, 0, {}); },
                 [&](DevicePtr ptr) { *out = ptr.value; });
  if (code != Machine::kSuccess) return code;
  return with_capture(stream,
                      [&](Capture& capture) { capture.graph.ranges.emplace_back(*out, whole); });
}
Code add_free(Address, Handle stream) {
  return with_capture(stream, [](Capture&) {});
}
Code add_host_function(Handle stream, void (*function)(void*), void* argument) {
  return with_capture(stream, [&](Capture& capture) {
    capture.graph.nodes.push_back({function, argument});
  });
}
void note_kernel() {
  if (running.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(book().mutex);
  for (const auto& one : book().captures) ++one->graph.kernels;
}
Code add_event(Handle event, Handle stream) {
  return with_capture(stream, [&](Capture& capture) { capture.events.insert(event); });
}
bool join(Handle stream, Handle event) {
  if (running.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(book().mutex);
  for (const auto& one : book().captures) {
    if (one->events.count(event) == 0) continue;
    one->streams.insert(stream);
    return true;
  }
  return false;
}
void forget_event(Handle event) {
  if (running.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(book().mutex);
  for (const auto& one : book().captures) one->events.erase(event);
}
Code refuse(Handle stream) {
  const std::lock_guard lock(book().mutex);
  if (auto* const found = capture_of(stream)) found->valid = false;
  return kUnsupported;
}

}  // namespace emm::standin::graph

using namespace emm::standin::graph;

namespace {

Code instantiate(Handle* out, Handle graph) {
  const std::lock_guard lock(book().mutex);
  const auto found = book().graphs.find(graph);
  if (found == book().graphs.end()) return Machine::kInvalidValue;
  *out = ++book().next;
  book().executables[*out] = {.nodes = found->second.nodes, .ranges = {}};
  return Machine::kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuStreamBeginCapture_v2(Handle on, int) {
  if (Machine::started() == nullptr) return Machine::kNotInitialized;
  if (on <= 1) return kUnsupported;  // the legacy stream
  const std::lock_guard lock(book().mutex);
  if (capture_of(on) != nullptr) return kIllegalState;
  auto made = std::make_unique<Capture>();
  made->origin = on;
  made->streams.insert(on);
  book().captures.push_back(std::move(made));
  ++running;
  return Machine::kSuccess;
}
Code cuStreamEndCapture(Handle on, Handle* graph) {
  Graph dropped;
  const auto code = [&] {
    const std::lock_guard lock(book().mutex);
    *graph = 0;
    auto& all = book().captures;
    for (auto at = all.begin(); at != all.end(); ++at) {
      if ((*at)->streams.count(on) == 0) continue;
      if ((*at)->origin != on) return kUnmatched;
      const auto ended = std::move(*at);
      all.erase(at);
      --running;
      if (!ended->valid) {
        dropped = std::move(ended->graph);
        return kInvalidated;
      }
      *graph = ++book().next;
      book().graphs[*graph] = std::move(ended->graph);
      return Machine::kSuccess;
    }
    return kIllegalState;
  }();
  release_ranges(dropped);
  return code;
}
Code cuStreamIsCapturing(Handle on, int* status) {
  const std::lock_guard lock(book().mutex);
  const auto* const found = capture_of(on);
  *status = found == nullptr ? 0 : found->valid ? 1 : 2;
  return Machine::kSuccess;
}
Code cuThreadExchangeStreamCaptureMode(int*) { return Machine::kSuccess; }
Code cuGraphInstantiateWithFlags(Handle* out, Handle graph, unsigned long long) {
  return instantiate(out, graph);
}
Code cuGraphInstantiate_v2(Handle* out, Handle graph, Handle*, char*, std::size_t) {
  return instantiate(out, graph);
}
Code cuGraphLaunch(Handle graph, Handle on) {
  std::vector<Node> nodes;
  {
    const std::lock_guard lock(book().mutex);
    const auto found = book().executables.find(graph);
    if (found == book().executables.end()) return Machine::kInvalidValue;
    nodes = found->second.nodes;
  }
  for (const auto& node : nodes) {
    const auto code = in_context([&](emm::Driver& driver) {
      return driver.launch_host_func(stream(on), node.function, node.argument);
    });
    if (code != Machine::kSuccess) return code;
  }
  return Machine::kSuccess;
}
Code cuGraphGetNodes(Handle graph, Handle* nodes, std::size_t* count) {
  const std::lock_guard lock(book().mutex);
  const auto found = book().graphs.find(graph);
  if (found == book().graphs.end()) return Machine::kInvalidValue;
  // They are counted, and none can be looked at.
  *count = nodes != nullptr ? 0 : found->second.nodes.size() + found->second.kernels;
  return Machine::kSuccess;
}
Code cuGraphExecDestroy(Handle graph) {
  const std::lock_guard lock(book().mutex);
  return book().executables.erase(graph) != 0 ? Machine::kSuccess : Machine::kInvalidValue;
}
Code cuGraphDestroy(Handle graph) {
  Graph ended;
  {
    const std::lock_guard lock(book().mutex);
    const auto found = book().graphs.find(graph);
    if (found == book().graphs.end()) return Machine::kInvalidValue;
    ended = std::move(found->second);
    book().graphs.erase(found);
  }
  release_ranges(ended);
  return Machine::kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
