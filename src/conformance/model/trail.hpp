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

/// Outcomes that are no CUresult: the pointer itself refused, because it was freed before or a
/// reset ended it; the manager does not offer it.
inline constexpr std::int32_t kDeadPointer = -1;
inline constexpr std::int32_t kNotSupported = -2;

/// What the caller of one operation sees.
struct Outcome {
  std::int32_t code = 0;
  MemoryInfo info{};                 ///< Of get_memory_info.
  std::uint64_t address = 0;         ///< Of memory made: device address, or host address.
  std::uint64_t device_address = 0;  ///< Of mapped and managed memory.
  std::uint64_t size = 0;            ///< Of memory made, bytes.
  std::size_t alive = 0;             ///< Of reset: how many pointers outlive it.
  std::size_t unheard = 0;           ///< Failed frees that neither observer nor outcome told of.
  bool operator==(const Outcome&) const = default;
};

/// How the queue stands.
struct Pending {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Pending&) const = default;
};

/// One free that was asked for (PD-16).
struct AddRecord {
  Call dtor{};
  std::optional<std::uint64_t> size;  ///< Empty where it is not counted.
  bool operator==(const AddRecord&) const = default;
};

/// One flush: how many frees were attempted, and the bytes that the queue had counted for them.
struct FlushRecord {
  std::size_t operation = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const FlushRecord&) const = default;
};

/// What plays operations: the model, or a real manager.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Outcome perform(const Operation& operation) = 0;
  virtual void drop(int slot) = 0;
  /// Ends all guards, drops all memory, by slot, and ends the manager.
  virtual void finish() = 0;
  virtual Pending pending() const = 0;
  /// Bytes of device and managed memory that nobody has asked to free.
  virtual std::uint64_t live_bytes() const = 0;
};

/// Everything that can be seen of one run. The last operation is finish().
struct Trail {
  struct Step {
    Outcome outcome;
    Pending pending;
    std::size_t calls_end = 0;    ///< Where this operation's driver calls end in `calls`.
    std::size_t adds_end = 0;     ///< Likewise in `adds`.
    std::size_t flushes_end = 0;  ///< Likewise in `flushes`.
    std::uint64_t live_bytes = 0;
  };
  std::vector<CallRecord> calls;
  std::vector<AddRecord> adds;
  std::vector<FlushRecord> flushes;
  std::vector<Step> steps;

  void clear();
};

/// Plays `sequence` from its start. Adds and flushes are pushed to `trail` by the subject.
void play(const Sequence& sequence, ScriptedDevice& device, Subject& subject, Trail& trail);

/// The first operation in which the two differ, or kSame.
///
/// Flushes are compared one by one, except in operations whose driver drops memory inside a free:
/// the contract leaves open whether what is added then is the same flush or a nested one (PD-10).
/// The calls are compared there as everywhere.
inline constexpr std::size_t kSame = static_cast<std::size_t>(-1);
std::size_t first_difference(const Sequence& sequence, const Trail& a, const Trail& b);

/// Both trails side by side, up to and with `operation`, for a person.
std::string side_by_side(const Sequence& sequence, const Trail& expected, const Trail& actual,
                         std::size_t operation);

}  // namespace emm::model
