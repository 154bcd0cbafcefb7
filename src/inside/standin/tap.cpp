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

// These are not CUDA functions. Tests that load this library call them.

/// Sets the script (Script::fail).
void emm_standin_script(std::uint64_t mask, Code first, Code later) {
  Machine::script().fail(mask, first, later);
}
/// Writes at most `size` bytes of the kept text, and returns its whole length. The rest is lost.
std::size_t emm_standin_calls(char* buffer, std::size_t size) {
  const auto text = Machine::script().take();
  std::copy_n(text.data(), std::min(size, text.size()), buffer);
  return text.size();
}
/// Sets the hook, an emm::CallHook of a program that is built from the same sources.
void emm_standin_tap(emm::CallHook* hook) { Machine::tap().set(hook); }

}  // extern "C"
#pragma GCC visibility pop
