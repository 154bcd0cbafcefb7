#include "format/deflate.hpp"

#include <zlib.h>

#include <new>

namespace emm::format {

std::string deflated(std::string_view bytes) {
  constexpr int kLevel = 6;  // a third smaller than level 1, in twice the time
  std::string out(compressBound(bytes.size()), '\0');
  auto size = static_cast<uLongf>(out.size());
  const int code = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), kLevel);
  if (code != Z_OK)
    throw std::bad_alloc();  // the output is large enough, so zlib has no other reason to fail
  out.resize(size);
  return out;
}

}  // namespace emm::format
