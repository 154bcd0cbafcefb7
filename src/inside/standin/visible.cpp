#include "standin/visible.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace emm::standin {
namespace {

constexpr int kNone = -1;  // no device: CUDA_VISIBLE_DEVICES ends there

/// The number at the start of the word, whatever follows it.
int number_of(std::string_view word, std::size_t devices) {
  if (word.starts_with('+')) word.remove_prefix(1);
  int number = kNone;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool is_device =
      read.ec == std::errc{} && number >= 0 && static_cast<std::size_t>(number) < devices;
  return is_device ? number : kNone;
}

int device_of(std::string_view uuid, const std::vector<std::string>& uuids) {
  int found = kNone;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(uuid)) continue;
    if (found != kNone) return kNone;  // it fits several
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

std::vector<int> visible_devices(std::string_view words, const std::vector<std::string>& uuids) {
  constexpr std::string_view kUuid = "GPU-";
  std::vector<int> found;
  const bool by_uuid = words.starts_with(kUuid);
  for (bool more = true; more;) {
    const auto end = words.find(',');
    auto word = words.substr(0, end);
    more = end != words.npos;
    if (more) words.remove_prefix(end + 1);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    const bool fits = word.starts_with(kUuid) == by_uuid;
    const int device = !fits     ? kNone
                       : by_uuid ? device_of(word, uuids)
                                 : number_of(word, uuids.size());
    if (device == kNone) break;
    if (std::find(found.begin(), found.end(), device) != found.end()) return {};
    found.push_back(device);
  }
  return found;
}

}  // namespace emm::standin
