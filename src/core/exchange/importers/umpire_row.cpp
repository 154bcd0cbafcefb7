#include "exchange/importers/umpire_row.hpp"

#include "base/text.hpp"
#include "exchange/importers/json_row.hpp"
#include "format/json_value.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kUmpireBytes = "a count of bytes";
constexpr std::string_view kPointer = "an address: 0x and hex digits";

const JsonValue& member_of(const JsonValue& value, std::string_view key) {
  static const JsonValue none;
  const auto* const member = value.find(key);
  return member != nullptr ? *member : none;
}

std::uint64_t pointer(JsonRow& json, std::string_view key) {
  const auto said = json.string(key, kPointer);
  const auto number = text::to_u64(said);
  if (!number) json.refuse(key, kPointer);
  return number.value_or(0);
}

UmpireEvent event_named(std::string_view name) {
  constexpr std::pair<std::string_view, UmpireEvent> kNames[] = {
      {"allocate", UmpireEvent::allocate},
      {"named_allocate", UmpireEvent::allocate},
      {"deallocate", UmpireEvent::deallocate},
      {"reallocate", UmpireEvent::reallocate},
      {"make_memory_resource", UmpireEvent::make_resource},
      {"makeMemoryResource", UmpireEvent::make_resource},
      {"make_allocator", UmpireEvent::make_allocator},
      {"makeAllocator", UmpireEvent::make_allocator},
      {"version", UmpireEvent::version},
  };
  for (const auto& [known, event] : kNames) {
    if (known == name) return event;
  }
  return UmpireEvent::other;
}

std::string version_of(const JsonValue& numbers) {
  std::string version;
  for (const std::string_view part : {"major", "minor", "patch"}) {
    if (!version.empty()) version += '.';
    text::append(version, member_of(numbers, part).as_u64().value_or(0));
  }
  return version;
}

/// Reads the dialect of 2022. There only reallocate has an announcing row; it has the member
/// "size".
std::optional<BadField> parse_args(std::string_view line, const JsonValue& value, UmpireRow& row) {
  JsonRow json(line, value);
  row.event = event_named(json.string("name", "the name of an operation"));
  row.time_ns = json.time("timestamp", "nanoseconds");
  const auto& numbers = member_of(value, "numeric_args");
  const auto& strings = member_of(value, "string_args");
  JsonRow sizes(line, numbers), pointers(line, strings);
  switch (row.event) {
    case UmpireEvent::allocate:
      row.size = sizes.u64("size", kUmpireBytes);
      row.allocator = pointer(pointers, "allocator_ref");
      row.pointer = pointer(pointers, "pointer");
      break;
    case UmpireEvent::deallocate:
      row.allocator = pointer(pointers, "allocator_ref");
      row.pointer = pointer(pointers, "pointer");
      break;
    case UmpireEvent::reallocate:
      row.intent = sizes.has("size");
      row.allocator = pointer(pointers, "allocator_ref");
      if (row.intent) row.size = sizes.u64("size", kUmpireBytes);
      row.pointer = pointer(pointers, row.intent ? "current_ptr" : "new_ptr");
      break;
    case UmpireEvent::make_resource:
    case UmpireEvent::make_allocator:
      if (pointers.has("allocator_ref")) row.allocator = pointer(pointers, "allocator_ref");
      row.intent = row.allocator == 0;
      row.name = text_of(member_of(value, "tags"), "allocator_name");
      row.parent = text_of(strings, "arg0");
      break;
    case UmpireEvent::version:
      row.version = version_of(numbers);
      break;
    case UmpireEvent::other:
      break;
  }
  if (json.bad()) return json.bad();
  return sizes.bad() ? sizes.bad() : pointers.bad();
}

/// Reads the older dialect. An announcing row has no "result". A deallocate has only such a row.
std::optional<BadField> parse_payload(std::string_view line, const JsonValue& value,
                                      UmpireRow& row) {
  JsonRow json(line, value);
  row.event = event_named(json.string("event", "the name of an operation"));
  row.time_ns = json.time("timestamp", "nanoseconds");
  const auto& payload = member_of(value, "payload");
  const auto& result = member_of(value, "result");
  JsonRow asked(line, payload), given(line, result);
  row.intent = !json.has("result");
  switch (row.event) {
    case UmpireEvent::allocate:
      row.allocator = pointer(asked, "allocator_ref");
      row.size = asked.u64("size", kUmpireBytes);
      if (!row.intent) row.pointer = pointer(given, "memory_ptr");
      break;
    case UmpireEvent::deallocate:
      row.intent = false;
      row.allocator = pointer(asked, "allocator_ref");
      row.pointer = pointer(asked, "memory_ptr");
      break;
    case UmpireEvent::reallocate:
      row.allocator = asked.has("allocator_ref") ? pointer(asked, "allocator_ref") : 0;
      row.size = asked.u64("size", kUmpireBytes);
      row.pointer = row.intent ? pointer(asked, "ptr") : pointer(given, "memory_ptr");
      break;
    case UmpireEvent::make_resource:
      row.name = text_of(payload, "name");
      row.allocator = pointer(json, "result");
      break;
    case UmpireEvent::make_allocator: {
      row.name = text_of(payload, "allocator_name");
      const auto& arguments = member_of(payload, "args").elements;
      if (!arguments.empty()) row.parent = arguments.front().as_string().value_or("");
      if (!row.intent) row.allocator = pointer(given, "allocator_ref");
      break;
    }
    case UmpireEvent::version:
      row.version = version_of(payload);
      break;
    case UmpireEvent::other:
      break;
  }
  if (json.bad()) return json.bad();
  return asked.bad() ? asked.bad() : given.bad();
}

}  // namespace

Status refuse_umpire_database(std::string_view prefix, const std::string& name) {
  if (!prefix.starts_with("SQLite format 3")) return {};
  // The first page contains the statement that made the table, as text.
  std::string words;
  for (const auto c : prefix) {
    if (c != ' ') words.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  if (words.find("createtableevents(eventjson") == std::string::npos) return {};
  return fail(
      Errc::parse_error,
      "{}: this is the SQLite database that Umpire writes: expected its events as lines, as "
      "`sqlite3 {} 'SELECT event FROM events' > umpire.replay` writes them",
      name, name);
}

Result<std::optional<BadField>> parse_umpire_row(std::string_view line, const std::string& name,
                                                 std::uint64_t line_number, UmpireRow& row) {
  auto value = format::parse_json(line, name, line_number);
  if (!value) return std::move(value).error();
  row = {};
  if (value->find("event") != nullptr) return parse_payload(line, *value, row);
  return parse_args(line, *value, row);
}

}  // namespace emm::trace
