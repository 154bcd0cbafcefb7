#include "allocators/pool_plan.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/text_format.hpp"
#include "format/byte_source.hpp"
#include "format/json_reader.hpp"
#include "format/json_writer.hpp"

namespace emm::allocators {
namespace {

using format::JsonPosition;
using Stream = PoolPlan::Stream;

constexpr std::string_view kSchema = "emmctl.plan/1";

/// Reads a plan as it comes: it may have more numbers than a JsonValue holds. Members that it does
/// not know are passed by.
class PlanReader final : public format::JsonHandler {
 public:
  PlanReader(const std::string& path, PoolPlan& plan) : path_(path), plan_(plan) {}

  Status on_null(JsonPosition at) override { return misplaced(at); }
  Status on_bool(bool value, JsonPosition at) override {
    if (in_stream() && key_ == "default_stream") {
      stream().is_default = value;
      return {};
    }
    return misplaced(at);
  }
  Status on_string(std::string_view value, JsonPosition at) override {
    if (depth_ == 1 && key_ == "schema") {
      if (value != kSchema) return wrong(at, text::format("a file of {}", kSchema));
      has_schema_ = true;
    } else if (depth_ == 1 && key_ == "trace") {
      plan_.trace = value;
    } else if (in_stream() && key_ == "stream") {
      stream().name = value;
    } else {
      return misplaced(at);
    }
    return {};
  }
  Status on_number(const format::JsonNumber& number, JsonPosition at) override {
    auto* const place = place_of_number();
    if (place == nullptr && !is_list()) return misplaced(at);
    if (number.kind != format::JsonNumber::Kind::unsigned_integer)
      return wrong(at, "a count of bytes or requests");
    if (place != nullptr) {
      *place = number.value;
      return {};
    }
    if (depth_ != 4) return misplaced(at);
    if (key_ == "sizes") stream().sizes.push_back(number.value);
    if (key_ == "offsets") stream().offsets.push_back(number.value);
    if (key_ == "ends") {
      // 0 stands for memory that outlives the plan: nothing ends before its own request.
      if (number.value > 2 * std::uint64_t{PoolPlan::kRequestsMost})
        return wrong(at, "the number of a request");
      stream().ends.push_back(number.value == 0 ? PoolPlan::kNever
                                                : static_cast<std::uint32_t>(number.value));
    }
    return {};
  }
  Status on_key(std::string_view key, JsonPosition) override {
    if (depth_ == 1) top_key_ = key;
    if (depth_ == 1 || in_stream()) key_ = key;
    return {};
  }
  Status on_begin_object(JsonPosition at) override {
    if (depth_ == 2 && top_key_ == "streams") {
      plan_.streams.emplace_back();
      period_begins_.push_back(0);
    } else if (depth_ == 2 || depth_ == 4) {
      if (auto done = misplaced(at); !done) return done;
    }
    ++depth_;
    return {};
  }
  Status on_end_object(JsonPosition at) override {
    --depth_;
    if (depth_ == 2 && top_key_ == "streams") return judge(at);
    if (depth_ == 0 && !has_schema_) return wrong(at, text::format("a file of {}", kSchema));
    return depth_ == 0 ? judge_alignment(at) : Status();
  }
  Status on_begin_array(JsonPosition at) override {
    if (depth_ == 0) return wrong(at, text::format("a file of {}", kSchema));
    ++depth_;
    return {};
  }
  Status on_end_array(JsonPosition) override {
    --depth_;
    return {};
  }

