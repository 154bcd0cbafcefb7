#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "format/any_word.hpp"
#include "message/figure.hpp"

namespace emm::message {

/// What a figure of a message means.
enum class Meaning : std::uint8_t {
  asked,          ///< The request that failed.
  rounded,        ///< The same as the allocator rounds it.
  total,          ///< What the device has.
  free,           ///< What the device has free.
  allowed,        ///< The limit of the allocator itself.
  room,           ///< What that limit leaves.
  reserved,       ///< What the allocator holds from the device.
  allocated,      ///< What of it is given out.
  private_pools,  ///< What of that lies in private pools.
  idle,           ///< What of it is not given out.
  process,        ///< What this process holds, with what is no allocator's.
  elsewhere,      ///< What is held beside the allocator.
  peak,           ///< The most that was given out.
  program,        ///< What a compiled program needs in all.
  temporaries,    ///< Its temporary buffers.
  parameters,     ///< Its parameters.
  outputs,        ///< Its results.
  excess,         ///< By how much it is too large.
  device,         ///< Not bytes: the number of the device.
};
inline constexpr std::size_t kFigures = static_cast<std::size_t>(Meaning::device);
std::string_view name(Meaning what) noexcept;      ///< For JSON: "asked".
std::string_view describe(Meaning what) noexcept;  ///< For people: "asked for".

/// A figure between words. Wordings are written without spaces, so that a line end may be anywhere.
struct Phrase {
  std::string_view before;
  Meaning what;
  std::string_view after;
};

/// Whose message it is.
enum class Speaker : std::uint8_t {
  torch,
  torch_mps,
  metal,
  cupy,
  xla,
  tensorflow,
  onnxruntime,
  rmm,
  numba,
  paddle,
  mxnet,
  mindspore,
  vllm,
  sglang,
  tgi,
  triton,
  julia,
  tensorrt,
  llama,
  nccl,
  cublas,
  cuda,
  other_driver,
  host,
};
std::string_view framework(Speaker speaker) noexcept;
/// The same failure is often told twice, by an allocator and by its framework. Speakers of one
/// family speak of one failure.
unsigned family(Speaker speaker) noexcept;

/// One way to say that memory ran out.
struct Wording {
  Speaker speaker;
  std::string_view trigger;  ///< Without spaces.
  /// Does it have figures or a name of its own? Else it is only an error code, which other messages
  /// quote.
  bool is_specific;
  Rounding rounding = Rounding::nearest;
  bool needs_figure = false;  ///< Without a figure of what was asked it is only somebody's words.
  bool needs_device =
      false;  ///< Memory of the host is told so, too: the text has to name a device.
};

std::span<const Wording> wordings() noexcept;
/// Words of which each wording's trigger, as it is printed, has one, and each line that lists a
/// chunk of a BFC allocator. Lines that say anything else have them seldom.
const format::AnyWord& anchors();
std::span<const Phrase> phrases() noexcept;

}  // namespace emm::message
