#include "managers/pool/device_room.hpp"

#include <algorithm>

#include "managers/pool/growth_policy.hpp"

namespace emm::pool {

Status DeviceRoom::may_ask(std::uint64_t bytes, std::size_t pieces) noexcept {
  if (!backing_.allows(bytes) || bytes >= refused_) return full();
  // Trusts only half of what the last look saw, since other processes may have taken memory since.
  if ((bytes < growth::kConstants.ask_device_from && pieces == 1) || bytes <= free_ / 2) return {};
  if (ask_what_is_free() && free_ < bytes) {
    refused_ = free_ + 1;
    return full();
  }
  return {};
}

Status DeviceRoom::note(std::uint64_t bytes, Status answer) noexcept {
  if (answer) {
    free_ -= std::min(free_, bytes);
  } else if (is_out_of_memory(answer.error()) && backing_.allows(bytes)) {
    refused_ = ask_what_is_free() ? std::min(free_ + 1, bytes) : bytes;
  }
  return answer;
}

bool DeviceRoom::ask_what_is_free() noexcept {
  const auto info = driver_.mem_get_info();
  if (info) {
    free_ = info->free;
    backing_.set_device_bytes(info->total);
  }
  return info.has_value();
}

}  // namespace emm::pool
