// What torch.profiler's export_memory_timeline() writes: rows of [time, action, bytes, category] in
// a .raw.json, or the totals of each category over time in a .json.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/total_steps.hpp"
#include "format/json_reader.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// In the order of torch/profiler/_memory_profiler.py, whose files number them.
constexpr std::array<std::string_view, 8> kCategories{
    "parameter",  "optimizer_state", "input",           "temporary",
    "activation", "gradient",        "autograd_detail", "unknown"};

enum class Shape : std::uint8_t { unknown, rows, totals };

/// Tells from the beginning of a file which of the two shapes it has.
class ShapeReader final : public format::JsonHandler {
 public:
  Shape shape() const noexcept {
    if (other_ || depth_most_ < 2) return Shape::unknown;
    if (depth_most_ == 3) return Shape::totals;
    // Until the second array comes, times only tell themselves from rows by their count.
    if (first_row_ == 4 && actions_good_) return Shape::rows;
    return first_row_ > 4 && ascending_ && !second_ ? Shape::totals : Shape::unknown;
  }
  Status on_null(format::JsonPosition) override { return stranger(); }
  Status on_bool(bool, format::JsonPosition) override { return stranger(); }
  Status on_string(std::string_view, format::JsonPosition) override { return stranger(); }
  Status on_key(std::string_view, format::JsonPosition) override { return stranger(); }
  Status on_begin_object(format::JsonPosition) override { return stranger(); }
  Status on_end_object(format::JsonPosition) override { return {}; }
  Status on_number(const format::JsonNumber& number, format::JsonPosition) override {
    if (number.kind == format::JsonNumber::Kind::other || depth_ < 2) return stranger();
    const auto value = number.kind == format::JsonNumber::Kind::negative
                           ? number.negative
                           : static_cast<std::int64_t>(number.value);
    if (depth_ == 2 && !second_) {
      if (first_row_ > 0 && value < last_) ascending_ = false;
      last_ = value;
      if (first_row_ == 1 || first_row_ == 3)
        actions_good_ = actions_good_ && value >= 0 && value <= (first_row_ == 1 ? 4 : 7);
      ++first_row_;
    }
    return {};
  }
  Status on_begin_array(format::JsonPosition) override {
    depth_most_ = std::max(depth_most_, ++depth_);
    return depth_ > 3 ? stranger() : Status{};
  }
  Status on_end_array(format::JsonPosition) override {
    if (depth_ == 2) second_ = true;
    --depth_;
    return {};
  }
  Status on_torn(const std::string&, format::JsonPosition) override { return {}; }

 private:
  Status stranger() {
    other_ = true;
    return fail(Errc::parse_error, "{}", "another format");
  }

  std::size_t depth_ = 0, depth_most_ = 0, first_row_ = 0;
  std::int64_t last_ = 0;
  bool other_ = false, ascending_ = true, actions_good_ = true, second_ = false;
};

Shape shape_of(std::string_view prefix) {
  const auto begin = prefix.find_first_not_of(" \t\r\n");
  if (begin == prefix.npos || prefix[begin] != '[') return Shape::unknown;
  ShapeReader reader;
  static_cast<void>(format::read_json(prefix, reader, ""));
  return reader.shape();
}

bool is_picture(std::string_view prefix) {
  return prefix.find("<html") != prefix.npos &&
         (prefix.find("Memory Timeline") != prefix.npos ||
          prefix.find("data:image/png;base64,") != prefix.npos);
}

/// Reads arrays of numbers. Each innermost array is given to take() when it ends.
class NumberArrays : public format::JsonHandler {
 public:
  bool torn = false;
  std::uint64_t torn_line = 0;

  explicit NumberArrays(const std::string& source) : source_(source) {}
  Status on_null(format::JsonPosition at) override { return wrong(at, "null"); }
  Status on_bool(bool, format::JsonPosition at) override { return wrong(at, "true or false"); }
  Status on_string(std::string_view, format::JsonPosition at) override {
    return wrong(at, "a string");
  }
  Status on_key(std::string_view, format::JsonPosition at) override { return wrong(at, "a key"); }
  Status on_begin_object(format::JsonPosition at) override { return wrong(at, "an object"); }
  Status on_end_object(format::JsonPosition) override { return {}; }
  Status on_number(const format::JsonNumber& number, format::JsonPosition at) override {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // far from what adding would overflow
    if (number.kind == format::JsonNumber::Kind::unsigned_integer && number.value <= kMost) {
      numbers_.push_back(static_cast<std::int64_t>(number.value));
    } else if (number.kind == format::JsonNumber::Kind::negative &&
               number.negative >= -static_cast<std::int64_t>(kMost)) {
      numbers_.push_back(number.negative);
    } else {
      return wrong(at, number.text);
    }
    return {};
  }
  Status on_begin_array(format::JsonPosition at) override {
    ++depth_;
    numbers_.clear();
    begun_at_ = at;
    return depth_ > 3 ? wrong(at, "an array") : Status{};
  }
  Status on_end_array(format::JsonPosition) override {
    const auto depth = depth_--;
    if (begun_at_.line == 0) return {};  // an array of arrays
    const auto at = std::exchange(begun_at_, {.line = 0, .column = 0});
    return depth < 2 ? Status{} : take(depth, numbers_, at);
  }
  Status on_torn(const std::string&, format::JsonPosition at) override {
    torn = true;
    torn_line = at.line;
    return {};
  }

