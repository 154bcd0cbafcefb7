#include "trace/json/header_reader.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "trace/json/value_reader.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kFormat = "emmctl-trace";

using Names = std::span<const std::string_view>;

class HeaderReader {
 public:
  HeaderReader(const std::string& source, Header& header)
      : source_(source), values_(source), header_(header) {}

  Status read(const JsonValue& node) {
    if (auto good = check_format(node); !good) return good;
    constexpr std::array<std::string_view, 11> kKnown{
        "format",   "version", "name",   "description", "level",   "complete",
        "requires", "clock",   "source", "devices",     "defaults"};
    return values_.members(
        node, "the header", kKnown, true,
        [&](std::string_view key, const JsonValue& value) { return take(key, value); });
  }

 private:
  Status check_format(const JsonValue& node) const {
    const auto* const format = node.find("format");
    if (format == nullptr || format->text != kFormat) return not_a_trace(source_);
    if (node.find("version") == nullptr)
      return values_.missing("version", node, "the header", "format, version");
    return {};
  }

  Status take(std::string_view key, const JsonValue& value) {
    if (key == "version") return take_version(value);
    if (key == "name") return values_.text(key, value, header_.name);
    if (key == "description") return values_.text(key, value, header_.description);
    if (key == "level") return values_.choice(key, value, kLevelNames, header_.level);
    if (key == "complete") {
      header_.has_complete = true;
      return values_.flag(key, value, header_.complete);
    }
    if (key == "requires") return take_requires(value);
    if (key == "clock") return take_clock(value);
    if (key == "source") return take_source(value);
    if (key == "devices") return take_devices(value);
    if (key == "defaults") return take_defaults(value);
    if (key.starts_with("x-")) {
      if (!header_.extensions.empty()) header_.extensions.push_back(',');
      format::append_json_string(header_.extensions, key);
      header_.extensions.push_back(':');
      append_json(header_.extensions, value);
    }
    return {};
  }

  Status take_version(const JsonValue& value) {
    constexpr std::size_t kMinorDigits = 6;  // a minor version that an int holds
    const std::string_view text = value.text;
    if (value.type == JsonValue::Type::string && text.starts_with("1.") &&
        text.size() <= 2 + kMinorDigits) {
      const auto minor = text::to_u64(text.substr(2));
      if (minor && (text.size() == 3 || text[2] != '0') && text.find('x') == text.npos) {
        header_.minor = static_cast<int>(*minor);
        return {};
      }
    }
    return values_.wrong("version", value, "\"1.0\", or a later minor version of 1");
  }

  Status take_requires(const JsonValue& value) {
    if (value.type != JsonValue::Type::array)
      return values_.wrong("requires", value, "an array of strings");
    std::vector<std::string_view> unknown;
    for (const auto& element : value.elements) {
      std::string_view name;
      if (auto taken = values_.text("requires", element, name); !taken) return taken;
      if (std::find(header_.requires_.begin(), header_.requires_.end(), name) !=
          header_.requires_.end()) {
        return values_.wrong("requires", element, "each entry once");
      }
      if (std::find(kFeatures.begin(), kFeatures.end(), name) == kFeatures.end())
        unknown.push_back(name);
      header_.requires_.emplace_back(name);
    }
    if (unknown.empty()) return {};
    return fail(Errc::not_supported,
                "{}:{}:{}: a replay of this trace must understand {}: expected no more than {}",
                source_, value.at.line, value.at.column, text::join(unknown),
                text::join(kFeatures));
  }

  Status take_clock(const JsonValue& value) {
    header_.has_clock = true;
    constexpr std::array<std::string_view, 4> kKnown{"source", "start_ns", "start_realtime_ns",
                                                     "boot_id"};
    return object("clock", value, kKnown, [&](std::string_view key, const JsonValue& of) {
      if (key == "source") return values_.text(key, of, header_.clock_source);
      if (key == "start_ns")
        return values_.number(key, FieldType::nanoseconds, of, header_.clock_start_ns);
      if (key == "boot_id") return values_.text(key, of, header_.boot_id);
      return values_.number(key, FieldType::nanoseconds, of, header_.clock_start_realtime_ns);
    });
  }

