#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "conformance/model/comparison.hpp"
#include "conformance/model/model_driver.hpp"
#include "conformance/model/trail.hpp"
#include "driver/call.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::model {

/// A real manager over the scripted device, from its construction until its last pointer ends.
class ManagerSubject final : public Subject, private ManagerObserver {
 public:
  /// The references outlive this. Adds and flushes are pushed to `trail`.
  ManagerSubject(const ManagerFactory& factory, Profile profile, ScriptedDevice& device,
                 Trail& trail);
  ~ManagerSubject() override;
  /// Prepares for another sequence, whose slots are below `slots`, with a new manager.
  void restart(int slots);

  Outcome perform(const Operation& operation) override;
  void drop(int slot) override;
  void finish() override;
  Pending pending() const override;
  std::uint64_t live_bytes() const override;

 private:
  using Memory =
      std::variant<std::monostate, MemoryPointer, PinnedMemory, MappedMemory, ManagedMemory>;

  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  Outcome ask(const Operation& operation);
  Outcome keep_host(int slot, Result<HostMemory> memory);
  Outcome free(int slot);
  Outcome reset();
  void end_guard(std::size_t which);

  const ManagerFactory& factory_;
  const Profile profile_;
  ModelDriver driver_;
  Trail& trail_;
  ManualClock clock_;
  std::unique_ptr<MemoryManager> manager_;
  std::vector<DeferCleanup> guards_;
  std::vector<Memory> slots_;
  std::size_t told_failures_ = 0;
};

/// Runs the managers that `factory` makes. It must not fail to make one.
Runner runner_of(ManagerFactory factory, Profile profile);
/// Runs the manager that `spec` names, as `--manager` takes it. Asserts that it exists.
Runner runner_of_manager(std::string_view spec);

}  // namespace emm::model
