#include "base/sudden_end.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/assert.hpp"

namespace emm {
namespace {

std::array<std::atomic<void (*)() noexcept>, 8> last_acts;

}  // namespace

void before_sudden_end(void (*act)() noexcept) noexcept {
  const bool has_place = std::any_of(last_acts.begin(), last_acts.end(), [&](auto& known) {
    void (*none)() noexcept = nullptr;
    return known.compare_exchange_strong(none, act) || none == act;
  });
  EMM_ASSERT(has_place);
}

void act_before_sudden_end() noexcept {
  for (const auto& each : last_acts) {
    if (auto* const known = each.load()) known();
  }
}

void end_suddenly(int exit_code) noexcept {
  act_before_sudden_end();
  _exit(exit_code);
}

}  // namespace emm
