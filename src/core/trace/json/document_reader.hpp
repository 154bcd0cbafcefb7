#pragma once

#include <functional>
#include <string>

#include "format/json_value.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// Reads a trace that is one document: a header object with "events" as its last member.
class DocumentReader final : public format::JsonBuilder {
 public:
  using Take = std::function<Status(const JsonValue& event)>;
  /// `header` takes the header's members, once, before the first event; `event` each event.
  DocumentReader(const std::string& source, Take header, Take event);

  bool torn() const noexcept { return torn_; }
  format::JsonPosition torn_at() const noexcept { return torn_at_; }
  bool has_header() const noexcept { return state_ >= State::events; }

  Status on_key(std::string_view key, format::JsonPosition at) override;
  Status on_begin_object(format::JsonPosition at) override;
  Status on_begin_array(format::JsonPosition at) override;
  Status on_end_object(format::JsonPosition at) override;
  Status on_end_array(format::JsonPosition at) override;
  Status on_torn(const std::string& name, format::JsonPosition at) override;

 private:
  enum class State { start, header, before_events, events, after_events, end };

  Status on_value() override;

  const std::string& source_;
  ValueReader values_;
  Take take_header_;
  Take take_event_;
  State state_ = State::start;
  JsonValue header_;
  std::size_t header_values_ = 0;
  bool torn_ = false;
  format::JsonPosition torn_at_{};
};

}  // namespace emm::trace
