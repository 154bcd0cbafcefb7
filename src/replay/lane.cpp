#include "replay/lane.hpp"

#include <utility>

namespace emm::replay {

Lane::~Lane() { leave_all(); }

void Lane::end() {
  leave_all();
  context_.reset();
  destroyed_.clear();
}

Status Lane::create(Stack& stack) {
  auto made = stack.make_context(device_, this, order_);
  if (!made) return std::move(made).error();
  context_ = std::move(*made);
  driver_ = &context_->driver();
  streams_.clear();
  of_threads_.clear();
  if (order_ != nullptr) order_->name_stream(device_, {}, 0);
  return {};
}

Status Lane::destroy(bool share) {
  leave_all();
  Status closed;
  if (share) {
    context_->reset();
  } else {
    closed = context_->close();
  }
  destroyed_.push_back(std::move(context_));
  return closed;
}

StreamHandle Lane::other_stream(std::size_t stream, ThreadId thread) {
  if (one_thread_ && stream == per_thread_) return per_thread_stream(thread);
  if (stream >= streams_.size() || streams_[stream].value == 0) {
    make_stream(stream, StreamKind::blocking);
  }
  return streams_[stream];
}

void Lane::make_stream(std::size_t stream, StreamKind kind) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  auto& handle = streams_[stream];
  if (stream == 0 || handle.value != 0) return;
  handle = create_stream(stream, kind);
}

StreamHandle Lane::create_stream(std::size_t stream, StreamKind kind) {
  const auto made = context_->create_stream(kind);
  if (!made) {
    ++seen_.streams_refused;
    return {};
  }
  if (order_ != nullptr) {
    order_->name_stream(device_, *made, static_cast<std::uint32_t>(stream));
  }
  return *made;
}

StreamHandle Lane::per_thread_stream(ThreadId thread) {
  if (index(thread) >= of_threads_.size()) {
    const bool first = of_threads_.empty();
    of_threads_.resize(index(thread) + 1);
    if (first) of_threads_.back() = kPerThreadStream;
  }
  auto& handle = of_threads_[index(thread)];
  if (handle.value == 0) handle = create_stream(per_thread_, StreamKind::blocking);
  return handle;
}

void Lane::set_per_thread(std::size_t stream, bool one_thread) {
  per_thread_ = stream;
  one_thread_ = one_thread;
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  streams_[stream] = kPerThreadStream;
  if (order_ != nullptr) {
    order_->name_stream(device_, kPerThreadStream, static_cast<std::uint32_t>(stream));
  }
}

void Lane::drop_stream(std::size_t stream) {
  if (stream >= streams_.size() || streams_[stream].value == 0) return;
  if (streams_[stream] == kPerThreadStream) return;
  context_->drop_stream(std::exchange(streams_[stream], {}));
}

void Lane::leave() {
  if (!guards_.empty()) guards_.pop_back();
}

void Lane::leave_all() {
  while (!guards_.empty()) guards_.pop_back();
}

void Lane::note_capacity() {
  held_at_start_ = driver_->held_bytes();
  if (auto info = driver_->mem_get_info()) at_start_ = *info;
}

void Lane::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(seen_.mutex);
  const auto event = serving();
  seen_.flushes.push_back({.event = event, .seq = event, .count = count, .bytes = bytes});
}

void Lane::free_failed(const Error& error) noexcept {
  const std::lock_guard lock(seen_.mutex);
  seen_.last_failed_free = describe(error);
  if (seen_.failed_frees++ == 0) seen_.first_failed_free = seen_.last_failed_free;
  if (error.code == Errc::context_destroyed && !destroyed_.empty()) {
    ++seen_.excused_frees;
    return;
  }
  seen_.failed_at = serving();
  ++seen_.failed;
}

void Lane::call_failed(const Error& error) noexcept {
  const std::lock_guard lock(seen_.mutex);
  seen_.last_failed_call = describe(error);
  ++seen_.failed_calls;
  seen_.failed_at = serving();
  ++seen_.failed;
}

}  // namespace emm::replay
