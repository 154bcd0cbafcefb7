#include "exchange/importers/torch_pickle_header.hpp"

#include <string_view>

#include "format/json_writer.hpp"

namespace emm::trace {
namespace {

using format::JsonWriter;
using format::Pickle;
using format::PickleValue;
using Type = PickleValue::Type;

// Settings are a few dozen values, two levels deep. A pickle may contain itself, so anything beyond
// these limits is left out.
constexpr unsigned kDepthMax = 8;
constexpr std::uint64_t kValuesMax = 10'000;

class JsonOf {
 public:
  JsonOf(const Pickle& pickle, JsonWriter& json) : pickle_(pickle), json_(json) {}

  void put(PickleValue value, unsigned depth = 0) {
    const auto type = pickle_.type(value);
    const auto container = type == Type::list || type == Type::tuple || type == Type::dict;
    if (container && (depth == kDepthMax || values_ + pickle_.size(value) > kValuesMax)) {
      json_.null();
    } else if (type == Type::dict) {
      put_dict(value, depth);
    } else if (container) {
      json_.begin_array();
      PickleValue element;
      for (auto each = pickle_.elements(value); each.next(element);) put(element, depth + 1);
      json_.end_array();
    } else {
      put_plain(value);
    }
    ++values_;
  }

 private:
  void put_dict(PickleValue dict, unsigned depth) {
    json_.begin_object();
    PickleValue name, value;
    for (auto each = pickle_.elements(dict); each.next(name) && each.next(value);) {
      const auto word = pickle_.string(name);
      if (!word) continue;
      json_.key(*word);
      put(value, depth + 1);
    }
    json_.end_object();
  }
  void put_plain(PickleValue value) {
    if (const auto word = pickle_.string(value)) {
      json_.value(*word);
    } else if (const auto truth = pickle_.boolean(value)) {
      json_.value(*truth);
    } else if (const auto positive = pickle_.u64(value)) {
      json_.value(*positive);
    } else if (const auto integer = pickle_.i64(value)) {
      json_.value(*integer);
    } else if (const auto real = pickle_.real(value)) {
      json_.value(*real);
    } else {
      json_.null();
    }
  }

  const Pickle& pickle_;
  JsonWriter& json_;
  std::uint64_t values_ = 0;
};

}  // namespace

std::string torch_pickle_options(const Pickle& pickle, PickleValue settings,
                                 const TorchState& state) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  if (pickle.type(settings) == Type::dict) {
    json.key("allocator_settings");
    JsonOf(pickle, json).put(settings);
  }
  json.key("at_end").begin_object();
  json.member("segments", state.segments).member("reserved_bytes", state.reserved.value());
  json.member("active_blocks", state.blocks).member("allocated_bytes", state.allocated.value());
  json.member("requested_bytes", state.requested.value()).member("pending_blocks", state.pending);
  json.end_object().end_object();
  return out;
}

}  // namespace emm::trace
