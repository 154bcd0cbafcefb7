#include "allocators/pytorch/settings.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text_format.hpp"
#include "format/json_value.hpp"

namespace emm::allocators::pytorch {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t'\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t'\"") - begin + 1);
}

std::uint64_t divisions_of(const Settings& settings, std::uint64_t size) noexcept {
  const auto log = static_cast<int>(std::bit_width(size)) - 1;
  const auto first = static_cast<int>(std::bit_width(kMiB)) - 1;
  const auto last = static_cast<int>(settings.roundup_power2_divisions.size()) - 1;
  return settings
      .roundup_power2_divisions[static_cast<std::size_t>(std::clamp(log - first, 0, last))];
}

/// Splits text such as "a:1,b:[x:1,y:2]" at separators outside of brackets.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at == text.size() || (text[at] == separator && depth == 0)) {
      if (const auto part = trim(text.substr(begin, at - begin)); !part.empty())
        parts.push_back(part);
      begin = at + 1;
      continue;
    }
    depth += text[at] == '[' ? 1 : text[at] == ']' ? -1 : 0;
  }
  return parts;
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Error bad_value(std::string_view name, std::string_view value, std::string_view expected) {
  return fail(Errc::usage, "{} is \"{}\": expected {}", name, value, expected);
}

bool is_divisions(std::uint64_t value) { return value == 0 || std::has_single_bit(value); }

/// Reads "8", or "[256:1,512:2,>:4]" with commas or semicolons.
Status read_divisions(std::string_view value, Settings& settings) {
  constexpr std::string_view kName = "roundup_power2_divisions";
  constexpr std::string_view kExpected =
      "a power of two, or a list like [256:1,512:2,>:8] whose keys are MiB, powers of two";
  auto& table = settings.roundup_power2_divisions;
  std::uint64_t divisions = 0;
  if (!value.starts_with('[')) {
    if (!read_number(value, divisions) || !is_divisions(divisions))
      return bad_value(kName, value, kExpected);
    table.fill(divisions);
    return {};
  }
  if (!value.ends_with(']')) return bad_value(kName, value, kExpected);
  const auto inside = value.substr(1, value.size() - 2);
  const auto separator = inside.find(';') != std::string_view::npos ? ';' : ',';
  table.fill(0);
  std::size_t next = 0;
  auto first = true;
  for (const auto part : parts_of(inside, separator)) {
    const auto colon = part.find(':');
    if (colon == std::string_view::npos || !read_number(trim(part.substr(colon + 1)), divisions) ||
        !is_divisions(divisions))
      return bad_value(kName, value, kExpected);
    const auto key = trim(part.substr(0, colon));
    std::uint64_t mib = 0;
    if (key == ">") {
      // The value of ">" applies to all entries after the last key.
      std::fill(table.begin() + static_cast<std::ptrdiff_t>(next), table.end(), divisions);
      continue;
    }
    if (!read_number(key, mib) || !std::has_single_bit(mib))
      return bad_value(kName, value, kExpected);
    const auto index = std::min<std::size_t>(std::bit_width(mib) - 1, table.size() - 1);
    // Entries below the first key take its value.
    if (std::exchange(first, false))
      std::fill(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(index), divisions);
    table[index] = divisions;
    next = index + 1;
  }
  return {};
}

/// Settings that do not affect the model.
constexpr std::string_view kWithoutEffect[] = {
    "pinned_use_cuda_host_register",     "pinned_num_register_threads",
    "pinned_use_background_threads",     "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
};

/// Sizes of page-locked memory, in MiB.
struct HostSize {
  std::string_view name;
  std::uint64_t HostSettings::*size;
};
constexpr HostSize kHostSizes[] = {
    {"pinned_max_round_threshold_mb", &HostSettings::max_round_threshold},
    {"pinned_max_cached_size_mb", &HostSettings::max_cached_size},
    {"pinned_reserve_segment_size_mb", &HostSettings::reserve_segment},
};

