#include "plugin/running_call.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/text.hpp"

namespace emm::plugin {
namespace {

CallMarks own_marks;
std::atomic<CallMarks*> marks{&own_marks};
std::atomic<std::uint64_t (*)() noexcept> event_of{nullptr};

/// Owns the mark of a thread and releases it when the thread ends.
class ThreadMark {
 public:
  ThreadMark() noexcept : mark_(&take()) {}
  ThreadMark(const ThreadMark&) = delete;
  ThreadMark& operator=(const ThreadMark&) = delete;
  ~ThreadMark() { mark_->taken.store(false, std::memory_order_release); }
  CallMark& mark() const noexcept { return *mark_; }
  /// Takes a mark in the process's current array.
  void move() noexcept { mark_ = &take(); }
  const char* slot = nullptr;
  std::uint64_t event = CallMark::kNoEvent;

 private:
  static CallMark& take() noexcept {
    auto& all = marks.load()->threads;
    for (auto& mark : all) {
      if (!mark.taken.load(std::memory_order_relaxed) && !mark.taken.exchange(true)) return mark;
    }
    return all.back();
  }
  CallMark* mark_;
};
ThreadMark& thread_mark() noexcept {
  thread_local ThreadMark here;
  return here;
}

void say(ThreadMark& here, const char* slot, std::uint64_t event) noexcept {
  here.slot = slot;
  here.event = event;
  auto& mark = here.mark();
  mark.slot.store(slot, std::memory_order_relaxed);
  mark.event.store(event, std::memory_order_relaxed);
  mark.changes.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

const char* kept_name(std::string name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  return names.emplace_back(text::printable(name, std::string::npos)).c_str();
}

RunningCall::RunningCall(const char* slot) noexcept {
  auto& here = thread_mark();
  outer_slot_ = here.slot;
  outer_event_ = here.event;
  const auto event = event_of.load(std::memory_order_relaxed);
  say(here, slot, event != nullptr ? event() : CallMark::kNoEvent);
  here.mark().depth.fetch_add(1, std::memory_order_relaxed);
  marks.load(std::memory_order_relaxed)->last.store(slot, std::memory_order_relaxed);
}

RunningCall::~RunningCall() {
  auto& here = thread_mark();
  here.mark().depth.fetch_sub(1, std::memory_order_relaxed);
  say(here, outer_slot_, outer_event_);
}

bool RunningCall::here() noexcept { return slot() != nullptr; }
const char* RunningCall::slot() noexcept { return thread_mark().slot; }

std::uint64_t CallMarks::progress() const noexcept {
  auto sum = operations.load(std::memory_order_relaxed);
  for (const auto& mark : threads) sum += mark.changes.load(std::memory_order_relaxed);
  return sum;
}

void mark_calls_in(CallMarks& to) noexcept {
  marks.store(&to);
  thread_mark().move();
}

void mark_operation(std::string_view words) noexcept {
  auto& all = *marks.load(std::memory_order_relaxed);
  all.operations.fetch_add(1, std::memory_order_relaxed);
  auto& to = all.operation;
  const auto length = std::min(words.size(), to.size() - 1);
  std::memcpy(to.data(), words.data(), length);
  to[length] = '\0';
}

void mark_events_of(std::uint64_t (*event)() noexcept) noexcept { event_of.store(event); }

}  // namespace emm::plugin
