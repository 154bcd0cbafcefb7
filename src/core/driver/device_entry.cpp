#include "driver/device_entry.hpp"

#include <vector>

#include "base/text.hpp"

namespace emm {
namespace {

const DeviceEntry* find_device(std::string_view name) {
  for (const auto* entry : bundled_devices()) {
    if (entry->name == name) return entry;
  }
  return nullptr;
}

Result<std::unique_ptr<Platform>> open_any(const DeviceDefaults& defaults, std::string* said) {
  const auto* cuda = find_device("cuda");
  auto found = cuda->open("", defaults);
  if (found) {
    if (said != nullptr) *said = "auto is cuda: a driver and a device are here";
    return found;
  }
  if (said != nullptr) *said = text::format("auto is sim: {}", describe(found.error()));
  return find_device("sim")->open("", defaults);
}

}  // namespace

Result<std::unique_ptr<Platform>> open_platform(std::string_view spec,
                                                const DeviceDefaults& defaults, std::string* said) {
  if (spec == "auto") return open_any(defaults, said);
  const auto colon = spec.find(':');
  const auto name = spec.substr(0, colon);
  const auto options =
      colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1);
  if (const auto* entry = find_device(name)) return entry->open(options, defaults);
  std::vector<std::string_view> known{"auto"};
  for (const auto* entry : bundled_devices()) known.push_back(entry->name);
  return fail(Errc::usage, "unknown device '{}': known are {}", name, text::join(known));
}

}  // namespace emm
