#include "conformance/model/manager_subject.hpp"

#include <thread>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"
#include "base/host_memory.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::model {
namespace {

/// Returns a CUresult, or the model's code for an error of the pointer itself. Any other code is a
/// mismatch.
std::int32_t code_of(const Error& error) {
  if (error.code == Errc::not_supported) return kNotSupported;
  if (error.native != 0) return error.native;
  if (error.code == Errc::dead_pointer) return kDeadPointer;
  return -1'000 - static_cast<std::int32_t>(error.code);
}

/// Counts the ends that the driver refused from call `first` on.
std::size_t failed_frees(const Trail& trail, std::size_t first) {
  std::size_t failed = 0;
  for (auto i = first; i < trail.calls.size(); ++i) {
    const auto call = trail.calls[i].call;
    const bool ends =
        call == Call::mem_free || call == Call::mem_free_host || call == Call::mem_host_unregister;
    if (ends && trail.calls[i].result != 0) failed++;
  }
  return failed;
}

Outcome outcome_of(const Status& status) { return {.code = status ? 0 : code_of(status.error())}; }

}  // namespace

ManagerSubject::ManagerSubject(const ManagerFactory& factory, Profile profile,
                               ScriptedDevice& device, Trail& trail)
    : factory_(factory), profile_(profile), driver_(device), trail_(trail) {}

ManagerSubject::~ManagerSubject() = default;

void ManagerSubject::restart(int slots) {
  auto made =
      factory_.make({.driver = &driver_, .clock = &clock_, .observer = this, .profile = profile_});
  EMM_ASSERT(made);
  manager_ = std::move(*made);
  slots_.resize(static_cast<std::size_t>(slots));
}

Outcome ManagerSubject::perform(const Operation& operation) {
  told_failures_ = 0;
  const auto first_call = trail_.calls.size();
  Outcome outcome;
  if (operation.elsewhere) {
    start_thread([&] { outcome = ask(operation); }).join();
  } else {
    outcome = ask(operation);
  }
  const auto failed = failed_frees(trail_, first_call);
  const std::size_t answered = outcome.code > 0 ? 1 : 0;  // the caller may have been told about one
  if (told_failures_ > failed || told_failures_ + answered < failed) {
    outcome.unheard = failed - told_failures_;
  }
  return outcome;
}

Outcome ManagerSubject::ask(const Operation& operation) {
  const auto slot = static_cast<std::size_t>(operation.slot);
  switch (operation.ask) {
    case Ask::initialize:
      return outcome_of(manager_->initialize());
    case Ask::memalloc: {
      auto memory = manager_->memalloc(operation.size);
      if (!memory) return {.code = code_of(memory.error())};
      const Outcome outcome{.address = memory->device_pointer().value, .size = memory->size()};
      slots_[slot] = std::move(*memory);
      return outcome;
    }
    case Ask::memhostalloc:
      return keep_host(operation.slot, manager_->memhostalloc(operation.size, operation.host));
    case Ask::mempin: {
      const auto pointer = to_host_pointer(ScriptedDevice::region_address(operation.region));
      return keep_host(operation.slot, manager_->mempin({pointer, operation.size},
                                                        {.mapped = operation.host.mapped}));
    }
    case Ask::memallocmanaged: {
      auto memory = manager_->memallocmanaged(operation.size, operation.attach);
      if (!memory) return {.code = code_of(memory.error())};
      const auto address = memory->device_pointer().value;
      const Outcome outcome{.address = address, .device_address = address, .size = memory->size()};
      slots_[slot] = std::move(*memory);
      return outcome;
    }
    case Ask::drop:
      drop(operation.slot);
      return {};
    case Ask::free:
      return free(operation.slot);
    case Ask::flush:
      return outcome_of(manager_->flush());
    case Ask::defer_cleanup:
      guards_.push_back(manager_->defer_cleanup());
      return {};
    case Ask::end_defer_cleanup:
      end_guard(operation.which);
      return {};
    case Ask::reset:
      return reset();
    case Ask::get_memory_info: {
      const auto info = manager_->get_memory_info();
      if (!info) return {.code = code_of(info.error())};
      return {.info = *info};
    }
  }
  return {};
}