 protected:
  virtual Status take(std::size_t depth, std::vector<std::int64_t>& numbers,
                      format::JsonPosition at) = 0;
  Status wrong(format::JsonPosition at, std::string_view value) const {
    constexpr std::size_t kLong = 60;  // bytes of a value that a message shows
    return fail(Errc::parse_error, "{}:{}:{}: {} is \"{}\": expected {}", source_, at.line,
                at.column, "a row", text::printable(value, kLong),
                "[time, action, bytes, category], or times and the bytes of each category");
  }

 private:
  const std::string& source_;
  std::size_t depth_ = 0;
  std::vector<std::int64_t> numbers_;
  format::JsonPosition begun_at_{.line = 0, .column = 0};
};

enum class Action : std::uint8_t { preexisting = 1, create, new_version, destroy };

struct TimelineRow {
  std::int64_t time_ns = 0, bytes = 0;
  std::uint32_t line = 0;
  Action action = Action::create;
  std::uint8_t category = 0;
};

class RowReader final : public NumberArrays {
 public:
  using NumberArrays::NumberArrays;
  std::vector<TimelineRow> rows;
  bool in_order = true;

 private:
  Status take(std::size_t depth, std::vector<std::int64_t>& numbers,
              format::JsonPosition at) override {
    const bool good = depth == 2 && numbers.size() == 4 && numbers[1] >= 0 && numbers[1] <= 4 &&
                      numbers[3] >= 0 && numbers[3] < static_cast<std::int64_t>(kCategories.size());
    if (!good) {
      std::vector<std::string> words;
      for (const auto number : numbers) words.push_back(text::format("{}", number));
      return wrong(at, text::join(words));
    }
    const auto action = static_cast<Action>(std::max<std::int64_t>(numbers[1], 1));
    if (!rows.empty() && rows.back().time_ns > numbers[0]) in_order = false;
    rows.push_back(
        {.time_ns = numbers[0],
         .bytes = numbers[2],
         .line = static_cast<std::uint32_t>(std::min<std::uint64_t>(at.line, ~std::uint32_t{0})),
         .action = action,
         .category = static_cast<std::uint8_t>(numbers[3])});
    return {};
  }
};

std::string category_member(std::size_t category) {
  return text::format("\"x-category\":\"{}\"", kCategories[category]);
}

Header timeline_header(std::string_view curve) {
  auto header = recording_header(kTorchProfiler, {});
  header.extensions = text::format("\"x-curve\":\"{}\"", curve);
  return header;
}

/// Turns rows into operations. A row names no block, so a free ends the latest memory of its size
/// and category: what is live at any time is right, and how long each block lived is not known.
class TimelineRows {
 public:
  explicit TimelineRows(ImportRun& run) noexcept : run_(run) {}

  Status row(const TimelineRow& each) {
    if (each.time_ns >= 0 && each.action != Action::preexisting) {
      if (!start_ns_) start_ns_ = each.time_ns;
    }
    const auto size = static_cast<std::uint64_t>(each.bytes < 0 ? -each.bytes : each.bytes);
    if (size == 0) {
      ++nothing_;
      run_.other();
      return {};
    }
    if (each.action == Action::new_version) return version(each, size);
    return each.bytes > 0 ? begin(each, size, each.category) : end(each, size, each.category);
  }

  Result<ImportCounts> finish() {
    if (auto given = give_up_version(); !given) return std::move(given).error();
    run_.note(nothing_, "rows are of 0 bytes");
    run_.note(unmatched_, "rows end memory that no row begins");
    run_.counts().notes.emplace_back(
        "the rows name no block and no device: the file tells the curve and the peak of what was "
        "live, by category, and no more");
    return run_.finish(count_, live_);
  }

