#include "format/deflate.hpp"

#include <zlib.h>

#include <new>

namespace emm::format {

std::string deflated(std::string_view bytes) {
  constexpr int kLevel = 6;  // a third less space than level 1, for twice its time
  std::string out(compressBound(bytes.size()), '\0');
  auto size = static_cast<uLongf>(out.size());
  const int code = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), kLevel);
  if (code != Z_OK) throw std::bad_alloc();  // the room is enough: zlib has no other reason
  out.resize(size);
  return out;
}

}  // namespace emm::format
