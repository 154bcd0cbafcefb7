#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "trace/trace.hpp"

namespace emm::replay {

/// Pageable memory of this process for a replay to pin: no page of it is touched until something is
/// written.
class HostBuffer {
 public:
  /// Error out_of_memory where the system refuses.
  static Result<std::shared_ptr<HostBuffer>> create(std::uint64_t size);
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  HostPtr data() const noexcept { return data_; }  ///< At the beginning of a page.

 private:
  HostBuffer(HostPtr data, std::uint64_t size) noexcept : data_(data), size_(size) {}

  HostPtr data_;
  std::uint64_t size_;
};

/// The host buffers that the pins of a trace name. Pins of one buffer are at their offsets in it; a
/// pin that names none has one of its own. Either way it lies at the recorded place in its page.
class HostBuffers {
 public:
  explicit HostBuffers(const trace::Trace& trace) noexcept : trace_(trace) {}

  struct Placed {
    HostRange range;
    std::shared_ptr<const HostBuffer> owner;
    bool shared = false;  ///< Other pins may have the same bytes.
  };
  /// Where the mempin `event` pins.
  Result<Placed> place(const trace::Event& event);

 private:
  struct Named {
    std::uint64_t size = 0;   ///< Up to the end of the furthest pin.
    std::uint64_t shift = 0;  ///< From the beginning of a page to the buffer's.
    std::shared_ptr<HostBuffer> buffer;
  };
  void measure();

  const trace::Trace& trace_;
  std::map<std::uint32_t, Named> named_;
  bool measured_ = false;
};

}  // namespace emm::replay
