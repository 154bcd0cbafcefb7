#include "trace/writer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <utility>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "trace/field.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using format::JsonWriter;

void put_number(JsonWriter& json, std::uint64_t number) {
  if (number <= kExactInteger) {
    json.value(number);
  } else {
    std::string digits;
    text::append(digits, number);
    json.value(digits);
  }
}

void put_id(JsonWriter& json, const Id& id) {
  if (id.is_number()) {
    put_number(json, id.number);
  } else {
    json.value(id.text);
  }
}

void put_result(JsonWriter& json, const RecordedResult& result) {
  if (result.code == 0 && result.name.empty()) {
    json.value(name(result.outcome));
    return;
  }
  json.begin_object().member("outcome", name(result.outcome));
  if (result.code != 0) json.member("code", result.code);
  if (!result.name.empty()) json.member("name", result.name);
  json.end_object();
}

void put_expect(JsonWriter& json, const Expect& expect) {
  if (expect.outcome != Outcome::none && expect == Expect{.outcome = expect.outcome}) {
    json.value(name(expect.outcome));
    return;
  }
  json.begin_object();
  const auto put = [&](std::string_view key, std::uint64_t number, std::uint64_t unsaid) {
    if (number != unsaid) put_number(json.key(key), number);
  };
  if (expect.outcome != Outcome::none) json.member("outcome", name(expect.outcome));
  put("align", expect.align, 0);
  if (expect.distinct) json.member("distinct", true);
  put("free_at_least", expect.free_at_least, 0);
  put("free_at_most", expect.free_at_most, ~std::uint64_t{0});
  if (expect.has_same_as) put_id(json.key("same_as"), expect.same_as);
  json.end_object();
}

void put_special(JsonWriter& json, Member member, const Operation& operation) {
  switch (member) {
    case Member::device:
      json.value(operation.device);
      return;
    case Member::page_offset:
      json.value(operation.page_offset);
      return;
    case Member::layer:
      json.value(kLayerNames[static_cast<std::size_t>(operation.layer)]);
      return;
    case Member::kind:
      json.value(operation.op == Op::define
                     ? kDefineKindNames[static_cast<std::size_t>(operation.define_kind)]
                     : kKindNames[static_cast<std::size_t>(operation.kind)]);
      return;
    case Member::attach:
      json.value(operation.attach_global ? "global" : "host");
      return;
    case Member::cause:
      json.value(kCauseNames[static_cast<std::size_t>(operation.cause)]);
      return;
    case Member::phase:
      json.value(kPhaseNames[static_cast<std::size_t>(operation.phase)]);
      return;
    case Member::priority:
      json.value(operation.priority);
      return;
    case Member::result:
      put_result(json, operation.result);
      return;
    case Member::expect:
      put_expect(json, operation.expect);
      return;
    case Member::ids:
      json.begin_array();
      for (const auto& id : operation.ids) put_id(json, id);
      json.end_array();
      return;
    case Member::frames:
      json.begin_array();
      for (const auto frame : operation.frames) json.value(frame);
      json.end_array();
      return;
    default:
      EMM_ASSERT(false);
  }
}

void put_value(JsonWriter& json, Member member, const Operation& operation) {
  const auto& at = field(member);
  switch (at.type) {
    case FieldType::bytes:
    case FieldType::count:
    case FieldType::nanoseconds:
      put_number(json, operation.*at.number);
      return;
    case FieldType::address:
      json.value(text::hex(operation.*at.number));
      return;
    case FieldType::flag:
      json.value(operation.*at.flag);
      return;
    case FieldType::text:
      json.value(operation.*at.text);
      return;
    case FieldType::id:
      put_id(json, operation.*at.id);
      return;
    case FieldType::special:
      put_special(json, member, operation);
      return;
  }
}

/// The text before a member's value: `,"size":`. Member names need no escapes.
class Key {
 public:
  constexpr explicit Key(std::string_view name) {
    put(",\"");
    put(name);
    put("\":");
  }
  constexpr operator std::string_view() const { return {text_.data(), size_}; }

