// Chrome's trace event format, for Perfetto and chrome://tracing.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "exchange/exporters/requests.hpp"
#include "format/json_writer.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// Writes counters of live and of reserved bytes for each device, a slice for the life of each
/// allocation, and an instant for each failure, flush and mark. A device of the trace becomes a
/// process, a thread becomes a thread. If the trace has no times, each operation takes a
/// microsecond.
class ChromeTrace final : public RequestExport {
 public:
  explicit ChromeTrace(format::ByteSink& out) noexcept : out_(out) {}

  Status finish() override {
    if (auto written = out_.write(any_ ? "\n]}\n" : "]}\n"); !written) return written;
    note_left_out();
    return out_.flush();
  }

 protected:
  Status begin(const Header&) override {
    return out_.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  }

  Status starts(const Operation& operation, LiveRequest& request) override {
    request.address = operation.device;
    tell_time(operation);
    if (auto written = slice(operation, request, "b"); !written) return written;
    return count(operation, "live", live_[operation.device] += request.size);
  }
  Status ends(const Operation& by, const LiveRequest& request) override {
    tell_time(by);
    auto op = by;
    op.device = static_cast<std::uint32_t>(request.address);
    if (auto written = slice(op, request, "e"); !written) return written;
    return count(op, "live", live_[op.device] -= request.size);
  }
  Status fails(const Operation& operation) override {
    tell_time(operation);
    return instant(operation, text::format("{} of {} bytes: {}", name(operation.op), operation.size,
                                           name(operation.result.outcome != Outcome::none
                                                    ? operation.result.outcome
                                                    : operation.expect.outcome)));
  }
  Result<bool> other(const Operation& operation) override {
    tell_time(operation);
    const auto backing = operation.layer == Layer::backing;
    auto written = Status();
    if (operation.op == Op::mark) {
      written = instant(operation, operation.text);
    } else if (operation.op == Op::flush) {
      written = instant(operation, text::format("flush of {} frees", operation.count));
    } else if (backing && operation.op == Op::memalloc) {
      held_[key(operation.id)] = operation.size;
      written = count(operation, "reserved", reserved_[operation.device] += operation.size);
    } else if (backing && operation.op == Op::free) {
      const auto found = held_.find(key(operation.id));
      if (found == held_.end()) return false;
      const auto size = found->second;
      held_.erase(found);
      written = count(operation, "reserved", reserved_[operation.device] -= size);
    } else {
      return false;
    }
    if (!written) return std::move(written).error();
    return true;
  }

 private:
  static std::string key(const Id& id) {
    return id.is_number() ? text::format("{}", id.number) : text::format("\"{}", id.text);
  }

  void tell_time(const Operation& operation) {
    if (operation.has(Member::time_ns)) {
      if (!start_ns_) start_ns_ = operation.time_ns;
      time_ns_ = operation.time_ns < *start_ns_ ? 0 : operation.time_ns - *start_ns_;
    } else if (!start_ns_) {
      time_ns_ += 1000;
    }
  }
  /// Writes the members that every event has. The caller adds others and ends the object.
  format::JsonWriter event(const Operation& operation, std::string_view phase,
                           std::string_view name_of) {
    line_.assign(any_ ? ",\n" : "");
    any_ = true;
    format::JsonWriter json(line_);
    const auto fraction = text::format("{}", 1000 + time_ns_ % 1000);
    json.begin_object().member("ph", phase).member("name", name_of).member("pid", operation.device);
    json.member("tid", thread_of(operation)).key("ts");
    json.raw(text::format("{}.{}", time_ns_ / 1000, fraction.substr(1)));
    return json;
  }
  Status slice(const Operation& operation, const LiveRequest& request, std::string_view phase) {
    auto json = event(operation, phase, text::format("{} bytes", request.size));
    json.member("cat", "allocation").member("id", request.order);
    if (phase == "b") {
      json.key("args").begin_object().member("size", request.size).member("op", name(operation.op));
      if (operation.has(Member::addr)) json.member("addr", text::hex(operation.addr));
      if (operation.has(Member::label)) json.member("label", operation.label);
      if (const auto stream = stream_of(operation); stream != 0) json.member("stream", stream);
      json.end_object();
    }
    json.end_object();
    return out_.write(line_);
  }
  Status count(const Operation& operation, std::string_view what, std::uint64_t bytes) {
    auto json = event(operation, "C", text::format("{} bytes", what));
    json.key("args").begin_object().member("bytes", bytes).end_object().end_object();
    return out_.write(line_);
  }
  Status instant(const Operation& operation, std::string_view words) {
    auto json = event(operation, "i", words);
    json.member("s", "p").end_object();
    return out_.write(line_);
  }

  format::ByteSink& out_;
  std::string line_;
  std::map<std::uint32_t, std::uint64_t> live_, reserved_;  // bytes, by device
  std::map<std::string, std::uint64_t, std::less<>> held_;  // bytes of the backing layer, by id
  std::optional<std::uint64_t> start_ns_;
  std::uint64_t time_ns_ = 0;
  bool any_ = false;
};

}  // namespace

extern constinit const Exporter chrome_trace_exporter{
    .name = "chrome-trace",
    .summary =
        "a picture over time for Perfetto and chrome://tracing: live and reserved bytes, each "
        "allocation's life",
    .extensions = {".json"},
    .open = open_export<ChromeTrace>,
};

}  // namespace emm
