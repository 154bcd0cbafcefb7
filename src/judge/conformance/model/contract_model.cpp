#include "conformance/model/contract_model.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "conformance/cuda_results.hpp"
#include "driver/call.hpp"

namespace emm::model {

using conformance::kOutOfMemory;

Rules Rules::numba() {
  Rules rules;
  rules.failed_free_stops_flush = true;
  rules.failed_flush_is_outcome = true;
  rules.unmapped_retries = false;
  rules.pinned_is_sized = false;
  rules.reset_ends_untracked = false;
  rules.zero_total_is_unset = true;
  rules.end_abandons_queue = true;
  return rules;
}

Rules Rules::host_only(Rules rules) {
  rules.device_memory = false;
  if (rules.zero_total_is_unset) rules.initialize_asks = false;
  return rules;
}

ContractModel::ContractModel(const Rules& rules, ScriptedDevice& device, Trail& trail)
    : rules_(rules), device_(device), trail_(trail) {}

void ContractModel::restart(int slots) {
  slots_.assign(static_cast<std::size_t>(slots), {});
  records_.clear();
  queue_.clear();
  queued_bytes_ = live_bytes_ = 0;
  deferred_ = guards_ = 0;
  has_capacity_ = false;
  capacity_ = 0;
}

Outcome ContractModel::perform(const Operation& operation) {
  switch (operation.ask) {
    case Ask::initialize:
      return {.code = initialize()};
    case Ask::memalloc:
      return memalloc(operation);
    case Ask::memhostalloc:
      return memhostalloc(operation);
    case Ask::mempin:
      return mempin(operation);
    case Ask::memallocmanaged:
      return memallocmanaged(operation);
    case Ask::drop:
      drop(operation.slot);
      return {};
    case Ask::free:
      return free(operation.slot);
    case Ask::flush:
      return {.code = clear(false)};
    case Ask::defer_cleanup:
      defer_cleanup();
      return {};
    case Ask::end_defer_cleanup:
      end_defer_cleanup();
      return {};
    case Ask::reset:
      return reset();
    case Ask::get_memory_info:
      return get_memory_info();
  }
  return {};
}

std::int32_t ContractModel::initialize() {
  if (!rules_.initialize_asks) return 0;
  const bool is_set = has_capacity_ && !(rules_.zero_total_is_unset && capacity_ == 0);
  if (is_set && !rules_.initialize_asks_always) return 0;
  MemoryInfo info;
  if (const auto result = device_.mem_get_info(info); result != 0) return result;
  has_capacity_ = true;
  capacity_ = info.total;
  return 0;
}

template <class Attempt>
std::int32_t ContractModel::allocate(bool retries, Attempt&& attempt) {
  auto result = attempt();
  for (int i = 0; i < (retries ? rules_.retries : 0); ++i) {
    if (result != kOutOfMemory && !(rules_.any_error_retries && result != 0)) break;
    if (deferred_ > 0 && !rules_.retries_while_deferred) break;
    if (rules_.retry_flushes) {
      const auto flushed = clear(rules_.out_of_memory_flushes_deferred);
      if (flushed != 0 && rules_.failed_flush_is_outcome) return flushed;
    }
    result = attempt();
  }
  return result;
}

Outcome ContractModel::keep(int slot, Kind kind, std::uint64_t address,
                            std::uint64_t device_address, std::uint64_t size) {
  slots_[static_cast<std::size_t>(slot)] = {kind, true, address, size};
  records_.push_back(slot);
  if (kind == Kind::device || kind == Kind::managed) live_bytes_ += size;
  return {.address = address, .device_address = device_address, .size = size};
}

Outcome ContractModel::memalloc(const Operation& operation) {
  if (!rules_.device_memory) return {.code = kNotSupported};
  std::uint64_t address = 0;
  const auto result = allocate(true, [&] { return device_.mem_alloc(operation.size, address); });
  if (result != 0) return {.code = result};
  return keep(operation.slot, Kind::device, address, 0, operation.size);
}

Outcome ContractModel::memallocmanaged(const Operation& operation) {
  std::uint64_t address = 0;
  const auto attach = operation.attach == AttachFlags::global ? 1u : 2u;  // MAN-1
  const auto result = allocate(rules_.managed_retries, [&] {
    return device_.mem_alloc_managed(operation.size, attach, address);
  });
  if (result != 0) return {.code = result};
  return keep(operation.slot, Kind::managed, address, address, operation.size);
}

Outcome ContractModel::memhostalloc(const Operation& operation) {
  const auto& flags = operation.host;
  const auto bits =
      (flags.portable ? 1u : 0u) + (flags.mapped ? 2u : 0u) + (flags.wc ? 4u : 0u);  // HST-1
  std::uint64_t address = 0;
  const auto result = allocate(flags.mapped || rules_.unmapped_retries, [&] {
    return device_.mem_host_alloc(operation.size, bits, address);
  });
  if (result != 0) return {.code = result};
  if (flags.mapped) return map_host_memory(operation, Kind::mapped_host, address);
  return keep(operation.slot, Kind::pinned_host, address, 0, operation.size);
}

Outcome ContractModel::mempin(const Operation& operation) {
  const auto address = ScriptedDevice::region_address(operation.region);
  const bool mapped = operation.host.mapped;
  const auto result = allocate(mapped || rules_.unmapped_retries, [&] {
    return device_.mem_host_register(address, operation.size, mapped ? 2u : 0u);  // PIN-1
  });
  if (result != 0) return {.code = result};
  if (mapped) return map_host_memory(operation, Kind::mapped_region, address);
  return keep(operation.slot, Kind::pinned_region, address, 0, operation.size);
}

Outcome ContractModel::map_host_memory(const Operation& operation, Kind kind,
                                       std::uint64_t address) {
  std::uint64_t device_address = 0;
  const auto result = device_.mem_host_get_device_pointer(address, device_address);
  if (result == 0) return keep(operation.slot, kind, address, device_address, operation.size);
  if (!rules_.mapping_failure_leaks) {
    if (kind == Kind::mapped_host) {
      device_.mem_free_host(address);
    } else {
      device_.mem_host_unregister(address);
    }
  }
  return {.code = result};
}

std::int32_t ContractModel::end(Memory& memory) {
  memory.alive = false;
  std::erase(records_, static_cast<int>(&memory - slots_.data()));
  switch (memory.kind) {
    case Kind::device:
    case Kind::managed:
      live_bytes_ -= memory.size;
      return add(Call::mem_free, memory, true);
    case Kind::mapped_host:
      return add(Call::mem_free_host, memory, rules_.mapped_is_sized);
    case Kind::pinned_host:
      return add(Call::mem_free_host, memory, rules_.pinned_is_sized);
    case Kind::pinned_region:
    case Kind::mapped_region:
      if (rules_.unpin_is_queued) return add(Call::mem_host_unregister, memory, false);
      return device_.mem_host_unregister(memory.address);
    case Kind::none:
      break;
  }
  return 0;
}

void ContractModel::drop(int slot) {
  auto& memory = slots_[static_cast<std::size_t>(slot)];
  if (memory.alive) end(memory);
  memory.kind = Kind::none;
}

Outcome ContractModel::free(int slot) {
  auto& memory = slots_[static_cast<std::size_t>(slot)];
  if (memory.kind == Kind::none) return {};
  if (!memory.alive) return {.code = kDeadPointer};
  end(memory);
  return {};
}

Outcome ContractModel::reset() {
  if (rules_.reset_flushes_first) clear(false);
  std::vector<int> ended;
  std::size_t survivors = 0;
  for (const auto slot : records_) {
    auto& memory = slots_[static_cast<std::size_t>(slot)];
    const bool tracked = memory.kind != Kind::pinned_host && memory.kind != Kind::pinned_region;
    if (tracked || rules_.reset_ends_untracked) {
      ended.push_back(slot);
    } else {
      survivors++;
    }
  }
  for (const auto slot : ended) end(slots_[static_cast<std::size_t>(slot)]);
  if (!rules_.reset_leaves_queue) clear(rules_.reset_flushes_deferred);
  return {.alive = survivors};
}

void ContractModel::defer_cleanup() {
  guards_++;
  deferred_ = rules_.deferral_nests ? deferred_ + 1 : 1;
}

void ContractModel::end_defer_cleanup() {
  if (guards_ == 0) return;
  guards_--;
  if (deferred_ > 0) deferred_--;
  if (deferred_ == 0 && rules_.flushes_at_end_of_deferral) clear(false);
}

Outcome ContractModel::get_memory_info() {
  Outcome outcome;
  outcome.code = device_.mem_get_info(outcome.info);
  return outcome;
}

void ContractModel::finish() {
  while (guards_ > 0) end_defer_cleanup();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) drop(static_cast<int>(slot));
  if (!rules_.end_abandons_queue) clear(false);
  queue_.clear();
  queued_bytes_ = 0;
}

