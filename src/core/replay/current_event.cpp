#include "replay/current_event.hpp"

namespace emm::replay {
namespace {

thread_local const std::uint64_t* current = nullptr;

}  // namespace

std::uint64_t current_event() noexcept { return current == nullptr ? 0 : *current; }

bool has_current_event() noexcept { return current != nullptr; }

CurrentEvent::CurrentEvent(const std::uint64_t& event) noexcept : outer_(current) {
  current = &event;
}
CurrentEvent::~CurrentEvent() { current = outer_; }

}  // namespace emm::replay