Status read_setting(std::string_view name, std::string_view value, Settings& settings) {
  const auto mib = [&](std::uint64_t least, std::uint64_t& bytes) -> Status {
    std::uint64_t number = 0;
    if (!read_number(value, number) || number < least || number > kNoLimit / kMiB)
      return bad_value(name, value, text::format("MiB, at least {}", least));
    bytes = number * kMiB;
    return {};
  };
  if (name == "max_split_size_mb") {
    constexpr std::uint64_t kLeast = 21;  // PyTorch requires more than a large segment's 20 MiB.
    return mib(kLeast, settings.max_split_size);
  }
  if (name == "max_non_split_rounding_mb") {
    std::uint64_t bytes = 0;
    if (auto read = mib(1, bytes); !read) return read;
    settings.max_non_split_rounding = bytes;
    return {};
  }
  if (name == "large_segment_size_mb") {
    // A large segment must hold every request below kMinLargeAlloc. From there on, a segment is as
    // large as its request.
    return mib(kMinLargeAlloc / kMiB, settings.large_segment_size);
  }
  if (name == "garbage_collection_threshold" || name == "per_process_memory_fraction") {
    double number = 0;
    if (!read_number(value, number) || number < 0 || number > 1)
      return bad_value(name, value, "a number from 0 to 1");
    if (name == "garbage_collection_threshold") {
      settings.garbage_collection_threshold = number;
    } else {
      settings.fraction = number;
    }
    return {};
  }
  if (name == "roundup_power2_divisions") return read_divisions(value, settings);
  if (name == "expandable_segments") {
    if (value != "True" && value != "False" && value != "true" && value != "false")
      return bad_value(name, value, "True or False");
    settings.expandable_segments = value == "True" || value == "true";
    return {};
  }
  if (name == "backend") {
    if (value == "native") return {};
    return fail(Errc::usage,
                "backend is \"{}\": the model is that of backend:native; cudaMallocAsync is "
                "--manager async",
                value);
  }
  for (const auto& of_host : kHostSizes) {
    if (name == of_host.name) return mib(0, settings.host.*of_host.size);
  }
  for (const auto known : kWithoutEffect) {
    if (name == known) return {};
  }
  return fail(
      Errc::usage,
      "\"{}\" is no setting of PYTORCH_ALLOC_CONF that is known: expected max_split_size_mb, "
      "max_non_split_rounding_mb, large_segment_size_mb, garbage_collection_threshold, "
      "roundup_power2_divisions, expandable_segments, per_process_memory_fraction, backend, or one "
      "of pinned memory",
      name);
}

}  // namespace

std::uint64_t round_size(const Settings& settings, std::uint64_t size) noexcept {
  if (size < kMinBlock) return kMinBlock;
  const auto divisions = divisions_of(settings, size);
  if (divisions > 1 && size > kMinBlock * divisions && !std::has_single_bit(size)) {
    const auto step = std::bit_floor(size) / divisions;
    return (size + step - 1) / step * step;
  }
  return (size + kMinBlock - 1) / kMinBlock * kMinBlock;
}

std::uint64_t round_host_size(const HostSettings& settings, std::uint64_t size) noexcept {
  if (size > std::min(settings.max_round_threshold, settings.max_cached_size) ||
      size > std::uint64_t{1} << 63)
    return size;
  return std::bit_ceil(size);
}

std::uint64_t Settings::limit() const noexcept {
  if (!fraction || total == 0) return known_limit;
  return static_cast<std::uint64_t>(*fraction * static_cast<double>(total));
}

