#include "trial/sweep/matrix.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text_format.hpp"
#include "format/file_bytes.hpp"
#include "format/json_value.hpp"

namespace emm::sweep {
namespace {

constexpr std::size_t kCellsMost = 1'000'000;  // each is a file: more are a slip of the hand

// Bytes: a larger file's stamp is its time, not a hash of what it holds.
constexpr std::uint64_t kHashedMost = std::uint64_t{64} << 20;

class Hash {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::string digits() const {
    auto hash = hash_ ^ hash_ >> 32;
    hash *= 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[(hash >> shift) & 15];
    return out;
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

/// Which dimensions of a matrix mean something to a command.
struct Takes {
  std::string_view command;
  bool manager, capacity, device;
};
constexpr Takes kTakes[] = {{"replay", true, true, true},
                            {"fit", true, false, false},
                            {"compare", true, true, true},
                            {"tune", false, true, false}};

/// Adds the setting to the options of the manager.
std::string with_setting(const std::string& manager, const std::string& setting) {
  if (setting.empty()) return manager;
  const auto name = manager.substr(manager.rfind('/') + 1);
  return manager + (name.find(':') == std::string::npos ? ':' : ',') + setting;
}

const std::vector<std::string>& or_one(const std::vector<std::string>& values) {
  static const std::vector<std::string> one{""};
  return values.empty() ? one : values;
}

}  // namespace

Status Matrix::add_file(const std::string& path) {
  const auto text = format::file_bytes(path, nullptr);
  if (!text) return text.error();
  const auto json = format::parse_json(*text, path);
  if (!json) return json.error();
  if (json->type != format::JsonValue::Type::object)
    return fail(Errc::parse_error, "{}: expected an object with the lists of a sweep", path);
  for (const auto& [key, at, value] : json->members) {
    if (key == "schema") continue;
    if (key == "command") {
      command = std::string(value.as_string().value_or(""));
      continue;
    }
    auto* list = key == "traces"       ? &traces
                 : key == "managers"   ? &managers
                 : key == "settings"   ? &settings
                 : key == "capacities" ? &capacities
                 : key == "devices"    ? &devices
                 : key == "options"    ? &options
                                       : nullptr;
    if (list == nullptr) {
      return fail(Errc::parse_error,
                  "{}: \"{}\": expected one of command, traces, managers, settings, capacities, "
                  "devices and options",
                  path, key);
    }
    for (const auto& each : value.elements) {
      if (const auto word = each.as_string()) {
        list->emplace_back(*word);
      } else if (const auto number = each.as_u64()) {
        list->push_back(text::format("{}", *number));
      } else {
        return fail(Errc::parse_error, "{}: \"{}\": expected a list of texts", path, key);
      }
    }
    if (value.type != format::JsonValue::Type::array)
      return fail(Errc::parse_error, "{}: \"{}\": expected a list of texts", path, key);
  }
  return {};
}

std::string id_of(const std::vector<std::string>& command, const std::string& stamp) {
  constexpr char kEnd = '\0';  // no word has one: "a b" and "a", "b" differ
  Hash hash;
  for (const auto& word : command) {
    hash.add(word);
    hash.add({&kEnd, 1});
  }
  hash.add(stamp);
  return hash.digits();
}

const std::string& Stamps::of_file(const std::string& path) {
  const auto [known, added] = known_.try_emplace(path);
  if (!added) return known->second;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return known->second;
  Hash hash;
  if (size > kHashedMost) {
    const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    hash.add(text::format("{} {}", size, time));
  } else {
    std::ifstream file(path, std::ios::binary);
    std::array<char, 1 << 16> bytes;
    while (file.read(bytes.data(), bytes.size()) || file.gcount() > 0)
      hash.add({bytes.data(), static_cast<std::size_t>(file.gcount())});
  }
  known->second = hash.digits();
  return known->second;
}

std::string Stamps::of(const std::vector<std::string>& command) {
  if (command.size() < 2) return {};
  auto stamp = of_file(command[1]);
  for (std::size_t i = 2; i + 1 < command.size() && !stamp.empty(); ++i) {
    if (command[i] != "--manager") continue;
    // "./mine.so:key=value"
    const auto& manager = command[i + 1];
    const auto slash = manager.rfind('/');
    const auto path = manager.substr(0, manager.find(':', slash == std::string::npos ? 0 : slash));
    if (path.find('/') != std::string::npos || path.ends_with(".so")) stamp += of_file(path);
  }
  return stamp;
}

Result<std::vector<Cell>> cells_of(const Matrix& matrix, const std::vector<std::string>& paths) {
  const auto name = matrix.command.empty() ? std::string("replay") : matrix.command;
  const Takes* takes = nullptr;
  for (const auto& each : kTakes) {
    if (each.command == name) takes = &each;
  }
  if (takes == nullptr)
    return fail(Errc::usage, "a sweep of {}: expected replay, fit, compare or tune", name);
  const auto refuses = [&](bool takes_it, const std::vector<std::string>& values,
                           std::string_view what) -> Status {
    if (takes_it || values.empty()) return {};
    return fail(Errc::usage, "a sweep of {} with {}: expected none, as it takes none", name, what);
  };
  for (const auto& refused : {refuses(takes->manager, matrix.managers, "managers"),
                              refuses(takes->manager, matrix.settings, "settings"),
                              refuses(takes->capacity, matrix.capacities, "capacities"),
                              refuses(takes->device, matrix.devices, "devices")}) {
    if (!refused) return refused.error();
  }
  if (!matrix.settings.empty() && matrix.managers.empty())
    return fail(Errc::usage, "a sweep with settings: expected the managers whose they are");
  const auto count = static_cast<double>(paths.size()) *
                     static_cast<double>(or_one(matrix.managers).size()) *
                     static_cast<double>(or_one(matrix.settings).size()) *
                     static_cast<double>(or_one(matrix.capacities).size()) *
                     static_cast<double>(or_one(matrix.devices).size());
  if (paths.empty()) return fail(Errc::usage, "a sweep without traces: expected at least one");
  if (count > static_cast<double>(kCellsMost))
    return fail(Errc::usage, "a sweep of more than {} cells: expected fewer", kCellsMost);
  std::vector<Cell> cells;
  std::set<std::string> known;
  Stamps stamps;
  for (const auto& path : paths) {
    std::error_code error;
    const auto whole = std::filesystem::absolute(path, error).lexically_normal().string();
    for (const auto& manager : or_one(matrix.managers)) {
      for (const auto& setting : or_one(matrix.settings)) {
        for (const auto& capacity : or_one(matrix.capacities)) {
          for (const auto& device : or_one(matrix.devices)) {
            Cell cell{.id = {},
                      .trace = path,
                      .manager = manager,
                      .setting = setting,
                      .capacity = capacity,
                      .device = device,
                      .command = {name, error ? path : whole}};
            if (!manager.empty()) {
              cell.command.emplace_back("--manager");
              cell.command.push_back(with_setting(manager, setting));
            }
            if (!device.empty()) {
              cell.command.emplace_back("--device");
              // The capacity joins the options of a simulated device, as --device is given once.
              const auto options = device.find(':');
              const auto with = !capacity.empty() && device.starts_with("sim");
              cell.command.push_back(
                  with
                      ? text::format("sim:capacity={}{}{}", capacity,
                                     options == std::string::npos ? "" : ",",
                                     options == std::string::npos ? "" : device.substr(options + 1))
                      : device);
            } else if (takes->device) {
              cell.command.emplace_back("--device");
              cell.command.push_back(capacity.empty() ? "sim" : "sim:capacity=" + capacity);
            } else if (!capacity.empty()) {
              cell.command.emplace_back("--capacity");
              cell.command.push_back(capacity);
            }
            cell.command.insert(cell.command.end(), matrix.options.begin(), matrix.options.end());
            cell.stamp = stamps.of(cell.command);
            cell.id = id_of(cell.command, cell.stamp);
            if (known.insert(cell.id).second) cells.push_back(std::move(cell));
          }
        }
      }
    }
  }
  return cells;
}

}  // namespace emm::sweep