  Status take_source(const JsonValue& value) {
    constexpr std::array<std::string_view, 9> kKnown{"tool",           "tool_version",  "framework",
                                                     "command",        "host",          "os",
                                                     "driver_version", "cupti_version", "options"};
    return object("source", value, kKnown, [&](std::string_view key, const JsonValue& of) {
      if (key == "tool") return values_.text(key, of, header_.tool);
      if (key == "tool_version") return values_.text(key, of, header_.tool_version);
      if (key == "framework") return values_.text(key, of, header_.framework);
      if (key == "command") return values_.text(key, of, header_.command);
      if (key == "host") return values_.text(key, of, header_.host);
      if (key == "os") return values_.text(key, of, header_.os);
      if (key == "driver_version") return number(key, of, kExactInteger, header_.driver_version);
      if (key == "cupti_version") return number(key, of, kExactInteger, header_.cupti_version);
      if (of.type != JsonValue::Type::object) return Status(values_.wrong(key, of, "an object"));
      append_json(header_.source_options, of);
      return Status();
    });
  }

  Status take_devices(const JsonValue& value) {
    if (value.type != JsonValue::Type::array)
      return values_.wrong("devices", value, "an array of objects");
    for (const auto& element : value.elements) {
      if (auto taken = take_device(element); !taken) return taken;
    }
    return {};
  }

  Status take_device(const JsonValue& value) {
    auto& device = header_.devices.emplace_back();
    bool has_id = false;
    constexpr std::array<std::string_view, 7> kKnown{
        "id", "name", "uuid", "capacity", "free_at_start", "granularity", "alignment"};
    const auto taken =
        object("devices", value, kKnown, [&](std::string_view key, const JsonValue& of) {
          if (key == "name") return values_.text(key, of, device.name);
          if (key == "uuid") return values_.text(key, of, device.uuid);
          if (key == "capacity") return values_.number(key, FieldType::bytes, of, device.capacity);
          if (key == "free_at_start")
            return values_.number(key, FieldType::bytes, of, device.free_at_start);
          if (key == "granularity")
            return values_.number(key, FieldType::bytes, of, device.granularity);
          if (key == "alignment")
            return values_.number(key, FieldType::bytes, of, device.alignment);
          std::int64_t id = 0;
          auto good = number(key, of, kDeviceMax, id);
          device.id = static_cast<std::uint32_t>(id);
          has_id = true;
          return good;
        });
    if (!taken) return taken;
    if (!has_id) return values_.missing("id", value, "\"devices\"", "id");
    const auto twice = std::count_if(header_.devices.begin(), header_.devices.end(),
                                     [&](const auto& other) { return other.id == device.id; });
    if (twice > 1) return values_.wrong("devices", value, "each \"id\" once");
    return {};
  }

  Status take_defaults(const JsonValue& value) {
    constexpr std::array<std::string_view, 5> kKnown{"device", "context", "thread", "process",
                                                     "expect"};
    return object("defaults", value, kKnown, [&](std::string_view key, const JsonValue& of) {
      if (key == "device") return number(key, of, kDeviceMax, header_.default_device);
      if (key == "context") return id(key, of, header_.default_context);
      if (key == "thread") return id(key, of, header_.default_thread);
      if (key == "process") return id(key, of, header_.default_process);
      return values_.choice(key, of, kOutcomeNames, header_.default_expect);
    });
  }

  template <class Take>
  Status object(std::string_view name, const JsonValue& value, Names known, Take take) const {
    if (value.type != JsonValue::Type::object) return values_.wrong(name, value, "an object");
    return values_.members(value, text::format("\"{}\"", name), known, false, take);
  }

  Status number(std::string_view key, const JsonValue& value, std::uint64_t max,
                std::int64_t& out) const {
    std::uint64_t number = 0;
    auto taken = values_.integer(key, value, max, number);
    out = static_cast<std::int64_t>(number);
    return taken;
  }

  Status id(std::string_view key, const JsonValue& value, std::string& out) const {
    Id id;
    if (auto taken = values_.id(key, value, id); !taken) return taken;
    out = id.is_number() ? text::format("{}", id.number) : std::string(id.text);
    return {};
  }

  const std::string& source_;
  ValueReader values_;
  Header& header_;
};

}  // namespace

Result<Header> read_header(const JsonValue& node, const std::string& source) {
  Header header;
  if (auto read = HeaderReader(source, header).read(node); !read) return read.error();
  return header;
}

Error not_a_trace(const std::string& source) {
  return fail(Errc::parse_error,
              "{}: this is not an emmctl trace: expected a header with \"format\": \"{}\"", source,
              kFormat);
}

}  // namespace emm::trace
