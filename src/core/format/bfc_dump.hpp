#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace emm::format {

/// One line of the dump that a BFC allocator (of TensorFlow, XLA or ONNX Runtime) writes when it
/// runs out of memory, without the prefix of the log.
struct BfcLine {
  enum class Meaning : std::uint8_t {
    request,  ///< size: what was asked for, as the allocator rounds it; 0: only `printed` says it.
    region,   ///< size
    chunk,    ///< address, size, is_free
    limit,    ///< size
    in_use,   ///< size
    peak,     ///< size: the most that was in use.
    bin,      ///< Another line of a dump.
  } what = Meaning::bin;
  std::uint64_t address = 0, size = 0;
  bool is_free = false;
  std::string_view printed{};    ///< A request's size: "1.00GiB".
  std::string_view allocator{};  ///< What a request was made of: "GPU_0_bfc".
};
std::optional<BfcLine> parse_bfc_line(std::string_view text);

}  // namespace emm::format
