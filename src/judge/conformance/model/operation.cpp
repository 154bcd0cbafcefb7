#include "conformance/model/operation.hpp"

#include <array>
#include <string_view>

#include "base/text_format.hpp"

namespace emm::model {
namespace {

constexpr std::array<std::string_view, 12> kAskNames{
    "initialize", "memalloc",      "memhostalloc",      "mempin", "memallocmanaged", "drop", "free",
    "flush",      "defer_cleanup", "end_defer_cleanup", "reset",  "get_memory_info",
};
static_assert(kAskNames.size() == static_cast<std::size_t>(Ask::get_memory_info) + 1);

}  // namespace

std::string describe(const Operation& operation) {
  std::string out(kAskNames[static_cast<std::size_t>(operation.ask)]);
  if (operation.slot != kNoSlot) out += text::format(" slot {}", operation.slot);
  switch (operation.ask) {
    case Ask::memhostalloc:
      out += text::format(" flags {}", operation.host.bits());
      break;
    case Ask::mempin:
      out += text::format(" region {}{}", operation.region, operation.host.mapped ? " mapped" : "");
      break;
    case Ask::memallocmanaged:
      out += operation.attach == AttachFlags::global ? " global" : " host";
      break;
    default:
      break;
  }
  switch (operation.ask) {
    case Ask::memalloc:
    case Ask::memhostalloc:
    case Ask::mempin:
    case Ask::memallocmanaged:
      out += text::format(" size {}", operation.size);
      break;
    default:
      break;
  }
  if (operation.ask == Ask::end_defer_cleanup) out += text::format(" guard {}", operation.which);
  if (operation.elsewhere) out += ", on another thread";
  if (operation.nested != kNoSlot)
    out += text::format(", its first free drops slot {}", operation.nested);
  for (unsigned call = 0; call < 64; ++call) {
    if ((operation.faults.mask >> call & 1) == 0) continue;
    out += text::format(", call {} fails with {}", call,
                        call == 0 ? operation.faults.first : operation.faults.later);
  }
  return out;
}

}  // namespace emm::model
