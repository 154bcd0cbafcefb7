#include "standin/tap.hpp"

#include <algorithm>
#include <cstring>

#include "standin/calls.hpp"

namespace emm::standin {

std::int32_t Tap::before(const CallEvent& event) {
  auto* hook = hook_.load(std::memory_order_acquire);
  return hook != nullptr ? hook->before(event) : 0;
}

void Tap::after(const CallEvent& event) {
  if (auto* hook = hook_.load(std::memory_order_acquire); hook != nullptr) hook->after(event);
}

}  // namespace emm::standin

using namespace emm::standin;

#pragma GCC visibility push(default)
extern "C" {

// These are no CUDA functions. Tests that load this library call them.

/// Sets a script for the devices that are opened from now on.
void emm_standin_script(std::uint64_t mask, Code first, Code later) {
  Machine::script().fail(mask, first, later);
}
/// Writes at most `size` bytes and returns how many there were. What did not fit is lost.
std::size_t emm_standin_calls(char* buffer, std::size_t size) {
  const auto text = Machine::script().take();
  std::copy_n(text.data(), std::min(size, text.size()), buffer);
  return text.size();
}
/// `hook` is an emm::CallHook of a program built from the same sources.
void emm_standin_tap(emm::CallHook* hook) { Machine::tap().set(hook); }

}  // extern "C"
#pragma GCC visibility pop
