#include <map>
#include <mutex>
#include <vector>

#include "base/units.hpp"
#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Wrong flags of host and managed memory, and wrong regions.

namespace emm::mutants {
namespace {

using W = WrongManager&;

template <class Change>
void change_host_flags(W m, Change change) {
  m.driver->on_mem_host_alloc = [&m, change](auto size, HostAllocFlags flags) {
    change(flags);
    return m.driver->to.mem_host_alloc(size, flags);
  };
}

template <class Change>
void change_registration(W m, Change change) {
  m.driver->on_mem_host_register = [&m, change](HostRange range, HostRegisterFlags flags) {
    change(range, flags);
    return m.driver->to.mem_host_register(range, flags);
  };
}

const Mutant kFlagsMutants[] = {
    {"flags/memhostalloc", "drops write-combined", "pool",
     [](W m) { change_host_flags(m, [](HostAllocFlags& flags) { flags.wc = false; }); }},
    {"flags/memhostalloc", "swaps portable and write-combined", "cudart",
     [](W m) {
       change_host_flags(m, [](HostAllocFlags& flags) { std::swap(flags.wc, flags.portable); });
     }},
    {"flags/memhostalloc", "makes large blocks portable", "async",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m](auto size, HostAllocFlags flags) {
         flags.portable = flags.portable || size > 1_MiB;
         return m.driver->to.mem_host_alloc(size, flags);
       };
     }},
    {"flags/memhostalloc", "gives the last large block again, whatever its flags were", "cudart",
     [](W m) {
       // The driver's free of the youngest block is put off until the next request for its size.
       struct Kept {
         HostPtr pointer = nullptr;
         std::map<HostPtr, std::uint64_t> sizes;
         std::mutex mutex;
       };
       auto kept = std::make_shared<Kept>();
       m.driver->on_mem_host_alloc = [&m, kept](auto size,
                                                HostAllocFlags flags) -> Result<HostPtr> {
         const std::lock_guard lock(kept->mutex);
         if (kept->pointer != nullptr && kept->sizes[kept->pointer] == size)
           return std::exchange(kept->pointer, nullptr);
         auto made = m.driver->to.mem_host_alloc(size, flags);
         if (made) kept->sizes[*made] = size;
         return made;
       };
       m.driver->on_mem_free_host = [&m, kept](HostPtr pointer) {
         const std::lock_guard lock(kept->mutex);
         if (kept->sizes[pointer] < 1_MiB) return m.driver->to.mem_free_host(pointer);
         const auto before = std::exchange(kept->pointer, pointer);
         return before == nullptr ? Status() : m.driver->to.mem_free_host(before);
       };
       m.on_ending = [&m, kept] {
         ignore(m.up->flush());
         if (kept->pointer != nullptr) ignore(m.driver->to.mem_free_host(kept->pointer));
         kept->pointer = nullptr;
         m.driver->on_mem_free_host = nullptr;
       };
     }},
    {"flags/mempin", "drops portable", "pool",
     [](W m) {
       change_registration(m, [](HostRange&, HostRegisterFlags& flags) { flags.portable = false; });
     }},
    {"flags/mempin", "takes read-only for io", "cudart",
     [](W m) {
       change_registration(
           m, [](HostRange&, HostRegisterFlags& flags) { std::swap(flags.read_only, flags.io); });
     }},
    {"flags/region", "leaves out what does not fill a page", "cudart",
     [](W m) {
       change_registration(m, [](HostRange& range, HostRegisterFlags&) {
         if (range.size > 4_KiB) range.size &= ~(4_KiB - 1);
       });
     }},
    {"flags/region", "cuts regions of more than 64 KiB to whole pages", "pool",
     [](W m) {
       change_registration(m, [](HostRange& range, HostRegisterFlags&) {
         if (range.size > 64_KiB) range.size &= ~(4_KiB - 1);
       });
     }},
    {"flags/region", "registers a byte more where the size is odd", "pool",
     [](W m) {
       change_registration(
           m, [](HostRange& range, HostRegisterFlags&) { range.size += range.size % 2; });
     }},
    {"flags/mapped_address", "takes the host address for the device's", "pool",
     take_host_address_for_device},
    {"flags/memallocmanaged", "attaches to the host what is to be attached to all", "pool",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, AttachFlags attach) {
         return m.driver->to.mem_alloc_managed(size, size < 1_MiB ? attach : AttachFlags::host);
       };
     }},
};

}  // namespace

std::span<const Mutant> flags_mutants() { return kFlagsMutants; }

}  // namespace emm::mutants
