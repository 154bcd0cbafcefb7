// JAX's save_device_memory_profile(): a profile of pprof, a protobuf in gzip. It says what is live
// at one moment, by call stack, kind and device.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics.hpp"

namespace emm::inspect {
namespace {

/// ProtoFields of one protobuf message, one after the other.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view all) noexcept : rest_(all) {}

  /// Goes to the next field. Returns false at the end, and where the bytes are damaged.
  bool next() noexcept {
    if (rest_.empty() || damaged_) return false;
    const auto tag = varint();
    number = tag >> 3;
    bytes = {};
    value = 0;
    switch (tag & 7) {
      case 0:
        value = varint();
        break;
      case 1:
        bytes = take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        bytes = take(4);
        break;
      default:
        damaged_ = true;
    }
    return !damaged_;
  }
  bool damaged() const noexcept { return damaged_; }
  std::uint64_t number = 0, value = 0;
  std::string_view bytes{};

  /// Values of a repeated number, packed or one by one.
  template <class Use>
  void each_number(Use&& use) const {
    if (bytes.empty()) return use(value);
    ProtoFields packed(bytes);
    while (!packed.rest_.empty() && !packed.damaged_) use(packed.varint());
  }

 private:
  std::uint64_t varint() noexcept {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      out |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return out;
    }
    damaged_ = true;
    return 0;
  }
  std::string_view take(std::uint64_t size) noexcept {
    if (damaged_ || size > rest_.size()) {
      damaged_ = true;
      return {};
    }
    const auto taken = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return taken;
  }

  std::string_view rest_;
  bool damaged_ = false;
};

struct PprofFunction {
  std::uint64_t name = 0, file = 0;
};

struct Pprof {
  std::vector<std::string_view> strings;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> value_types;  // type, unit
  std::vector<std::string_view> samples;
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> lines;  // by location
  std::unordered_map<std::uint64_t, PprofFunction> functions;
  bool damaged = false;

  std::string_view string(std::uint64_t index) const {
    return index < strings.size() ? strings[static_cast<std::size_t>(index)] : std::string_view();
  }
};

Pprof parse_pprof(std::string_view bytes) {
  Pprof out;
  ProtoFields all(bytes);
  while (all.next()) {
    ProtoFields of(all.bytes);
    switch (all.number) {
      case 1: {
        std::pair<std::uint64_t, std::uint64_t> type;
        while (of.next()) (of.number == 1 ? type.first : type.second) = of.value;
        out.value_types.push_back(type);
        break;
      }
      case 2:
        out.samples.push_back(all.bytes);
        break;
      case 4: {
        std::uint64_t id = 0;
        std::optional<std::pair<std::uint64_t, std::uint64_t>> line;
        while (of.next()) {
          if (of.number == 1) id = of.value;
          if (of.number != 4 || line) continue;  // the first line is the innermost function
          line.emplace();
          ProtoFields in(of.bytes);
          while (in.next()) (in.number == 1 ? line->first : line->second) = in.value;
        }
        if (line) out.lines[id] = *line;
        break;
      }
      case 5: {
        std::uint64_t id = 0;
        PprofFunction function;
        while (of.next()) {
          if (of.number == 1) id = of.value;
          if (of.number == 2) function.name = of.value;
          if (of.number == 4) function.file = of.value;
        }
        out.functions[id] = function;
        break;
      }
      case 6:
        out.strings.push_back(all.bytes);
        break;
      default:
        break;
    }
  }
  out.damaged = all.damaged();
  return out;
}

/// The innermost function that is not of a library, with its file and line.
std::string pprof_site(const Pprof& profile, const std::vector<std::uint64_t>& locations) {
  std::string innermost;
  for (const auto location : locations) {
    const auto line = profile.lines.find(location);
    if (line == profile.lines.end()) continue;
    const auto function = profile.functions.find(line->second.first);
    if (function == profile.functions.end()) continue;
    const auto name = profile.string(function->second.name);
    const auto file = profile.string(function->second.file);
    auto words = file.empty() ? std::string(name)
                              : text::format("{} {}:{}", name, file, line->second.second);
    if (innermost.empty()) innermost = words;
    if (file.find("site-packages") == file.npos && file.find("/jax/") == file.npos) return words;
  }
  return innermost.empty() ? "no call stack" : innermost;
}

