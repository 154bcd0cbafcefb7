#include "commands/named_ranks.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.hpp"

namespace emm::cli {

Result<NamedRanks> NamedRanks::parse(const std::string& given) {
  constexpr std::uint64_t kMost = 65536;  // ranks of a job: catches a slip of the hand
  const auto wrong = [&](std::string_view expected) {
    return fail(Errc::usage, "--ranks {}: expected {}", given, expected);
  };
  constexpr std::string_view kForm = "RANK,... of COUNT, as in '0,7 of 64' or '0..3 of 64'";
  constexpr std::string_view kOf = " of ";
  const auto at = given.find(kOf);
  const auto all = at != given.npos
                       ? text::to_u64(text::trim(std::string_view(given).substr(at + kOf.size())))
                       : std::nullopt;
  if (!all || *all == 0 || *all > kMost) return wrong(kForm);
  NamedRanks made{.run = {}, .all = static_cast<int>(*all)};
  const auto list = std::string_view(given).substr(0, at);
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto part = text::trim(list.substr(begin, end - begin));
    begin = end + 1;
    const auto dots = part.find("..");
    const auto first = text::to_u64(part.substr(0, dots));
    const auto last = dots == part.npos ? first : text::to_u64(part.substr(dots + 2));
    if (!first || !last || *first > *last) return wrong(kForm);
    if (*last >= *all) return wrong(text::format("ranks from 0 to {}", *all - 1));
    for (auto rank = *first; rank <= *last; ++rank) made.run.push_back(static_cast<int>(rank));
  }
  std::sort(made.run.begin(), made.run.end());
  made.run.erase(std::unique(made.run.begin(), made.run.end()), made.run.end());
  return made;
}

std::string NamedRanks::words() const {
  std::vector<std::string> ranks;
  for (const auto rank : run) ranks.push_back(text::format("{}", rank));
  return text::format("{}/{}", text::join(ranks, ","), all);
}

Result<int> free_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool is_bound = file >= 0 && bind(file, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                        getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  if (!is_bound) return fail(Errc::io_error, "{}: {}", "127.0.0.1", std::strerror(error));
  return ntohs(address.sin_port);
}

}  // namespace emm::cli
