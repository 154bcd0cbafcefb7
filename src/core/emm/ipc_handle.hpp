#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "emm/memory_pointer.hpp"

namespace emm {

class Context;
class Driver;
class MemoryManager;

/// NBEP-7's IpcHandle: names device memory that another process can open.
///
/// Holds the driver's 64 bytes, the size of the exported view, the offset of the view from the base
/// of the driver's allocation (a pool exports a slab's handle: IPC-4), and the device. Opening is
/// direct if the destination is that device or can reach it as a peer; else it is staged, as a copy
/// in memory of the destination's manager (IPC-6). A handle is opened once at a time. After a
/// failure it is closed (numba's is not: IPC-9). One thread at a time.
///
/// The exporter must keep the memory until every importer has closed (IPC-12).
class IpcHandle {
 public:
  struct Fields {
    IpcMemHandle handle{};
    std::uint64_t size = 0;    ///< Bytes of the exported view.
    std::uint64_t offset = 0;  ///< Bytes from the allocation's base to the view.
    std::optional<DeviceIdentity>
        source_info;  ///< If absent, only direct opening works (IPC-15, IPC-19).
    bool operator==(const Fields&) const = default;
  };

  /// Makes a handle to memory of this process, which cannot open it itself (IPC-7). `base` keeps
  /// the memory alive (IPC-1).
  static IpcHandle exported(const Fields& fields, OwnedPointer base = {});
  /// Makes a handle from another process, which can be opened here.
  static IpcHandle received(const Fields& fields);

  IpcHandle(IpcHandle&& other) noexcept;
  IpcHandle& operator=(IpcHandle&& other) noexcept;
  ~IpcHandle();  ///< Closes.

  const Fields& fields() const noexcept { return fields_; }
  bool is_open() const noexcept { return state_ != State::closed; }

  /// Opens the memory, which can be used until close(). Staging finds the Context of the source
  /// device in this process. Errors, in numba's words: "opening IpcHandle from original process",
  /// "IpcHandle is already opened", "IPC handle doesn't have source info", "No device of ... is
  /// found...".
  Result<MemoryView> open(Context& destination);
  Result<MemoryView> open_direct(Driver& driver);
  /// `source` is the context in this process for the device of the memory.
  Result<MemoryView> open_staged(Context& source, Context& destination);
  /// Closes the opening; its view is then dead (IPC-11), and so is the copy of a staged opening.
  /// Error invalid_value, "IpcHandle not opened"; or the driver's error, and the handle stays open.
  Status close();

  /// Writes the handle as one line of text, for a file, a socket or an environment variable.
  /// deserialize() reads it back, with base unset (IPC-17).
  std::string serialize() const;
  static Result<IpcHandle> deserialize(std::string_view line);

 private:
  enum class State : std::uint8_t { closed, direct, staged };
  explicit IpcHandle(const Fields& fields) : fields_(fields) {}
  Status check_can_open() const;
  void end() noexcept;

  Fields fields_;
  OwnedPointer base_;
  bool is_original_ = false;
  State state_ = State::closed;
  Driver* driver_ = nullptr;  ///< The driver of a direct opening; must outlive it.
  DevicePtr mapped_{};
  MemoryPointer copy_;  ///< Holds the content of a staged opening.
};

/// NBEP-7's GetIpcHandleMixin as a function: exports the allocation that `memory` points into, with
/// the offset of `memory`. Makes exactly two driver calls (IPC-3).
Result<IpcHandle> ipc_handle_from_address_range(Driver& driver, MemoryView memory);

}  // namespace emm
