#include "driver/gpu_profile_file.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_format.hpp"

namespace emm {
namespace {

/// The text of a file, and the profile whose names lie in it.
struct ProfileText {
  std::string path, device;
  std::vector<GpuAttribute> attributes{};
  GpuProfile profile{};
};

template <class Number>
bool read_number(std::string_view word, Number& value) {
  const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
  return read.ec == std::errc{} && read.ptr == word.data() + word.size();
}

/// The word before the first space, which is taken away with the space.
std::string_view take_word(std::string_view& line) {
  const auto end = line.find(' ');
  const auto word = line.substr(0, end);
  line = end == line.npos ? std::string_view() : line.substr(end + 1);
  return word;
}

bool read_line(std::string_view line, ProfileText& kept) {
  const auto key = take_word(line);
  if (key == "device") {
    kept.device = line;
    return !line.empty();
  }
  if (key == "total") return read_number(line, kept.profile.total) && kept.profile.total != 0;
  if (key == "context") return read_number(line, kept.profile.context);
  if (key != "attribute") return false;
  GpuAttribute attribute;
  if (!read_number(take_word(line), attribute.number) || !read_number(line, attribute.value))
    return false;
  kept.attributes.push_back(attribute);
  return true;
}

/// The facts that the table of cards has, out of the attributes.
void complete(ProfileText& kept) {
  std::sort(kept.attributes.begin(), kept.attributes.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  auto& profile = kept.profile;
  profile.name = kept.path;
  profile.device = kept.device;
  profile.source = "a profile";
  profile.attributes = kept.attributes;
  const auto of = [&](int number) { return profile.attribute(number).value_or(0); };
  profile.major = of(75);
  profile.minor = of(76);
  profile.multiprocessors = of(16);
  profile.clock_khz = of(13);
  profile.memory_clock_khz = of(36);
  profile.bus_bits = of(37);
  profile.l2 = static_cast<std::uint64_t>(of(38));
}

/// libcuda.so.1, which stays loaded.
class DriverLibrary {
 public:
  DriverLibrary() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  explicit operator bool() const noexcept { return library_ != nullptr; }

  /// Calls the function; 500 (not found) if the driver has none of that name.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND
    return function != nullptr ? function(arguments...) : kNotFound;
  }

 private:
  void* library_;
};

}  // namespace

Result<const GpuProfile*> read_gpu_profile(const std::string& path) {
  static std::mutex one_at_a_time;
  static auto& all = *new std::deque<ProfileText>;
  const std::lock_guard lock(one_at_a_time);
  for (const auto& kept : all) {
    if (kept.path == path) return &kept.profile;
  }
  std::ifstream file(path);
  if (!file) return fail(Errc::usage, "{}: {}", path, std::strerror(errno));
  ProfileText kept{.path = path, .device = {}};
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    if (!read_line(line, kept))
      return fail(Errc::parse_error,
                  "{}:{}: '{}': expected a line of emmctl doctor --profile: device NAME, total "
                  "BYTES, context BYTES, or attribute NUMBER VALUE",
                  path, number, line);
  }
  if (kept.device.empty() || kept.profile.total == 0 || kept.attributes.empty())
    return fail(Errc::parse_error,
                "{}: expected a device, its total and its attributes, as emmctl doctor --profile "
                "writes them",
                path);
  all.push_back(std::move(kept));
  complete(all.back());
  return &all.back().profile;
}

Result<std::string> profile_of_this_gpu() {
  const DriverLibrary driver;
  if (!driver) return fail(Errc::no_device, "no CUDA driver ({})", "libcuda.so.1 not found");
  int device = 0;
  char name[256] = {};
  std::size_t total = 0, free = 0, all = 0;
  void* context = nullptr;
  // In their order, to the first that fails.
  const std::pair<const char*, std::function<int(const char*)>> calls[] = {
      {"cuInit", [&](const char* its) { return driver.call(its, 0u); }},
      {"cuDeviceGet", [&](const char* its) { return driver.call(its, &device, 0); }},
      {"cuDeviceGetName",
       [&](const char* its) {
         return driver.call(its, &name[0], static_cast<int>(sizeof name), device);
       }},
      {"cuDeviceTotalMem_v2", [&](const char* its) { return driver.call(its, &total, device); }},
      {"cuDevicePrimaryCtxRetain",
       [&](const char* its) { return driver.call(its, &context, device); }},
      {"cuCtxSetCurrent", [&](const char* its) { return driver.call(its, context); }},
      {"cuMemGetInfo_v2", [&](const char* its) { return driver.call(its, &free, &all); }}};
  for (const auto& [function, call] : calls) {
    if (const int code = call(function); code != 0)
      return fail(Errc::no_device, "no CUDA driver ({})",
                  text::format("libcuda.so.1 has a {} that answered {}", function, code));
  }
  std::string text = text::format(
      "# A card for emmctl run --device sim:profile=FILE, as its driver answers. The context's "
      "bytes "
      "are\n# those of everybody who used the card.\ndevice {}\ntotal {}\ncontext {}\n",
      name, total, all - free);
  constexpr int kMostAttributes = 200;  // more than a driver has; it refuses what it has not
  for (int number = 1; number <= kMostAttributes; ++number) {
    int value = 0;
    if (driver.call("cuDeviceGetAttribute", &value, number, device) == 0 && value != 0)
      text += text::format("attribute {} {}\n", number, value);
  }
  (void)driver.call("cuDevicePrimaryCtxRelease_v2", device);
  return text;
}

}  // namespace emm
