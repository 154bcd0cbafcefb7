#include "replay/host_buffers.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/host_memory.hpp"

namespace emm::replay {
namespace {

constexpr std::uint64_t kPage = 4096;  // bytes: host memory is registered in pages
constexpr std::uint64_t kSpace = std::uint64_t{1} << 46;  ///< No machine has room for more bytes.

}  // namespace

Result<std::shared_ptr<HostBuffer>> HostBuffer::create(std::uint64_t size) {
  const auto mapped = std::max<std::uint64_t>(size, 1);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    if (mapped < kSpace) host_memory_refused();
    return fail(Errc::out_of_memory, "this machine has no room for a host buffer of {} bytes",
                size);
  }
  return std::shared_ptr<HostBuffer>(new HostBuffer(static_cast<HostPtr>(data), mapped));
}

HostBuffer::~HostBuffer() { munmap(data_, size_); }

void HostBuffers::measure() {
  measured_ = true;
  for (std::size_t at = 0; at < trace_.size(); ++at) {
    const auto& event = trace_[at];
    if (event.op != trace::Op::mempin) continue;
    const auto& detail = trace_.detail(event);
    if (detail.buffer == 0) continue;
    auto& named = named_[detail.buffer];
    const auto end = detail.offset + event.size;
    named.size = std::max(named.size, end < detail.offset ? ~std::uint64_t{0} : end);
    if (detail.page_offset != 0 && named.shift == 0)
      named.shift = (detail.page_offset - detail.offset) % kPage;
  }
}

Result<HostBuffers::Placed> HostBuffers::place(const trace::Event& event) {
  const auto& detail = trace_.detail(event);
  const auto room = [](std::uint64_t shift, std::uint64_t size) {
    return size > ~std::uint64_t{0} - shift ? ~std::uint64_t{0} : size + shift;
  };
  if (detail.buffer == 0) {
    auto own = HostBuffer::create(room(detail.page_offset, event.size));
    if (!own) return std::move(own).error();
    return Placed{.range = {(*own)->data() + detail.page_offset, event.size}, .owner = *own};
  }
  if (!measured_) measure();
  auto& named = named_[detail.buffer];
  if (!named.buffer) {
    auto made = HostBuffer::create(room(named.shift, named.size));
    if (!made) return std::move(made).error();
    named.buffer = *made;
  }
  return Placed{.range = {named.buffer->data() + named.shift + detail.offset, event.size},
                .owner = named.buffer,
                .shared = true};
}

}  // namespace emm::replay
