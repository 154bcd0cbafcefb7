#include "conformance/watch.hpp"

#include <algorithm>
#include <atomic>

#include "base/text_format.hpp"
#include "conformance/cuda_results.hpp"
#include "driver/call.hpp"
#include "plugin/running_call.hpp"

namespace emm::conformance {

namespace {

thread_local std::atomic<bool> in_call{false};

}  // namespace

ReplaceableHook& ReplaceableHook::operator=(Function function) {
  auto made = function ? std::make_shared<Replaceable>() : nullptr;
  if (made) made->function = std::move(function);
  std::unique_lock lock(mutex_);
  std::swap(current_, made);
  if (!made) return *this;
  const auto self = std::this_thread::get_id();
  ended_.wait(lock, [&] {
    return std::all_of(made->callers.begin(), made->callers.end(),
                       [&](const auto caller) { return caller == self; });
  });
  return *this;
}

void ReplaceableHook::operator()(const CallEvent& event) const {
  const Running running(*this);
  if (running.called) running.called->function(event);
}

ReplaceableHook::Running::Running(const ReplaceableHook& hook) : hook_(hook) {
  const std::lock_guard lock(hook.mutex_);
  called = hook.current_;
  if (called) called->callers.push_back(std::this_thread::get_id());
}

ReplaceableHook::Running::~Running() {
  if (!called) return;
  const std::lock_guard lock(hook_.mutex_);
  auto& callers = called->callers;
  callers.erase(std::find(callers.begin(), callers.end(), std::this_thread::get_id()));
  hook_.ended_.notify_all();
}

Watch::Watch() { ledger_.tell_makers_by(plugin::RunningCall::slot); }

bool Watch::is_in_call() noexcept { return in_call.load(std::memory_order_relaxed); }

bool is_end(Call call) noexcept {
  switch (call) {
    case Call::mem_free:
    case Call::mem_free_host:
    case Call::mem_host_unregister:
    case Call::event_destroy:
    case Call::stream_destroy:
    case Call::library_unload:
    case Call::runtime_free:
    case Call::mem_release:
    case Call::mem_unmap:
    case Call::mem_address_free:
    case Call::mem_pool_destroy:
    case Call::mem_free_async:
    case Call::ipc_close_mem_handle:
      return true;
    default:
      return false;
  }
}

namespace {

/// Answers whether the driver may return this error to a correct manager.
bool may_fail(const CallEvent& event) {
  constexpr std::int32_t kNotSupported = 801;  // the device has no such memory or call
  switch (event.native) {
    case kOutOfMemory:
    case kNotReady:
    case kAlreadyRegistered:
    case kNotSupported:
      return true;
    case kInvalidValue:
      // Size 0 was asked for, or the call is a query, or the device does not support the flags.
      return (event.size == 0 && !is_end(event.call)) || event.call == Call::mem_host_register;
    default:
      return false;
  }
}

/// Answers whether this side makes the context current for a slot of a plugin that calls CUDA
/// itself (BASE-6). Such a call never fails with those of the manager: the slot would run without a
/// context, and answer 201 instead of what the driver answers it.
bool is_of_the_host(Call call) {
  return (call == Call::ctx_push_current || call == Call::ctx_pop_current) &&
         !plugin::RunningCall::here();
}

}  // namespace

std::int32_t Watch::before(const CallEvent& event) {
  in_call = true;
  during(event);
  const std::lock_guard lock(mutex_);
  ++total_;
  const auto count = ++counts_[event.call];
  const bool is_hosts = is_of_the_host(event.call);
  auto native = is_hosts ? 0 : all_;
  if (const auto always = always_.find(event.call); always != always_.end())
    native = always->second;
  if (auto& answers = answers_[event.call]; !answers.empty()) {
    native = answers.front();
    answers.pop_front();
  }
  if (until_fault_ != 0 && !is_hosts && of_ends_ == is_end(event.call) && --until_fault_ == 0) {
    native = native_;
    failed_nth_ = true;
  }
  if (native == 0) return ledger_.before(event);
  any_refused_ = true;
  if (all_ == 0)
    faults_ += text::format(" --fault {}:{}={}", call_info(event.call).name, count, native);
  auto refused = event;
  refused.native = native;
  events_.push_back(refused);
  in_call = false;
  return native;
}

void Watch::after(const CallEvent& event) {
  ledger_.after(event);
  note(event);
  in_call = false;
}

void Watch::note(const CallEvent& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  if (event.native == 0) {
    if (event.call == Call::mem_create) extents_.created({event.result}, event.size);
    if (event.call == Call::mem_release) extents_.release({event.pointer});
    if (event.call == Call::mem_map) extents_.map(event.pointer, event.size, {event.other});
    if (event.call == Call::mem_unmap) extents_.unmap(event.pointer, event.size);
  }
  if (event.native != 0 && !uninvited_ && !may_fail(event)) uninvited_ = event;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Watch::places(std::uint64_t address,
                                                                   std::uint64_t size) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  const std::lock_guard lock(mutex_);
  extents_.for_each(address, size, [&](const stream_order::PhysicalExtents::Extent& at) {
    found.emplace_back(at.place, at.place + at.size);
  });
  return found;
}

bool Watch::any_refused() const {
  const std::lock_guard lock(mutex_);
  return any_refused_;
}

std::optional<CallEvent> Watch::first_uninvited() const {
  const std::lock_guard lock(mutex_);
  return uninvited_;
}

void Watch::forgive() {
  const std::lock_guard lock(mutex_);
  uninvited_.reset();
}

void Watch::fail(Call call, std::initializer_list<std::int32_t> natives) {
  const std::lock_guard lock(mutex_);
  answers_[call].assign(natives.begin(), natives.end());
}

void Watch::fail_always(Call call, std::int32_t native) {
  const std::lock_guard lock(mutex_);
  always_[call] = native;
}

void Watch::fail_nth(std::uint64_t n, std::int32_t native, bool of_ends) {
  const std::lock_guard lock(mutex_);
  until_fault_ = n;
  native_ = native;
  of_ends_ = of_ends;
  failed_nth_ = false;
}

bool Watch::failed_nth() const {
  const std::lock_guard lock(mutex_);
  return failed_nth_;
}

void Watch::fail_all(std::int32_t native) {
  const std::lock_guard lock(mutex_);
  all_ = native;
}

std::vector<CallEvent> Watch::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Watch::forget() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

std::uint64_t Watch::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::string Watch::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

}  // namespace emm::conformance