 private:
  using Kind = std::pair<std::uint64_t, std::uint8_t>;  // bytes, category

  Operation common(const TimelineRow& each) const {
    Operation op;
    op.line = each.line;
    if (start_ns_ && each.time_ns >= *start_ns_)
      op.time_ns = static_cast<std::uint64_t>(each.time_ns - *start_ns_);
    op.members.add(Member::time_ns);
    return op;
  }

  Status begin(const TimelineRow& each, std::uint64_t size, std::uint8_t category) {
    auto op = common(each);
    op.op = Op::memalloc;
    op.id = Id::of(run_.next_id());
    op.size = size;
    op.members = op.members | Members(Member::id, Member::size);
    if (each.action == Action::preexisting) {
      op.preexisting = true;
      op.members.add(Member::preexisting);
    }
    add_extension(op, extension_, category_member(category));
    live_blocks_[{size, category}].push_back(op.id.number);
    live_.add(size);
    ++count_;
    run_.used();
    return run_.emit(op);
  }

  Status end(const TimelineRow& each, std::uint64_t size, std::uint8_t category) {
    auto& blocks = live_blocks_[{size, category}];
    if (blocks.empty()) {
      ++unmatched_;
      run_.unmatched();
      return {};
    }
    auto op = common(each);
    op.op = Op::free;
    op.id = Id::of(blocks.back());
    op.members.add(Member::id);
    blocks.pop_back();
    add_extension(op, extension_, category_member(category));
    live_.subtract(size);
    --count_;
    run_.used();
    return run_.emit(op);
  }

  /// A new version of a block is two rows: it leaves its category, and enters another or the same.
  Status version(const TimelineRow& each, std::uint64_t size) {
    if (each.bytes < 0) {
      if (auto given = give_up_version(); !given) return given;
      leaves_ = each;
      return {};
    }
    const auto left = std::exchange(leaves_, std::nullopt);
    if (!left || left->bytes != -each.bytes) {
      if (left) {
        if (auto ended = end(*left, static_cast<std::uint64_t>(-left->bytes), left->category);
            !ended)
          return ended;
      }
      return begin(each, size, each.category);
    }
    auto& from = live_blocks_[{size, left->category}];
    if (from.empty()) {
      ++unmatched_;
      run_.unmatched();
      return begin(each, size, each.category);
    }
    run_.used();
    run_.used();
    if (left->category == each.category) return {};
    live_blocks_[{size, each.category}].push_back(from.back());
    from.pop_back();
    Operation op;
    op.line = each.line;
    op.op = Op::extension;
    op.extension = "x-category";
    const auto text = text::format("\"bytes\":{},\"from\":\"{}\",\"to\":\"{}\"", size,
                                   kCategories[left->category], kCategories[each.category]);
    op.text = text;
    return run_.emit(op);
  }

  Status give_up_version() {
    const auto left = std::exchange(leaves_, std::nullopt);
    if (!left) return {};
    return end(*left, static_cast<std::uint64_t>(-left->bytes), left->category);
  }

  ImportRun& run_;
  std::map<Kind, std::vector<std::uint64_t>> live_blocks_;
  std::optional<TimelineRow> leaves_;
  ByteSum live_;
  std::uint64_t count_ = 0, nothing_ = 0, unmatched_ = 0;
  std::optional<std::int64_t> start_ns_;
  std::string extension_;
};

Error cut_error(const std::string& name, std::uint64_t line) {
  return fail(Errc::parse_error, "{}:{}: the file ends {}: expected {}", name, line,
              "inside the timeline", "a whole timeline, or --partial");
}

void note_torn(ImportRun& run, const NumberArrays& read) {
  if (!read.torn) return;
  ++run.counts().rows;
  ++run.counts().truncated;
  run.counts().notes.push_back(text::format("the file ends inside line {}", read.torn_line));
}

Result<ImportCounts> read_rows(format::ByteSource& source, OperationSink& sink,
                               const ImportOptions& options) {
  RowReader read(source.name());
  if (auto done = format::read_json(source, read); !done) return std::move(done).error();
  if ((read.torn || source.truncated()) && !options.partial)
    return cut_error(source.name(), read.torn_line);
  auto& rows = read.rows;
  // What is there before is there first, whatever its rows state as their time.
  const auto later = std::stable_partition(rows.begin(), rows.end(), [](const TimelineRow& row) {
    return row.action == Action::preexisting;
  });
  if (!read.in_order) {
    std::stable_sort(later, rows.end(), [](const TimelineRow& a, const TimelineRow& b) {
      return a.time_ns < b.time_ns;
    });
  }
  ImportRun run(source, sink, options);
  if (auto begun = run.header(timeline_header("blocks")); !begun) return std::move(begun).error();
  TimelineRows timeline(run);
  for (const auto& row : rows) {
    if (auto taken = timeline.row(row); !taken) return std::move(taken).error();
  }
  note_torn(run, read);
  return timeline.finish();
}