 private:
  constexpr void put(std::string_view part) {
    for (const char c : part) text_[size_++] = c;
  }
  std::array<char, 31> text_{};
  std::uint8_t size_ = 0;
};

template <std::size_t... member>
constexpr std::array<Key, kMemberCount> make_keys(std::index_sequence<member...>) {
  return {Key(kMemberNames[member])...};
}
constexpr auto kKeys = make_keys(std::make_index_sequence<kMemberCount>());

/// Writes a member whose value is an exact number or an address, which almost all are. Returns
/// false for any other.
bool put_plain_member(std::string& out, Member member, const Operation& operation) {
  const auto& at = field(member);
  const bool is_id = at.type == FieldType::id, is_address = at.type == FieldType::address;
  if (is_id ? !(operation.*at.id).is_number()
            : at.type == FieldType::flag || at.type == FieldType::text ||
                  at.type == FieldType::special) {
    return false;
  }
  const auto number = is_id ? (operation.*at.id).number : operation.*at.number;
  if (number > kExactInteger && !is_address) return false;
  constexpr std::size_t kMost = 64;  // a key, "0x" and 20 digits fit
  constexpr std::string_view kHex = "\"0x";
  std::array<char, kMost> text;
  const std::string_view key = kKeys[static_cast<std::size_t>(member)];
  auto* end = std::copy(key.begin(), key.end(), text.data());
  if (is_address) end = std::copy(kHex.begin(), kHex.end(), end);
  end = std::to_chars(end, text.data() + kMost, number, is_address ? 16 : 10).ptr;
  if (is_address) *end++ = '"';
  out.append(text.data(), static_cast<std::size_t>(end - text.data()));
  return true;
}

void put_operation(std::string& out, const Operation& operation) {
  JsonWriter json(out);
  if (operation.op == Op::extension) {
    json.begin_object().member("op", operation.extension);
    if (!operation.text.empty()) out.append(",").append(operation.text);
    json.end_object();
    return;
  }
  const auto& rules = rule(operation.op);
  EMM_ASSERT(operation.members
                 .without(rules.required | rules.allowed | common_members() | Members(Member::op))
                 .empty());
  out.append("{\"op\":\"").append(name(operation.op)).append("\"");
  auto left = operation.members.without(Members(Member::op, Member::extension)).bits();
  for (; left != 0; left &= left - 1) {
    const auto member = static_cast<Member>(std::countr_zero(left));
    if (put_plain_member(out, member, operation)) continue;
    out.append(kKeys[static_cast<std::size_t>(member)]);
    put_value(json, member, operation);
  }
  if (operation.has(Member::extension)) out.append(",").append(operation.extension);
  out.push_back('}');
}

void put_device(JsonWriter& json, const DeviceInfo& device) {
  const auto put = [&](std::string_view key, std::uint64_t number) {
    if (number != 0) put_number(json.key(key), number);
  };
  json.begin_object().member("id", device.id);
  if (!device.name.empty()) json.member("name", device.name);
  if (!device.uuid.empty()) json.member("uuid", device.uuid);
  put("capacity", device.capacity);
  put("free_at_start", device.free_at_start);
  put("granularity", device.granularity);
  put("alignment", device.alignment);
  json.end_object();
}

