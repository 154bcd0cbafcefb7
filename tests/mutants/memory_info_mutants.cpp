#include "base/units.hpp"
#include "emm/memory_statistics.hpp"
#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Wrong answers of get_memory_info.

namespace emm::mutants {
namespace {

using W = WrongManager&;

/// Changes each answer.
template <class Change>
void change_info(W m, Change change) {
  m.on_get_memory_info = [&m, change]() mutable -> Result<MemoryInfo> {
    auto info = m.up->get_memory_info();
    if (info) change(*info, m);
    return info;
  };
}

const Mutant kMemoryInfoMutants[] = {
    {"memory_info/true", "says what was free at first", "default",
     [](W m) {
       change_info(m, [first = std::optional<MemoryInfo>()](auto& info, W) mutable {
         if (!first) first = info;
         info = *first;
       });
     }},
    {"memory_info/true", "asks the device at every other call", "pool",
     [](W m) {
       change_info(m, [last = MemoryInfo(), calls = 0](auto& info, W) mutable {
         if (calls++ % 2 == 1) info = last;
         last = info;
       });
     }},
    {"memory_info/true", "counts in KiB", "default",
     [](W m) {
       change_info(m, [](auto& info, W) { info = {info.free / 1_KiB, info.total / 1_KiB}; });
     }},
    {"memory_info/true", "counts what is free in pages", "default",
     [](W m) { change_info(m, [](auto& info, W) { info.free /= 4_KiB; }); }},
    {"memory_info/true", "says that all is free", "cudart",
     [](W m) { change_info(m, [](auto& info, W) { info.free = info.total; }); }},
    {"memory_info/true", "says that nothing is free", "async",
     [](W m) { change_info(m, [](auto& info, W) { info.free = 0; }); }},
    {"memory_info/true", "counts live memory twice", "default",
     [](W m) {
       change_info(m, [](auto& info, W manager) {
         info.free -= std::min(info.free, manager.up->state().live_bytes.value_or(0));
       });
     }},
    {"memory_info/true", "counts idle memory twice", "pool",
     [](W m) {
       change_info(m, [](auto& info, W manager) {
         const auto counted = manager.up->statistics();
         const auto idle = *counted.reserved_bytes.current - *counted.requested_bytes.current;
         info.free = std::min(info.total, info.free + 2 * idle);
       });
     }},
    {"memory_info/true", "takes what is free for the total", "default",
     [](W m) { change_info(m, [](auto& info, W) { info.total = info.free; }); }},
};

}  // namespace

std::span<const Mutant> memory_info_mutants() { return kMemoryInfoMutants; }

}  // namespace emm::mutants
