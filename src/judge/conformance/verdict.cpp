#include "conformance/verdict.hpp"

#include <array>

#include "base/text.hpp"

namespace emm::conformance {
namespace {

constexpr std::array<std::string_view, 4> kNames{"pass", "fail", "not applicable", "inconclusive"};

std::array<std::string Verdict::*, 10> texts() {
  return {&Verdict::words,    &Verdict::seen,  &Verdict::expected, &Verdict::calls,
          &Verdict::story,    &Verdict::trace, &Verdict::options,  &Verdict::broken,
          &Verdict::evidence, &Verdict::cause};
}

}  // namespace

std::string_view name(Verdict::Kind kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

// The kind as a digit, then each string as its length, a colon and its bytes.
std::string Verdict::to_bytes() const {
  std::string bytes = text::format("{}", static_cast<unsigned>(kind));
  for (const auto member : texts()) {
    text::append(bytes, (this->*member).size());
    bytes += ':';
    bytes += this->*member;
  }
  return bytes;
}

Result<Verdict> Verdict::from_bytes(std::string_view bytes) {
  const Error damaged{.code = Errc::parse_error};
  if (bytes.empty() || bytes.front() < '0' || bytes.front() > '3') return damaged;
  Verdict verdict{.kind = static_cast<Kind>(bytes.front() - '0')};
  bytes.remove_prefix(1);
  for (const auto member : texts()) {
    const auto colon = bytes.find(':');
    if (colon == std::string_view::npos) return damaged;
    const auto length = text::to_u64(bytes.substr(0, colon));
    bytes.remove_prefix(colon + 1);
    if (!length || *length > bytes.size()) return damaged;
    verdict.*member = bytes.substr(0, *length);
    bytes.remove_prefix(*length);
  }
  if (!bytes.empty()) return damaged;
  return verdict;
}

}  // namespace emm::conformance
