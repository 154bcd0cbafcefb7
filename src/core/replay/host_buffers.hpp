#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "trace/trace.hpp"

namespace emm::replay {

/// Pageable memory of this process that a replay pins. It touches no page until something is
/// written there.
class HostBuffer {
 public:
  /// Error out_of_memory if the system refuses.
  static Result<std::shared_ptr<HostBuffer>> create(std::uint64_t size);
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  HostPtr data() const noexcept { return data_; }  ///< At the start of a page.

 private:
  HostBuffer(HostPtr data, std::uint64_t size) noexcept : data_(data), size_(size) {}

  HostPtr data_;
  std::uint64_t size_;
};

/// The host buffers that the pins of a trace name. A pin lies at its offset in its buffer and at
/// the recorded offset in its page. A pin without a named buffer gets a new one.
class HostBuffers {
 public:
  explicit HostBuffers(const trace::Trace& trace) noexcept : trace_(trace) {}

  struct Placed {
    HostRange range;
    std::shared_ptr<const HostBuffer> owner;
    bool shared = false;  ///< Other pins may share the bytes.
  };
  /// Returns the memory that the mempin `event` pins.
  Result<Placed> place(const trace::Event& event);

 private:
  struct Named {
    std::uint64_t size = 0;   ///< The end of the furthest pin.
    std::uint64_t shift = 0;  ///< Offset of the buffer in its first page.
    std::shared_ptr<HostBuffer> buffer;
  };
  void measure();

  const trace::Trace& trace_;
  std::map<std::uint32_t, Named> named_;
  bool measured_ = false;
};

}  // namespace emm::replay