std::int32_t ContractModel::add(Call dtor, const Memory& memory, bool sized) {
  const Item item{dtor, memory.address, sized ? memory.size : 0};
  if (rules_.frees_at_once) return destroy(item);
  trail_.adds.push_back({dtor, sized ? std::optional(memory.size) : std::nullopt});
  queue_.push_back(item);
  queued_bytes_ += item.size;
  return above_limits() ? clear(rules_.flushes_while_deferred, rules_.flushes_to_limit_only) : 0;
}

bool ContractModel::above_limits() const {
  const auto count = queue_.size();
  if (count > rules_.count_limit || (rules_.count_limit_flushes && count == rules_.count_limit))
    return true;
  if (!has_capacity_ && rules_.unset_capacity_is_no_limit) return false;
  const auto share = static_cast<double>(capacity_) * rules_.ratio;
  const auto limit = static_cast<std::uint64_t>(rules_.rounds_limit ? std::round(share) : share);
  return queued_bytes_ > limit || (rules_.bytes_limit_flushes && queued_bytes_ == limit);
}

std::int32_t ContractModel::clear(bool even_deferred, bool to_limit_only) {
  if (deferred_ > 0 && !even_deferred) return 0;
  if (queue_.empty()) {
    queued_bytes_ = 0;
    return 0;
  }
  const auto flush = trail_.flushes.size();
  trail_.flushes.push_back({.operation = trail_.steps.size(), .count = 0, .bytes = 0});
  std::int32_t first_error = 0;
  auto quota = rules_.flush_leaves_what_is_added ? queue_.size() : ~std::size_t{0};
  while (quota-- > 0 && !queue_.empty() && (!to_limit_only || above_limits())) {
    const auto item = rules_.newest_first ? queue_.back() : queue_.front();
    if (rules_.newest_first) {
      queue_.pop_back();
    } else {
      queue_.erase(queue_.begin());
    }
    if (!rules_.failed_free_stops_flush || to_limit_only) queued_bytes_ -= item.size;
    trail_.flushes[flush].count++;
    trail_.flushes[flush].bytes += item.size;
    const auto result = destroy(item);
    if (result == 0) continue;
    if (rules_.failed_free_stops_flush) return result;
    if (first_error == 0) first_error = result;
  }
  if (queue_.empty()) queued_bytes_ = 0;
  return first_error;
}

std::int32_t ContractModel::destroy(const Item& item) {
  switch (item.dtor) {
    case Call::mem_free:
      return device_.mem_free(item.address);
    case Call::mem_free_host:
      return device_.mem_free_host(item.address);
    default:
      return device_.mem_host_unregister(item.address);
  }
}

}  // namespace emm::model