/// Reads [times, bytes of each category at each]; the first number of each row is no category.
class TotalReader final : public NumberArrays {
 public:
  TotalReader(const std::string& source, ImportRun& run) : NumberArrays(source), run_(run) {
    for (std::size_t i = 0; i < kCategories.size(); ++i)
      steps_.emplace_back(run, Layer::request, no_segment_);
  }

  Result<ImportCounts> finish() {
    ByteSum live;
    std::uint64_t count = 0;
    for (const auto& each : steps_) {
      live.add(each.total());
      count += each.blocks();
    }
    run_.note(times_.size() - std::min(times_.size(), at_), "times have no totals");
    run_.counts().notes.emplace_back(
        "the file has totals at moments, in microseconds: it tells the curve and the peak of what "
        "was live, by category, and no more. What is live at its first moment is taken as there "
        "before; export_memory_timeline(\"timeline.raw.json.gz\") writes each step");
    return run_.finish(count, live);
  }

 private:
  Status take(std::size_t depth, std::vector<std::int64_t>& numbers,
              format::JsonPosition at) override {
    if (depth == 2) {
      if (times_.empty()) times_ = numbers;
      return {};
    }
    const bool good = numbers.size() == kCategories.size() + 1 && at_ < times_.size() &&
                      std::none_of(numbers.begin(), numbers.end(), [](auto n) { return n < 0; });
    if (!good) {
      std::vector<std::string> words;
      for (const auto number : numbers) words.push_back(text::format("{}", number));
      return wrong(at, text::join(words));
    }
    const bool first = at_ == 0;
    Operation op;
    op.line = static_cast<std::uint32_t>(std::min<std::uint64_t>(at.line, ~std::uint32_t{0}));
    if (times_[at_] > times_[0])
      op.time_ns = static_cast<std::uint64_t>(times_[at_] - times_[0]) * 1000;
    op.members.add(Member::time_ns);
    ++at_;
    run_.used();
    // What shrinks comes first, so that no moment has more than one of the totals.
    for (const bool grows : {false, true}) {
      for (std::size_t i = 0; i < kCategories.size(); ++i) {
        const auto total = static_cast<std::uint64_t>(numbers[i + 1]);
        if ((total > steps_[i].total()) != grows) continue;
        add_extension(op, extension_, category_member(i));
        if (auto stepped = steps_[i].step(op, total, first); !stepped) return stepped;
        op.extension = {};
      }
    }
    return {};
  }

  ImportRun& run_;
  std::vector<TotalSteps> steps_;
  std::vector<std::int64_t> times_;
  std::size_t at_ = 0;
  std::uint64_t no_segment_ = 0;
  std::string extension_;
};

Result<ImportCounts> read_totals(format::ByteSource& source, OperationSink& sink,
                                 const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(timeline_header("totals")); !begun) return std::move(begun).error();
  TotalReader read(source.name(), run);
  if (auto done = format::read_json(source, read); !done) return std::move(done).error();
  if ((read.torn || source.truncated()) && !options.partial)
    return cut_error(source.name(), read.torn_line);
  note_torn(run, read);
  return read.finish();
}

int sniff_torch_timeline(std::string_view prefix) {
  if (is_picture(prefix)) return 80;
  return shape_of(prefix) == Shape::unknown ? 0 : 90;
}

Result<ImportCounts> read_timeline(format::ByteSource& source, OperationSink& sink,
                                   const ImportOptions& options) {
  constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what sniff() is shown
  const auto prefix = source.peek(kPrefixBytes);
  if (!prefix) return prefix.error();
  if (is_picture(*prefix)) {
    return fail(Errc::parse_error,
                "{}: the file is a picture of a timeline and holds no number: expected what "
                "export_memory_timeline(\"timeline.raw.json.gz\") writes",
                source.name());
  }
  return shape_of(*prefix) == Shape::totals ? read_totals(source, sink, options)
                                            : read_rows(source, sink, options);
}

}  // namespace

extern constinit const Importer torch_timeline_importer{
    .name = "torch-timeline",
    .summary =
        "torch.profiler's export_memory_timeline(): .raw.json rows, or .json totals, by category",
    .from_documentation = true,
    .sniff = sniff_torch_timeline,
    .read = read_timeline,
};

}  // namespace emm