Result<Statistics> read_pprof(format::ByteSource& source) {
  constexpr std::size_t kMost = std::size_t{256} << 20;  // bytes; JAX's profiles are far smaller
  std::string all;
  auto some = source.next();
  for (; some && !some->empty() && all.size() < kMost; some = source.next()) all += *some;
  if (!some) return some.error();
  const auto profile = parse_pprof(all);
  if (profile.damaged || source.truncated()) {
    return fail(Errc::parse_error, "{}: the profile ends inside a message: expected a whole pprof",
                source.name());
  }
  std::size_t bytes_at = profile.value_types.size(), count_at = profile.value_types.size();
  for (std::size_t i = 0; i < profile.value_types.size(); ++i) {
    const auto unit = profile.string(profile.value_types[i].second);
    if (unit == "bytes") bytes_at = i;
    if (unit == "count") count_at = i;
  }
  if (bytes_at == profile.value_types.size()) {
    return fail(Errc::parse_error,
                "{}: the pprof counts no bytes: expected jax.profiler.save_device_memory_profile's",
                source.name());
  }
  std::map<std::string, StatisticsRow> by_site;
  std::map<std::string, StatisticsRow> by_device;
  std::uint64_t total = 0, count = 0;
  for (const auto sample : profile.samples) {
    ProtoFields of(sample);
    std::vector<std::uint64_t> locations, values;
    std::string device, kind;
    while (of.next()) {
      if (of.number == 1) of.each_number([&](std::uint64_t value) { locations.push_back(value); });
      if (of.number == 2) of.each_number([&](std::uint64_t value) { values.push_back(value); });
      if (of.number != 3) continue;
      ProtoFields label(of.bytes);
      std::string_view key, value;
      while (label.next()) {
        if (label.number == 1) key = profile.string(label.value);
        if (label.number == 2) value = profile.string(label.value);
      }
      if (key == "device") device = value;
      if (key == "kind") kind = value;
    }
    const auto bytes = bytes_at < values.size() ? values[bytes_at] : 0;
    const auto many = count_at < values.size() ? values[count_at] : 1;
    const auto add = [&](std::map<std::string, StatisticsRow>& to, const std::string& name) {
      auto& row = to[name];
      row.name = name;
      row.bytes += bytes;
      row.count += many;
    };
    add(by_site, pprof_site(profile, locations) + (kind.empty() ? "" : " (" + kind + ")"));
    add(by_device, device.empty() ? "a device that is not named" : device);
    total += bytes;
    count += many;
  }
  Statistics out{.what = "a device memory profile of JAX: what is live at one moment"};
  out.reading.push_back(text::format("{} are live in {} buffers and executables.",
                                     units::short_bytes(total), text::grouped(count)));
  for (const auto& [name, row] : by_device) {
    out.groups.push_back({.name = name,
                          .figures = {{.name = "live", .value = Stated::exactly(row.bytes)},
                                      {.name = "buffers",
                                       .value = Stated::exactly(row.count),
                                       .unit = Figure::Unit::count}}});
  }
  for (auto& [name, row] : by_site) out.rows.push_back(std::move(row));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  out.rows_title = "Live, by the innermost function of the program";
  out.unknown.emplace_back("the peak, and what was freed before: the profile is of one moment");
  out.unknown.emplace_back("what the allocator reserves beyond what is live");
  out.next.emplace_back("a second profile later: emmctl diff before.prof after.prof");
  out.next.emplace_back("emmctl record -o run.jsonl -- python program.py");
  return out;
}

/// A profile begins with its value types: messages of two small numbers.
int sniff_pprof(std::string_view prefix) {
  const bool good = prefix.size() > 6 && prefix.starts_with("\x0a\x04\x08") && prefix[4] == '\x10';
  return good ? 85 : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader jax_profile_statistics{
    .name = "jax-profile",
    .summary = "jax.profiler.save_device_memory_profile(): pprof, packed with gzip",
    .sniff = inspect::sniff_pprof,
    .read = inspect::read_pprof,
};

}  // namespace emm
