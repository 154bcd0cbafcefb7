#include "trace/json/document_reader.hpp"

#include <utility>

#include "trace/json/header_reader.hpp"

namespace emm::trace {

using format::JsonPosition;

DocumentReader::DocumentReader(const std::string& source, Take header, Take event)
    : format::JsonBuilder(source),
      source_(source),
      values_(source),
      take_header_(std::move(header)),
      take_event_(std::move(event)) {}

Status DocumentReader::on_begin_object(JsonPosition at) {
  if (state_ != State::start) return JsonBuilder::on_begin_object(at);
  state_ = State::header;
  header_.type = JsonValue::Type::object;
  header_.at = at;
  return {};
}

Status DocumentReader::on_key(std::string_view key, JsonPosition at) {
  if (depth() > 0) return JsonBuilder::on_key(key, at);
  if (state_ == State::after_events) {
    return fail(Errc::parse_error,
                "{}:{}:{}: \"{}\" after \"events\": expected \"events\" to be the last member",
                source_, at.line, at.column, key);
  }
  if (key == "events") {
    state_ = State::before_events;
    return take_header_(header_);
  }
  header_.members.push_back({.key = std::string(key), .at = at});
  return {};
}

Status DocumentReader::on_begin_array(JsonPosition at) {
  if (state_ != State::before_events) return JsonBuilder::on_begin_array(at);
  state_ = State::events;
  return {};
}

Status DocumentReader::on_end_array(JsonPosition at) {
  if (depth() > 0) return JsonBuilder::on_end_array(at);
  state_ = State::after_events;
  return {};
}

Status DocumentReader::on_end_object(JsonPosition at) {
  if (depth() > 0) return JsonBuilder::on_end_object(at);
  if (state_ == State::header) {
    // A fault of the header is reported first: a file that is not a trace lacks "events" too.
    if (auto taken = take_header_(header_); !taken) return taken;
    return values_.missing("events", header_, "the document", "an array of operations");
  }
  state_ = State::end;
  return {};
}

Status DocumentReader::on_value() {
  Status taken;
  switch (state_) {
    case State::start:
      taken = not_a_trace(source_);
      break;
    case State::header:
      header_.members.back().value = std::move(root());
      taken = check_count(header_.members.back().at, header_values_);
      header_values_ += values();
      break;
    case State::before_events:
      taken = values_.wrong("events", root(), "an array of operations");
      break;
    default:
      taken = take_event_(root());
      break;
  }
  clear();
  return taken;
}

Status DocumentReader::on_torn(const std::string&, JsonPosition at) {
  torn_ = true;
  torn_at_ = at;
  return {};
}

}  // namespace emm::trace
