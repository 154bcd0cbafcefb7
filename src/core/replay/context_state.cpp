#include "replay/context_state.hpp"

#include <utility>

namespace emm::replay {

ContextState::~ContextState() { end_all_defer_cleanup(); }

void ContextState::end() {
  end_all_defer_cleanup();
  context_.reset();
  destroyed_.clear();
}

Status ContextState::create(Stack& stack) {
  auto made = stack.make_context(device_, this, order_);
  if (!made) return std::move(made).error();
  context_ = std::move(*made);
  driver_ = &context_->driver();
  streams_.clear();
  per_thread_streams_.clear();
  if (order_ != nullptr) order_->name_stream(device_, {}, 0);
  return {};
}

Status ContextState::destroy(bool share) {
  end_all_defer_cleanup();
  Status closed;
  if (share) {
    context_->reset();
  } else {
    closed = context_->close();
  }
  destroyed_.push_back(std::move(context_));
  return closed;
}

StreamHandle ContextState::other_stream(std::size_t stream, ThreadId thread) {
  if (one_thread_ && stream == per_thread_) return per_thread_stream(thread);
  if (stream >= streams_.size() || streams_[stream].value == 0) {
    make_stream(stream, StreamKind::blocking);
  }
  return streams_[stream];
}

void ContextState::make_stream(std::size_t stream, StreamKind kind) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  auto& handle = streams_[stream];
  if (stream == 0 || handle.value != 0) return;
  handle = create_stream(stream, kind);
}

StreamHandle ContextState::create_stream(std::size_t stream, StreamKind kind) {
  const auto made = context_->create_stream(kind);
  if (!made) {
    ++refused_streams_;
    return {};
  }
  if (order_ != nullptr) {
    order_->name_stream(device_, *made, static_cast<std::uint32_t>(stream));
  }
  return *made;
}

StreamHandle ContextState::per_thread_stream(ThreadId thread) {
  if (index(thread) >= per_thread_streams_.size()) {
    const bool first = per_thread_streams_.empty();
    per_thread_streams_.resize(index(thread) + 1);
    if (first) per_thread_streams_.back() = kPerThreadStream;
  }
  auto& handle = per_thread_streams_[index(thread)];
  if (handle.value == 0) handle = create_stream(per_thread_, StreamKind::blocking);
  return handle;
}

void ContextState::set_per_thread(std::size_t stream, bool one_thread) {
  per_thread_ = stream;
  one_thread_ = one_thread;
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  streams_[stream] = kPerThreadStream;
  if (order_ != nullptr) {
    order_->name_stream(device_, kPerThreadStream, static_cast<std::uint32_t>(stream));
  }
}

void ContextState::drop_stream(std::size_t stream) {
  if (stream >= streams_.size() || streams_[stream].value == 0) return;
  if (streams_[stream] == kPerThreadStream) return;
  context_->drop_stream(std::exchange(streams_[stream], {}));
}

void ContextState::end_defer_cleanup() {
  if (!guards_.empty()) guards_.pop_back();
}

void ContextState::end_all_defer_cleanup() {
  while (!guards_.empty()) guards_.pop_back();
}

void ContextState::measure_capacity() {
  held_at_start_ = driver_->held_bytes();
  if (auto info = driver_->mem_get_info()) at_start_ = *info;
}

void ContextState::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  reports_.add_flush(count, bytes);
}

void ContextState::free_failed(const Error& error) noexcept {
  const bool excused = error.code == Errc::context_destroyed && !destroyed_.empty();
  reports_.add_failed_free(error, current_event(), excused);
}

void ContextState::call_failed(const Error& error) noexcept { reports_.add_failed_call(error); }

}  // namespace emm::replay
