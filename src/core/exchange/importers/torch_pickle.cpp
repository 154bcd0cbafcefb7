// Snapshots of torch.cuda.memory._dump_snapshot() and what torch.cuda.memory_snapshot() returns: a
// pickle of plain data, or the same data as JSON.
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "exchange/importer.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/torch_pickle_import.hpp"
#include "format/byte_sink.hpp"
#include "format/json_reader.hpp"
#include "format/pickle.hpp"
#include "format/pickle_writer.hpp"

namespace emm {
namespace {

using namespace trace;

/// Is this the beginning of a snapshot as JSON?
bool is_json(std::string_view prefix) {
  const auto says = [&](std::string_view word) {
    return prefix.find(word) != std::string_view::npos;
  };
  const auto text = prefix.substr(std::min(prefix.find_first_not_of(" \t\r\n"), prefix.size()));
  if (text.empty() || (text[0] != '[' && text[0] != '{')) return false;
  const bool has_segment = says("\"total_size\"") && says("\"blocks\"");
  return !says("\"emmctl.") && (has_segment || says("\"device_traces\""));
}

/// Protocols 0 and 1 begin with a container, and say no number.
bool is_early_pickle(std::string_view prefix) {
  using namespace std::string_view_literals;
  const auto says = [&](std::string_view word) { return prefix.find(word) != prefix.npos; };
  const bool is_container =
      prefix.starts_with('(') || prefix.starts_with('}') || prefix.starts_with(']');
  return is_container && (says("Vsegment") || says("S'segment") || says("\0\0\0segment"sv));
}

int sniff_torch_pickle(std::string_view prefix) {
  if (is_json(prefix)) return 95;
  if (is_early_pickle(prefix)) return 95;
  if (prefix.size() < 3 || prefix[0] != '\x80' || prefix[1] < 2 || prefix[1] > 5) return 0;
  const auto says = [&](std::string_view word) {
    return prefix.find(word) != std::string_view::npos;
  };
  return says("device_traces") || says("segment_type") || says("segments") ? 95 : 60;
}

/// Writes JSON as a pickle, value by value, so that one reader serves both.
class PickleOfJson final : public format::JsonHandler {
 public:
  explicit PickleOfJson(format::PickleWriter& out) : out_(out) {}

  Status on_null(format::JsonPosition) override {
    out_.none();
    return {};
  }
  Status on_bool(bool value, format::JsonPosition) override {
    out_.truth(value);
    return {};
  }
  Status on_number(const format::JsonNumber& number, format::JsonPosition) override {
    using Kind = format::JsonNumber::Kind;
    if (number.kind == Kind::unsigned_integer) {
      out_.number(number.value);
    } else if (number.kind == Kind::negative &&
               number.negative >= std::numeric_limits<std::int32_t>::min()) {
      out_.negative(static_cast<std::int32_t>(number.negative));
    } else {
      out_.real(text::to_double(number.text).value_or(0));
    }
    return {};
  }
  Status on_string(std::string_view value, format::JsonPosition) override {
    out_.text(value);
    return {};
  }
  Status on_key(std::string_view key, format::JsonPosition) override {
    out_.text(key);
    return {};
  }
  Status on_begin_object(format::JsonPosition) override {
    out_.dict();
    out_.mark();
    return {};
  }
  Status on_end_object(format::JsonPosition) override {
    out_.setitems();
    return out_.flush_some();
  }
  Status on_begin_array(format::JsonPosition) override {
    out_.list();
    out_.mark();
    return {};
  }
  Status on_end_array(format::JsonPosition) override {
    out_.appends();
    return {};
  }

 private:
  format::PickleWriter& out_;
};

Result<ImportCounts> read_json_snapshot(format::ByteSource& source, OperationSink& sink,
                                        const ImportOptions& options) {
  std::string bytes;
  const auto to = format::ByteSink::to_string(bytes);
  format::PickleWriter writer(*to);
  PickleOfJson as_pickle(writer);
  if (auto read = format::read_json(source, as_pickle); !read) return std::move(read).error();
  if (auto written = writer.end(); !written) return std::move(written).error();
  if (auto closed = to->close(); !closed) return std::move(closed).error();
  const auto again = format::ByteSource::memory(bytes, source.name());
  auto pickle = format::read_pickle(*again, {.partial = options.partial});
  if (!pickle) return std::move(pickle).error();
  ImportRun run(source, sink, options);
  return TorchPickleImport(*pickle, run).read();
}

Result<ImportCounts> read_snapshot(format::ByteSource& source, OperationSink& sink,
                                   const ImportOptions& options) {
  const auto prefix = source.peek(std::size_t{64} << 10);
  if (!prefix) return prefix.error();
  if (is_json(*prefix)) return read_json_snapshot(source, sink, options);
  auto pickle = format::read_pickle(source, {.partial = options.partial});
  if (!pickle) return std::move(pickle).error();
  ImportRun run(source, sink, options);
  return TorchPickleImport(*pickle, run).read();
}

}  // namespace

extern constinit const Importer torch_pickle_importer{
    .name = "torch-pickle",
    .summary =
        "PyTorch snapshots and segments, of _dump_snapshot or memory_snapshot(), also as JSON",
    .from_documentation = false,
    .sniff = sniff_torch_pickle,
    .read = read_snapshot,
};

}  // namespace emm