Outcome ManagerSubject::keep_host(int slot, Result<HostMemory> memory) {
  if (!memory) return {.code = code_of(memory.error())};
  Outcome outcome;
  if (auto* mapped = std::get_if<MappedMemory>(&*memory)) {
    outcome.device_address = mapped->device_pointer().value;
    outcome.address = host_address(mapped->host_pointer());
    outcome.size = mapped->size();
    slots_[static_cast<std::size_t>(slot)] = std::move(*mapped);
  } else {
    auto& pinned = std::get<PinnedMemory>(*memory);
    outcome.address = host_address(pinned.host_pointer());
    outcome.size = pinned.size();
    slots_[static_cast<std::size_t>(slot)] = std::move(pinned);
  }
  return outcome;
}

Outcome ManagerSubject::free(int slot) {
  return std::visit(
      [](auto& memory) -> Outcome {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(memory)>, std::monostate>) {
          return {};
        } else {
          return outcome_of(memory.free());
        }
      },
      slots_[static_cast<std::size_t>(slot)]);
}

Outcome ManagerSubject::reset() {
  manager_->reset();
  Outcome outcome;
  for (const auto& slot : slots_) {
    outcome.alive += std::visit(
        [](const auto& memory) -> std::size_t {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(memory)>, std::monostate>) {
            return 0;
          } else {
            return memory.alive() ? 1 : 0;
          }
        },
        slot);
  }
  return outcome;
}

/// Ends any of them: which one makes no difference (DFR-8).
void ManagerSubject::end_guard(std::size_t which) {
  if (guards_.empty()) return;
  const auto at = guards_.begin() + static_cast<std::ptrdiff_t>(which % guards_.size());
  const auto ending = std::move(*at);
  guards_.erase(at);
}

void ManagerSubject::drop(int slot) {
  // The slot is emptied first, because the end may drop other memory and must then find the slots
  // consistent.
  const auto ending = std::exchange(slots_[static_cast<std::size_t>(slot)], Memory{});
}

void ManagerSubject::finish() {
  while (!guards_.empty()) guards_.pop_back();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) drop(static_cast<int>(slot));
  manager_.reset();
}

Pending ManagerSubject::pending() const {
  if (manager_ == nullptr) return {};
  const auto state = manager_->state();
  return {state.pending_count.value_or(~std::uint64_t{0}),
          state.pending_bytes.value_or(~std::uint64_t{0})};
}

std::uint64_t ManagerSubject::live_bytes() const {
  if (manager_ == nullptr) return 0;
  return manager_->state().live_bytes.value_or(~std::uint64_t{0});
}

void ManagerSubject::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  trail_.flushes.push_back({.operation = trail_.steps.size(), .count = count, .bytes = bytes});
}

void ManagerSubject::pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
  trail_.adds.push_back({dtor, size});
}

void ManagerSubject::free_failed(const Error&) noexcept { told_failures_++; }

Runner runner_of(ManagerFactory factory, Profile profile) {
  struct Fixture {
    ManagerFactory factory;
    ScriptedDevice device;
    Trail trail;
    ManagerSubject manager;
    Fixture(ManagerFactory made, Profile as)
        : factory(std::move(made)), manager(factory, as, device, trail) {}
  };
  return [fixture = std::make_shared<Fixture>(std::move(factory), profile)](
             const Sequence& sequence, Trail& trail) {
    std::swap(fixture->trail, trail);
    fixture->device.restart(sequence.setup, fixture->trail.calls);
    fixture->manager.restart(sequence.slots);
    play(sequence, fixture->device, fixture->manager, fixture->trail);
    std::swap(fixture->trail, trail);
  };
}

Runner runner_of_manager(std::string_view spec) {
  auto factory = find_manager(spec);
  EMM_ASSERT(factory);
  return runner_of(std::move(*factory), Profile::standard);
}

}  // namespace emm::model
