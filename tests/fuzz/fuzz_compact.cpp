// Any bytes as a block of a compact trace, whose checksum is passed over: unpacked or refused,
// never worse. What is unpacked is packed and unpacked the same.
#include <cstdint>
#include <string_view>

#include "base/assert.hpp"
#include "tests/trace/random_operation.hpp"
#include "trace/compact/block_decoder.hpp"
#include "trace/compact/block_encoder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace emm::trace;
  compact::BlockDecoder decoder;
  compact::BlockEncoder encoder;
  const std::string_view payload(reinterpret_cast<const char*>(data), size);
  if (!decoder.load(payload).empty()) return 0;
  while (const auto* operation = decoder.next()) encoder.add(*operation);
  if (!decoder.damaged().empty()) return 0;

  compact::BlockDecoder again;
  EMM_ASSERT(again.load(encoder.pack()).empty());
  EMM_ASSERT(decoder.load(payload).empty());
  while (const auto* operation = decoder.next()) {
    const auto* same = again.next();
    EMM_ASSERT(same != nullptr && difference(*operation, *same).empty());
  }
  EMM_ASSERT(again.next() == nullptr && again.damaged().empty());
  return 0;
}
