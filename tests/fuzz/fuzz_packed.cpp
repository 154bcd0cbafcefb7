// Any bytes as a file, plain, gzip or zstd, whole or damaged: by chunks and by lines.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/byte_source.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace emm;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::size_t kEnough = std::size_t{4} << 20;  // a small file may hold a very long one

  std::string all;
  const auto source = format::ByteSource::memory(bytes);
  for (auto chunk = source->next(); chunk && !chunk->empty() && all.size() < kEnough;
       chunk = source->next()) {
    all.append(*chunk);
  }
  if (all.size() >= kEnough) return 0;

  const auto by_line = format::ByteSource::memory(bytes);
  format::LineReader lines(*by_line);
  std::string_view line;
  std::size_t seen = 0;
  for (auto more = lines.next(line); more && *more; more = lines.next(line)) seen += line.size();
  EMM_ASSERT(seen <= all.size());
  return 0;
}
