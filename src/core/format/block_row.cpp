#include "format/block_row.hpp"

#include <sys/mman.h>

#include "base/host_memory.hpp"

namespace emm::format {

Pages::Pages(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kLargePage = std::size_t{2} << 20;  // bytes of a huge page of x86-64
  const auto large = bytes >= kLargePage;
  const auto mapped = bytes + (large ? kLargePage : 0);  // extra, for alignment to a large page
  auto* const memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) out_of_host_memory();
  memory_ = memory;
  if (!large) return;
  const auto before =
      (kLargePage - reinterpret_cast<std::uintptr_t>(memory) % kLargePage) % kLargePage;
  auto* const begin = static_cast<char*>(memory) + before;
  if (before != 0) ::munmap(memory, before);
  if (before != kLargePage) ::munmap(begin + bytes, kLargePage - before);
  memory_ = begin;
  static_cast<void>(::madvise(memory_, bytes_, MADV_HUGEPAGE));  // only a hint, which may fail
}

Pages::~Pages() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

}  // namespace emm::format
