#include "emm/memory_pointer.hpp"

namespace emm {

Result<MemoryView> MemoryView::view(std::uint64_t start, std::optional<std::uint64_t> stop) const {
  const auto end = stop.value_or(size);
  if (end < start) return fail(Errc::invalid_value, "size cannot be negative");
  if (!device_pointer) {
    if (end != start) return fail(Errc::invalid_value, "non-empty slice into empty slice");
    return *this;
  }
  if (end > size)
    return fail(Errc::invalid_value, "view [{}, {}) is not inside memory of {} bytes", start, end,
                size);
  return MemoryView{.device_pointer = device_pointer + start, .size = end - start};
}

Status Lifetime::free_nothing() const {
  if (!managed()) return {};
  return fail(Errc::dead_pointer, "Freeing dead memory");
}

Result<MemoryView> MemoryPointer::view(std::uint64_t start,
                                       std::optional<std::uint64_t> stop) const {
  if (!alive()) return Error{.code = Errc::dead_pointer};
  return MemoryView{.device_pointer = ptr_, .size = size_}.view(start, stop);
}

Result<MemoryView> MappedMemory::view(std::uint64_t start,
                                      std::optional<std::uint64_t> stop) const {
  if (!alive()) return Error{.code = Errc::dead_pointer};
  return MemoryView{.device_pointer = ptr_, .size = range_.size}.view(start, stop);
}

Status OwnedPointer::free(StreamHandle stream) {
  if (memory_ == nullptr) return fail(Errc::dead_pointer, "Freeing dead memory");
  if (is_view_ && memory_->alive()) return {};
  return memory_->free(stream);
}

Result<OwnedPointer> OwnedPointer::view(std::uint64_t start,
                                        std::optional<std::uint64_t> stop) const {
  if (!alive()) return Error{.code = Errc::dead_pointer};
  auto part = view_.view(start, stop);
  if (!part) return std::move(part).error();
  return OwnedPointer(memory_, *part, true);
}

OwnedPointer own(MemoryPointer memory) {
  const MemoryView whole{.device_pointer = memory.device_pointer(), .size = memory.size()};
  return {std::make_shared<MemoryPointer>(std::move(memory)), whole, false};
}

}  // namespace emm
