#include "replay/lane.hpp"

#include <utility>

namespace emm::replay {

Lane::~Lane() { leave_all(); }

Status Lane::create(Stack& stack) {
  auto made = stack.make_context(device_, this);
  if (!made) return std::move(made).error();
  context_ = std::move(*made);
  driver_ = &context_->driver();
  streams_.clear();
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

StreamHandle Lane::other_stream(std::size_t stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  auto& handle = streams_[stream];
  if (handle.value == 0) {
    if (auto made = context_->create_stream()) {
      handle = *made;
    } else {
      ++seen_.streams_refused;
    }
  }
  return handle;
}

void Lane::drop_stream(std::size_t stream) {
  if (stream >= streams_.size() || streams_[stream].value == 0) return;
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
  seen_.flushes.push_back({.event = event_, .seq = event_, .count = count, .bytes = bytes});
}

void Lane::free_failed(const Error& error) noexcept {
  if (seen_.failed_frees++ == 0) seen_.first_failed_free = describe(error);
}

}  // namespace emm::replay