/// Writes the header without its closing bracket.
void put_header(std::string& out, JsonWriter& json, const Header& header) {
  const auto words = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) json.member(key, value);
  };
  const auto number = [&](std::string_view key, std::uint64_t value) {
    if (value != 0) put_number(json.key(key), value);
  };
  const auto counter = [&](std::string_view key, std::int64_t value) {
    if (value >= 0) json.member(key, value);
  };
  const auto id = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) put_id(json.key(key), Id::of(std::string_view(value)));
  };
  json.begin_object()
      .member("format", "emmctl-trace")
      .member("version", text::format("1.{}", header.minor));
  words("name", header.name);
  words("description", header.description);
  if (header.level != Level::unknown)
    json.member("level", kLevelNames[static_cast<std::size_t>(header.level)]);
  if (header.has_complete) json.member("complete", header.complete);
  if (!header.requires_.empty()) {
    json.key("requires").begin_array();
    for (const auto& feature : header.requires_) json.value(feature);
    json.end_array();
  }
  if (header.has_clock) {
    json.key("clock").begin_object();
    words("source", header.clock_source);
    number("start_ns", header.clock_start_ns);
    number("start_realtime_ns", header.clock_start_realtime_ns);
    words("boot_id", header.boot_id);
    json.end_object();
  }
  const bool has_source =
      !header.tool.empty() || !header.tool_version.empty() || !header.framework.empty() ||
      !header.command.empty() || !header.host.empty() || !header.os.empty() ||
      !header.source_options.empty() || header.driver_version >= 0 || header.cupti_version >= 0;
  if (has_source) {
    json.key("source").begin_object();
    words("tool", header.tool);
    words("tool_version", header.tool_version);
    words("framework", header.framework);
    words("command", header.command);
    words("host", header.host);
    words("os", header.os);
    counter("driver_version", header.driver_version);
    counter("cupti_version", header.cupti_version);
    if (!header.source_options.empty()) json.key("options").raw(header.source_options);
    json.end_object();
  }
  if (!header.devices.empty()) {
    json.key("devices").begin_array();
    for (const auto& device : header.devices) put_device(json, device);
    json.end_array();
  }
  const bool has_defaults = header.default_device >= 0 || !header.default_context.empty() ||
                            !header.default_thread.empty() || !header.default_process.empty() ||
                            header.default_expect != Outcome::none;
  if (has_defaults) {
    json.key("defaults").begin_object();
    counter("device", header.default_device);
    id("context", header.default_context);
    id("thread", header.default_thread);
    id("process", header.default_process);
    if (header.default_expect != Outcome::none) json.member("expect", name(header.default_expect));
    json.end_object();
  }
  if (!header.extensions.empty()) out.append(",").append(header.extensions);
}

class LinesWriter final : public OperationSink {
 public:
  explicit LinesWriter(format::ByteSink& out) : out_(out) {}

  Status on_header(const Header& header) override { return out_.write(header_text(header) + '\n'); }
  Status on_operation(const Operation& operation) override {
    line_.clear();
    put_operation(line_, operation);
    line_.push_back('\n');
    return out_.write(line_);
  }
  Status finish() override { return out_.flush(); }

 private:
  format::ByteSink& out_;
  std::string line_;
};

/// Writes one operation per line inside of a document, for people and for diffs.
class DocumentWriter final : public OperationSink {
 public:
  explicit DocumentWriter(format::ByteSink& out) : out_(out) {}

  Status on_header(const Header& header) override {
    record_.clear();
    JsonWriter json(record_);
    put_header(record_, json, header);
    record_.append(",\n\"events\":[");
    return out_.write(record_);
  }
  Status on_operation(const Operation& operation) override {
    record_.assign(first_ ? "\n" : ",\n");
    first_ = false;
    put_operation(record_, operation);
    return out_.write(record_);
  }
  Status finish() override {
    if (auto done = out_.write("\n]}\n"); !done) return done;
    return out_.flush();
  }

 private:
  format::ByteSink& out_;
  std::string record_;
  bool first_ = true;
};

}  // namespace

std::string header_text(const Header& header) {
  std::string out;
  JsonWriter json(out);
  put_header(out, json, header);
  out.push_back('}');
  return out;
}

std::unique_ptr<OperationSink> make_writer(format::ByteSink& out, Form form) {
  if (form == Form::compact) return make_compact_writer(out);
  if (form == Form::lines) return std::make_unique<LinesWriter>(out);
  return std::make_unique<DocumentWriter>(out);
}

}  // namespace emm::trace
