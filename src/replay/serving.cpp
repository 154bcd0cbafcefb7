#include "replay/serving.hpp"

namespace emm::replay {
namespace {

thread_local const std::uint64_t* served = nullptr;

}  // namespace

std::uint64_t serving() noexcept { return served == nullptr ? 0 : *served; }

bool is_serving() noexcept { return served != nullptr; }

Serving::Serving(const std::uint64_t& event) noexcept : outer_(served) { served = &event; }
Serving::~Serving() { served = outer_; }

}  // namespace emm::replay
