#include "report/columns.hpp"

#include "format/deflate.hpp"

namespace emm::report {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t place) -> std::uint32_t {
      return place < bytes.size() ? static_cast<unsigned char>(bytes[place]) : 0u;
    };
    const auto three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    out.push_back(kDigits[three >> 18]);
    out.push_back(kDigits[three >> 12 & 63]);
    out.push_back(i + 1 < bytes.size() ? kDigits[three >> 6 & 63] : '=');
    out.push_back(i + 2 < bytes.size() ? kDigits[three & 63] : '=');
  }
  return out;
}

}  // namespace

void Column::add(std::uint64_t number) {
  for (; number >= 128; number >>= 7) bytes_.push_back(static_cast<char>(number | 128));
  bytes_.push_back(static_cast<char>(number));
}

void Column::add_signed(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  add(bits << 1 ^ (number < 0 ? ~std::uint64_t{0} : 0));
}

void Payload::add(std::string name, std::string_view bytes) {
  columns_.push_back({.name = std::move(name), .size = bytes.size()});
  bytes_ += bytes;
}

std::string Payload::packed() const { return base64(format::deflated(bytes_)); }

}  // namespace emm::report