std::uint64_t segment_size(const Settings& settings, std::uint64_t rounded) noexcept {
  if (rounded <= kSmallSize) return kSmallSegment;
  if (rounded < kMinLargeAlloc) return settings.large_segment_size;
  return (rounded + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

Status read_conf(std::string_view conf, Settings& settings) {
  for (const auto part : parts_of(conf, ',')) {
    const auto colon = part.find(':');
    if (colon == std::string_view::npos)
      return fail(Errc::usage, "\"{}\": expected NAME:VALUE, as PYTORCH_ALLOC_CONF takes", part);
    if (auto read =
            read_setting(trim(part.substr(0, colon)), trim(part.substr(colon + 1)), settings);
        !read)
      return read;
  }
  return {};
}

std::vector<std::pair<std::string_view, std::string>> named(const Settings& settings) {
  std::vector<std::pair<std::string_view, std::string>> found;
  const auto add = [&](std::string_view name, const auto& value) {
    found.emplace_back(name, text::format("{}", value));
  };
  if (settings.expandable_segments) add("expandable_segments", "True");
  if (settings.max_split_size != kNoLimit) add("max_split_size_mb", settings.max_split_size / kMiB);
  if (settings.max_non_split_rounding)
    add("max_non_split_rounding_mb", *settings.max_non_split_rounding / kMiB);
  if (settings.large_segment_size != Settings().large_segment_size)
    add("large_segment_size_mb", settings.large_segment_size / kMiB);
  if (settings.garbage_collection_threshold > 0)
    add("garbage_collection_threshold", settings.garbage_collection_threshold);
  for (const auto& of_host : kHostSizes) {
    if (settings.host.*of_host.size != HostSettings().*of_host.size)
      add(of_host.name, settings.host.*of_host.size / kMiB);
  }
  const auto& table = settings.roundup_power2_divisions;
  if (std::all_of(table.begin(), table.end(), [&](auto each) { return each == table[0]; })) {
    if (table[0] > 1) add("roundup_power2_divisions", table[0]);
    return found;
  }
  std::string list;
  for (std::size_t i = 0; i < table.size(); ++i)
    list += text::format("{}{}:{}", list.empty() ? "" : ";", std::uint64_t{1} << i, table[i]);
  add("roundup_power2_divisions", "[" + list + "]");
  return found;
}

std::string to_conf(const Settings& settings) {
  std::string conf;
  for (auto& [name, value] : named(settings)) {
    std::replace(value.begin(), value.end(), ';', ',');
    conf += text::format("{}{}:{}", conf.empty() ? "" : ",", name, value);
  }
  return conf;
}

Status read_snapshot_settings(std::string_view json, Settings& settings) {
  auto parsed = format::parse_json(json, "allocator_settings");
  if (!parsed) return std::move(parsed).error();
  const auto* const inside = parsed->find("allocator_settings");
  if (inside == nullptr) return {};
  // The string is read first, because it has settings that the members lack, such as
  // max_non_split_rounding_mb.
  for (const auto name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const auto* const conf = inside->find(name);
    if (conf == nullptr) continue;
    if (const auto text = conf->as_string()) {
      if (auto read = read_conf(*text, settings); !read) return read;
    }
  }
  // Some recorders write every value as text, as Python prints it.
  const auto number = [&](std::string_view name) -> std::optional<double> {
    const auto* const value = inside->find(name);
    if (value == nullptr) return std::nullopt;
    double read = 0;
    if (const auto text = value->as_string())
      return read_number(*text, read) ? std::optional(read) : std::nullopt;
    return value->as_double();
  };
  // emmctl.torch.snapshot_on_oom() adds these two. A fraction of 1 means no limit.
  if (const auto fraction = number("emmctl_memory_fraction"); fraction && *fraction < 1)
    settings.fraction = *fraction;
  if (const auto total = number("emmctl_device_total"))
    settings.total = static_cast<std::uint64_t>(*total);
  if (const auto size = number("max_split_size"))
    settings.max_split_size = *size < 0 ? kNoLimit : static_cast<std::uint64_t>(*size);
  if (const auto threshold = number("garbage_collection_threshold"))
    settings.garbage_collection_threshold = *threshold;
  if (const auto* const expandable = inside->find("expandable_segments")) {
    settings.expandable_segments =
        expandable->as_bool().value_or(expandable->as_string().value_or("") == "True");
  }
  if (const auto* table = inside->find("roundup_power2_divisions")) {
    format::JsonValue read;
    if (const auto text = table->as_string()) {
      std::string words(*text);
      std::replace(words.begin(), words.end(), '\'', '"');
      auto parsed_table = format::parse_json(words);
      if (!parsed_table) return {};
      read = *std::move(parsed_table);
      table = &read;
    }
    for (std::size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
      const auto key = text::format("{}", std::uint64_t{1} << i);
      if (const auto* const entry = table->find(key))
        settings.roundup_power2_divisions[i] = entry->as_u64().value_or(0);
    }
  }
  return {};
}

namespace {

// The settings of PYTORCH_ALLOC_CONF that decide how device memory is laid out.
constexpr std::string_view kConf[] = {"max_split_size_mb",        "max_non_split_rounding_mb",
                                      "large_segment_size_mb",    "garbage_collection_threshold",
                                      "roundup_power2_divisions", "expandable_segments"};

}  // namespace

bool has_conf(const Options& options) {
  return std::any_of(std::begin(kConf), std::end(kConf),
                     [&](std::string_view name) { return options.has(name); });
}

Status read_options(Options& options, Settings& settings) {
  std::vector<std::string_view> names(std::begin(kConf), std::end(kConf));
  names.insert(names.end(), {"per_process_memory_fraction", "backend"});
  for (const auto& of_host : kHostSizes) names.push_back(of_host.name);
  names.insert(names.end(), std::begin(kWithoutEffect), std::end(kWithoutEffect));
  for (const auto name : names) {
    const auto value = options.text(name, "");  // Makes the name known, given or not.
    if (!options.has(name)) continue;
    if (auto read = read_setting(name, value, settings); !read) return read;
  }
  if (const auto value = options.text("fraction", ""); options.has("fraction")) {
    if (auto read = read_setting("per_process_memory_fraction", value, settings); !read)
      return read;
  }
  settings.total = options.bytes("total", settings.total);
  const auto limit = options.bytes("limit", kNoLimit);
  if (options.has("limit")) {
    if (options.has("fraction") || options.has("per_process_memory_fraction"))
      return fail(Errc::usage, "limit and fraction are both given: expected one of them");
    settings.drop_limit();
    settings.known_limit = limit;
  }
  const auto version = options.text("version", "2.11");
  if (version != "2.11")
    return fail(Errc::usage, "version is \"{}\": the rules are those of 2.11", version);
  return {};
}

}  // namespace emm::allocators::pytorch