 private:
  bool in_stream() const noexcept { return depth_ == 3 && top_key_ == "streams"; }
  bool is_list() const noexcept {
    return depth_ == 4 && top_key_ == "streams" &&
           (key_ == "sizes" || key_ == "offsets" || key_ == "ends");
  }
  Stream& stream() noexcept { return plan_.streams.back(); }
  std::uint64_t* place_of_number() noexcept {
    if (depth_ == 1 && key_ == "alignment_bytes") return &plan_.alignment;
    if (!in_stream()) return nullptr;
    if (key_ == "device") return &device_;
    if (key_ == "bytes") return &stream().bytes;
    if (key_ == "peak_live_bytes") return &stream().peak_live_bytes;
    if (key_ == "period_begin") return &period_begins_.back();
    return nullptr;
  }
  Error wrong(JsonPosition at, std::string_view expected) const {
    return {.code = Errc::parse_error,
            .message = text::format("{}:{}:{}: expected {}", path_, at.line, at.column, expected)};
  }
  /// A value that this reader does not know may stand anywhere but where it expects another.
  Status misplaced(JsonPosition at) {
    const bool is_known = (depth_ == 1 && (key_ == "schema" || key_ == "streams")) ||
                          place_of_number() != nullptr || is_list() ||
                          (depth_ == 2 && top_key_ == "streams");
    if (is_known) return wrong(at, "what emmctl.plan/1 has here");
    return {};
  }
  /// Nothing in a plan may lead a reader out of its own lists, or memory out of its stream's.
  Status judge(JsonPosition at) {
    auto& of = stream();
    const auto count = of.sizes.size();
    if (count == 0 || count > PoolPlan::kRequestsMost)
      return wrong(at, "a stream of 1 to 2^30 requests");
    if (of.offsets.size() != count || of.ends.size() != count)
      return wrong(at, "as many offsets and ends as sizes");
    if (period_begins_.back() > count) return wrong(at, "\"period_begin\" within the requests");
    of.period_begin = static_cast<std::uint32_t>(period_begins_.back());
    of.device = static_cast<std::uint32_t>(std::min<std::uint64_t>(device_, ~std::uint32_t{0}));
    device_ = 0;
    if (of.bytes == 0 || of.bytes % PoolPlan::kPage != 0 || of.bytes > std::uint64_t{1} << 50)
      return wrong(at, "\"bytes\" in whole pages of 2 MiB");
    for (std::size_t request = 0; request < count; ++request) {
      const bool fits = of.sizes[request] > 0 && of.sizes[request] <= of.bytes &&
                        of.offsets[request] <= of.bytes - of.sizes[request];
      if (!fits || of.ends[request] <= request)
        return wrong(at, text::format("request {} within the stream's bytes, and an end behind it",
                                      request));
    }
    return {};
  }

  Status judge_alignment(JsonPosition at) {
    if (!std::has_single_bit(plan_.alignment) || plan_.alignment > PoolPlan::kPage)
      return wrong(at, "\"alignment_bytes\" to be a power of two up to 2 MiB");
    const auto is_aligned = [&](std::uint64_t offset) { return offset % plan_.alignment == 0; };
    for (const auto& of : plan_.streams) {
      if (!std::all_of(of.offsets.begin(), of.offsets.end(), is_aligned))
        return wrong(at, text::format("offsets that are multiples of {}", plan_.alignment));
    }
    return {};
  }

  const std::string& path_;
  PoolPlan& plan_;
  std::vector<std::uint64_t> period_begins_;
  std::uint64_t device_ = 0;
  std::string top_key_, key_;
  unsigned depth_ = 0;
  bool has_schema_ = false;
};

}  // namespace

std::string to_json(const PoolPlan& plan) {
  format::JsonAnswer json(kSchema);
  json.member("trace", plan.trace).member("alignment_bytes", plan.alignment);
  json.objects("streams", plan.streams, [&](const auto& stream) {
    json.member("device", stream.device).member("stream", stream.name);
    json.member("default_stream", stream.is_default).member("bytes", stream.bytes);
    json.member("peak_live_bytes", stream.peak_live_bytes).member("requests", stream.count());
    json.member("period_begin", stream.period_begin).member("sizes", stream.sizes);
    json.member("offsets", stream.offsets).values("ends", stream.ends, [](auto end) {
      return end == PoolPlan::kNever ? std::uint32_t{0} : end;
    });
  });
  return json.finish();
}

Result<PoolPlan> read_pool_plan(const std::string& path) {
  auto source = format::ByteSource::open(path);
  if (!source) return std::move(source).error();
  PoolPlan plan;
  PlanReader reader(path, plan);
  if (auto done = format::read_json(**source, reader); !done) return std::move(done).error();
  return plan;
}

}  // namespace emm::allocators
