#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/model/operation.hpp"
#include "conformance/model/scripted_device.hpp"
#include "driver/types.hpp"

namespace emm::model {

/// Outcomes that are no CUresult. The pointer refuses because it was freed or a reset ended it; or
/// the manager does not offer the operation.
inline constexpr std::int32_t kDeadPointer = -1;
inline constexpr std::int32_t kNotSupported = -2;

/// What the caller of one operation sees.
struct Outcome {
  std::int32_t code = 0;
  MemoryInfo info{};                 ///< From get_memory_info.
  std::uint64_t address = 0;         ///< The new memory's device address, or its host address.
  std::uint64_t device_address = 0;  ///< For mapped and managed memory.
  std::uint64_t size = 0;            ///< The new memory's bytes.
  std::size_t alive = 0;             ///< For reset: how many pointers outlive it.
  std::size_t unheard = 0;  ///< Failed frees that neither the observer nor the outcome reported.
  bool operator==(const Outcome&) const = default;
};

/// The state of the queue.
struct Pending {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Pending&) const = default;
};

/// One free that was added to the queue (PD-16).
struct AddRecord {
  Call dtor{};
  std::optional<std::uint64_t> size;  ///< Empty when it is not counted.
  bool operator==(const AddRecord&) const = default;
};

/// One flush: how many frees it attempted and how many bytes the queue had counted for them.
struct FlushRecord {
  std::size_t operation = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const FlushRecord&) const = default;
};

/// Executes operations: the model, or a real manager.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Outcome perform(const Operation& operation) = 0;
  virtual void drop(int slot) = 0;
  /// Ends all guards, drops all memory in the order of slots, and ends the manager.
  virtual void finish() = 0;
  virtual Pending pending() const = 0;
  /// Bytes of device and managed memory that nobody has asked to free.
  virtual std::uint64_t live_bytes() const = 0;
};

/// Everything observable of one run. The last operation is finish().
struct Trail {
  struct Step {
    Outcome outcome;
    Pending pending;
    std::size_t calls_end = 0;    ///< End of this operation's driver calls in `calls`.
    std::size_t adds_end = 0;     ///< End of its adds in `adds`.
    std::size_t flushes_end = 0;  ///< End of its flushes in `flushes`.
    std::uint64_t live_bytes = 0;
  };
  std::vector<CallRecord> calls;
  std::vector<AddRecord> adds;
  std::vector<FlushRecord> flushes;
  std::vector<Step> steps;

  void clear();
};

/// Plays `sequence` from its start. The subject pushes adds and flushes to `trail`.
void play(const Sequence& sequence, ScriptedDevice& device, Subject& subject, Trail& trail);

/// Returns the first operation in which the two differ, or kSame.
///
/// Flushes are compared one by one, except in operations whose driver drops memory inside a free.
/// The contract does not say whether frees added then belong to the same flush or to a nested one
/// (PD-10). Calls are compared in every operation.
inline constexpr std::size_t kSame = static_cast<std::size_t>(-1);
std::size_t first_difference(const Sequence& sequence, const Trail& a, const Trail& b);

/// Shows both trails side by side, up to and including `operation`, for a person.
std::string side_by_side(const Sequence& sequence, const Trail& expected, const Trail& actual,
                         std::size_t operation);

}  // namespace emm::model
