#include "trace/compact/block_decoder.hpp"

#include <algorithm>
#include <numeric>

#include "base/utf8.hpp"
#include "format/json_reader.hpp"
#include "trace/field.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/operation.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace emm::trace::compact {
namespace {

constexpr std::string_view kShort = "its table ends too soon";
constexpr std::string_view kImpossible = "a value of an operation is not possible";
constexpr std::string_view kSizes = "its columns have other sizes than its table says";

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto length = static_cast<unsigned char>(text[0]) < 0x80 ? 1 : text::utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// Accepts an object whose members all begin with "x-". With `any`, for an "x-" operation, accepts
/// every member except "op".
class AnyMembers final : public format::JsonHandler {
 public:
  explicit AnyMembers(bool any) : any_(any) {}
  Status on_key(std::string_view key, format::JsonPosition) override {
    good_ = good_ && (depth_ > 1 || (any_ ? key != "op" : key.starts_with("x-")));
    return {};
  }
  Status on_begin_object(format::JsonPosition) override { return begin(); }
  Status on_end_object(format::JsonPosition) override { return end(); }
  Status on_begin_array(format::JsonPosition) override { return begin(); }
  Status on_end_array(format::JsonPosition) override { return end(); }
  bool good() const noexcept { return good_; }

 private:
  Status begin() {
    ++depth_;
    return {};
  }
  Status end() {
    --depth_;
    return {};
  }
  std::size_t depth_ = 0;
  bool any_, good_ = true;
};

bool is_members(std::string_view text, bool any) {
  AnyMembers members(any);
  std::string object("{");
  object.append(text).push_back('}');
  return object.find('\n') == object.npos && format::read_json(object, members, "").has_value() &&
         members.good();
}

#if defined(__SSE2__)
/// Unpacks sixteen values at a time, each byte plane in a register. Returns the number of values
/// unpacked.
template <std::size_t width>
std::size_t unpack_by_sixteen(const unsigned char* planes, std::size_t count, std::uint64_t least,
                              std::uint64_t* to) noexcept {
  constexpr std::size_t kAtOnce = 16;  // values: a byte of each fills a register of SSE2
  const auto zero = _mm_setzero_si128();
  const auto above = _mm_set1_epi64x(static_cast<long long>(least));
  const auto put = [&](std::uint64_t* at, __m128i pair) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm_add_epi64(pair, above));
  };
  std::size_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    const auto plane = [&](std::size_t number) {
      if (number >= width) return zero;
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes + number * count + i));
    };
    // Interleaves bytes to pairs, then to fours, then to eights, for the lower and the upper eight
    // values.
    const auto low01 = _mm_unpacklo_epi8(plane(0), plane(1));
    const auto high01 = _mm_unpackhi_epi8(plane(0), plane(1));
    const auto low23 = _mm_unpacklo_epi8(plane(2), plane(3));
    const auto high23 = _mm_unpackhi_epi8(plane(2), plane(3));
    const auto low45 = _mm_unpacklo_epi8(plane(4), plane(5));
    const auto high45 = _mm_unpackhi_epi8(plane(4), plane(5));
    const auto low67 = _mm_unpacklo_epi8(plane(6), plane(7));
    const auto high67 = _mm_unpackhi_epi8(plane(6), plane(7));
    const auto four = [&](std::uint64_t* at, __m128i lower, __m128i upper) {
      put(at, _mm_unpacklo_epi32(lower, upper));
      put(at + 2, _mm_unpackhi_epi32(lower, upper));
    };
    four(to + i, _mm_unpacklo_epi16(low01, low23), _mm_unpacklo_epi16(low45, low67));
    four(to + i + 4, _mm_unpackhi_epi16(low01, low23), _mm_unpackhi_epi16(low45, low67));
    four(to + i + 8, _mm_unpacklo_epi16(high01, high23), _mm_unpacklo_epi16(high45, high67));
    four(to + i + 12, _mm_unpackhi_epi16(high01, high23), _mm_unpackhi_epi16(high45, high67));
  }
  return i;
}
#endif

template <std::size_t width>
void unpack_planes(const char* planes, std::size_t count, std::uint64_t least, std::uint64_t step,
                   std::uint64_t* to) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(planes);
  std::size_t i = 0;
#if defined(__SSE2__)
  i = unpack_by_sixteen<width>(at, count, step == 1 ? least : 0, to);
  for (std::size_t done = 0; step != 1 && done < i; ++done) to[done] = least + step * to[done];
#endif
  for (; i < count; ++i) {
    std::uint64_t value = 0;
    for (std::size_t plane = 0; plane < width; ++plane) {
      value |= std::uint64_t{at[plane * count + i]} << (8 * plane);
    }
    to[i] = least + step * value;
  }
}

constexpr decltype(&unpack_planes<1>) kUnpack[] = {
    nullptr,          unpack_planes<1>, unpack_planes<2>, unpack_planes<3>, unpack_planes<4>,
    unpack_planes<5>, unpack_planes<6>, unpack_planes<7>, unpack_planes<8>};

}  // namespace

BlockDecoder::BlockDecoder() = default;
BlockDecoder::~BlockDecoder() = default;

std::string_view BlockDecoder::load(std::string_view payload) {
  operations_ = given_ = 0;
  damaged_ = {};
  if (const auto wrong = read_table(payload); !wrong.empty()) return wrong;
  if (const auto wrong = read_texts(); !wrong.empty()) return wrong;
  if (const auto wrong = read_shapes(); !wrong.empty()) return wrong;
  return {};
}

std::string_view BlockDecoder::read_table(std::string_view payload) {
  auto table = payload;
  std::uint64_t operations = 0, shapes = 0;
  std::uint64_t columns = 0;
  for (auto* into : {&operations, &now_.seq, &now_.enter, &now_.exit, &now_.time_ns, &now_.made,
                     &columns, &shapes}) {
    if (!take_varint(table, *into)) return kShort;
  }
  if (operations == 0 || operations > kBlockOperationsMax || shapes == 0 ||
      shapes > kBlockShapesMax)
    return "it has more operations or shapes than a block may have, or none";
  if (columns < kFixedColumns || columns > payload.size()) return kShort;
  shape_words_.clear();
  const auto take_word = [&] { return take_varint(table, shape_words_.emplace_back()); };
  for (std::uint64_t i = 0; i < shapes; ++i) {
    for (int word = 0; word < 2; ++word) {
      if (!take_word()) return kShort;
    }
    const auto members = shape_words_.back();
    if (members > kMemberCount) return "a shape has more members than there are";
    for (std::uint64_t member = 0; member < members; ++member) {
      if (!take_word()) return kShort;
    }
  }
  packed_.assign(static_cast<std::size_t>(columns), {});
  std::size_t bytes = 0;
  for (auto& column : packed_) {
    std::uint64_t count = 0, width = 0, size = 0;
    if (!take_varint(table, count)) return kShort;
    column.count = static_cast<std::size_t>(count);
    if (count == 0) continue;
    if (count > kChunkBytesMax) return kSizes;
    if (!take_varint(table, width) || !take_varint(table, column.least) || width > 8) return kShort;
    column.width = static_cast<std::size_t>(width);
    if (width == 0) {
      if (count > operations * 64) return kSizes;
      continue;
    }
    if (!take_varint(table, column.step) || !take_varint(table, size)) return kShort;
    if (size > table.size() || size > count * width) return kSizes;
    column.bytes = static_cast<std::size_t>(size);
    bytes += column.bytes;
  }
  if (bytes != table.size()) return kSizes;
  columns_.assign(packed_.size(), {});
  for (std::size_t i = 0; i < packed_.size(); ++i) {
    const auto packed = table.substr(0, packed_[i].bytes);
    table.remove_prefix(packed.size());
    if (const auto wrong = unpack_column(columns_[i], packed, i); !wrong.empty()) return wrong;
  }
  operations_ = static_cast<std::size_t>(operations);
  return {};
}

std::string_view BlockDecoder::unpack_column(Column& column, std::string_view packed,
                                             std::size_t at) {
  const auto& said = packed_[at];
  const auto size = said.count * said.width;
  auto& room = at == kTextColumn ? text_bytes_ : planes_;
  const char* planes = packed.data();
  if (said.width != 0) {
    if (room.size() < size) room.resize(size);
    if (packed.size() != size) {
      if (!unpacker_.unpack(packed, room.data(), size)) return "a column does not unpack";
      planes = room.data();
    } else if (at == kTextColumn) {
      std::copy(packed.begin(), packed.end(), room.begin());
    }
  }
  column.count = said.count;
  if (at == kTextColumn) {
    const bool plain = said.count == 0 || (said.width == 1 && said.least == 0 && said.step == 1);
    return plain ? std::string_view() : "its dictionary is no text";
  }
  if (memory_.size() <= at) {
    memory_.resize(at + 1);
    memory_sizes_.resize(at + 1);
  }
  if (memory_sizes_[at] < said.count + 1) {  // a quick shape may read one value past the last
    memory_[at].reset(new std::uint64_t[said.count + 1]);
    memory_sizes_[at] = said.count + 1;
  }
  column.values = memory_[at].get();
  column.values[said.count] = 0;
  column.same = said.width == 0 && said.count != 0;
  if (said.width == 0) {
    std::fill_n(column.values, said.count, said.least);
  } else {
    kUnpack[said.width](planes, said.count, said.least, said.step, column.values);
  }
  return {};
}

std::string_view BlockDecoder::read_texts() {
  const auto& lengths = columns_[kLengthColumn];
  texts_.clear();
  texts_.reserve(lengths.count);
  std::string_view rest(text_bytes_.data(), columns_[kTextColumn].count);
  for (std::size_t i = 0; i < lengths.count; ++i) {
    if (lengths.values[i] > rest.size()) return "its dictionary has other lengths than bytes";
    auto& text = texts_.emplace_back();
    text.text = rest.substr(0, static_cast<std::size_t>(lengths.values[i]));
    rest.remove_prefix(text.text.size());
    if (!is_utf8(text.text)) return "its dictionary is no UTF-8";
    text.is_id = !text.text.empty() && text.text.size() <= kIdBytes &&
                 std::all_of(text.text.begin(), text.text.end(), is_id_character);
    if (text.is_id) text.id = Id::of(text.text);
  }
  return rest.empty() ? std::string_view() : "its dictionary has other lengths than bytes";
}

// Reads the shapes of the block, and gives each step its column. All counts are checked here, so
// that take() need not ask whether a column has a further value.
std::string_view BlockDecoder::read_shapes() {
  const auto& numbers = columns_[kShapeColumn];
  if (numbers.count != operations_) return kSizes;
  std::size_t column = kFixedColumns;
  counts_.assign(kBlockShapesMax, 0);
  for (std::size_t i = 0; i < operations_; ++i) {
    if (numbers.values[i] >= kBlockShapesMax) return "an operation has no shape";
    ++counts_[static_cast<std::size_t>(numbers.values[i])];
  }
  std::array<std::size_t, 4> fixed_counts{};
  shape_count_ = 0;
  quick_.clear();
  for (std::size_t at = 0; at < shape_words_.size();) {
    const auto op_text = shape_words_[at++];
    const auto members = shape_words_[at++];
    if (op_text >= texts_.size()) return "a shape's name is not in its dictionary";
    if (shapes_.size() == shape_count_) shapes_.push_back(std::make_unique<Shape>());
    auto& shape = *shapes_[shape_count_++];
    shape.operation = Operation{};
    const auto op = op_of(texts_[static_cast<std::size_t>(op_text)].text);
    if (!op) return "it has an operation that this version does not know";
    shape.operation.op = *op;
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < members; ++i) {
      const auto word = shape_words_[at++];
      if (word >= texts_.size()) return "a shape's member is not in its dictionary";
      const auto said = texts_[static_cast<std::size_t>(word)].text;
      const auto member = said == name(Member::extension) ? Member::extension
                                                          : member_of(said).value_or(Member::op);
      if (member == Member::op || static_cast<std::uint64_t>(member) <= last)
        return "it has a member that this version does not know, or one in another order";
      last = static_cast<std::uint64_t>(member);
      shape.operation.members.add(member);
    }
    const auto& rules = rule(*op);
    const auto had = shape.operation.members;
    const auto may = rules.required | rules.allowed | common_members() | Members(Member::extension);
    if (*op == Op::extension ? !had.empty()
                             : !had.without(may).empty() || !rules.required.without(had).empty()) {
      return "an operation has other members than the format gives it";
    }
    if (*op == Op::flush) shape.operation.layer = Layer::backing;
    const auto count = counts_[shape_count_ - 1];
    if (const auto wrong = make_steps(shape, count, column); !wrong.empty()) return wrong;
    make_quick(shape, quick_.emplace_back());
    for (const auto member : {Member::seq, Member::enter, Member::exit, Member::time_ns}) {
      const auto part = static_cast<std::size_t>(member) - static_cast<std::size_t>(Member::seq);
      if (had.has(member)) fixed_counts[part] += count;
    }
  }
  if (column != columns_.size()) return kSizes;
  const auto operations = std::accumulate(
      counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(shape_count_), std::size_t{0});
  if (operations != operations_) return "an operation has no shape";
  for (std::size_t i = 0; i < fixed_.size(); ++i) {
    const auto& fixed = columns_[kSeqColumn + i];
    if (fixed.count != fixed_counts[i]) return kSizes;
    fixed_[i] = fixed.values;
  }
  add_up(kSeqColumn, now_.seq);
  add_up(kEnterColumn, now_.enter);
  add_up(kTimeColumn, now_.time_ns);
  return {};
}

/// Replaces the differences in a column by the values.
void BlockDecoder::add_up(FixedColumn column, std::uint64_t from) noexcept {
  auto* const values = columns_[column].values;
  for (std::size_t i = 0; i < columns_[column].count; ++i) {
    from += unzigzag(values[i]);
    values[i] = from;
  }
}

/// Prepares the fast path if all values of the shape are numbers and there are few.
void BlockDecoder::make_quick(Shape& shape, Quick& quick) noexcept {
  // The fast path copies this for a value that the shape does not have.
  static constexpr std::uint64_t kNothing = 0;
  quick.id_at = &kNothing;
  quick.id_to = &unread_;
  quick.at.fill(&kNothing);
  quick.to.fill(&unread_);
  std::size_t numbers = 0;
  for (const auto& step : shape.steps) {
    switch (step.part) {
      case ColumnKind::seq:
        quick.has_seq = 1;
        break;
      case ColumnKind::time:
        quick.has_time = 1;
        break;
      case ColumnKind::made:
      case ColumnKind::ended:
        if (!step.numbers_only) return;
        quick.id_at = step.at;
        quick.id_to = &shape.operation.id.number;
        quick.id_stride = 1;
        quick.makes = step.part == ColumnKind::made ? ~std::uint64_t{0} : 0;
        shape.operation.id.text = {};
        break;
      case ColumnKind::number:
        if (numbers == Quick::kNumbers) return;
        quick.at[numbers] = step.at;
        quick.to[numbers] = static_cast<std::uint64_t*>(step.to);
        quick.strides[numbers++] = 1;
        break;
      default:
        return;
    }
  }
  quick.operation = &shape.operation;
}

std::string_view BlockDecoder::make_steps(Shape& shape, std::size_t count, std::size_t& column) {
  shape.steps.clear();
  shape.list = {};
  const auto op = shape.operation.op;
  for (const auto& place : places(op, shape.operation.members)) {
    Step step{.part = place.part, .least = place.least, .greatest = place.greatest};
    const bool is_list =
        place.nth == 1 && (place.member == Member::ids || place.member == Member::frames);
    aim(step, place, shape.operation);
    if (is_fixed(place.part)) {
      shape.steps.push_back(step);
      continue;
    }
    if (column >= columns_.size()) return kSizes;
    auto& values = columns_[column++];
    step.at = values.values;
    step.end = values.values + values.count;
    if (is_list) {
      shape.list = step;
      continue;
    }
    if (values.count != count) return kSizes;
    if (place.part == ColumnKind::id || place.part == ColumnKind::made ||
        place.part == ColumnKind::ended) {
      std::uint64_t bits = 0;
      for (const auto* at = step.at; at != step.end; ++at) bits |= *at;
      step.numbers_only = (bits & 1) == 0;
    }
    if (place.part == ColumnKind::id && step.numbers_only) {  // handled as any other number
      for (std::size_t i = 0; i < count; ++i) values.values[i] >>= 1;
      step.part = ColumnKind::number;
      step.to = &static_cast<Id*>(step.to)->number;
    }
    const bool moves = step.part == ColumnKind::made || step.part == ColumnKind::ended ||
                       step.part == ColumnKind::parent || step.part == ColumnKind::ids ||
                       step.part == ColumnKind::frames;
    if (values.same && !moves) {  // all operations share the value, which is set once here
      if (!take(step, shape)) return kImpossible;
      continue;
    }
    shape.steps.push_back(step);
  }
  return {};
}

// Tells a step where in the operation its value goes. Done once for each shape, so that take() only
// stores. The type behind Step::to is that of the case in take().
void BlockDecoder::aim(Step& step, const ColumnField& place, Operation& operation) noexcept {
  const auto member = place.member;
  switch (place.part) {
    case ColumnKind::number:
      step.to = member != Member::expect ? &(operation.*field(member).number)
                : place.nth == 1         ? &operation.expect.align
                : place.nth == 3         ? &operation.expect.free_at_least
                                         : &operation.expect.free_at_most;
      return;
    case ColumnKind::parent:
      step.to = &operation.parent;
      return;
    case ColumnKind::small:
      step.to = member == Member::device ? &operation.device : &operation.page_offset;
      return;
    case ColumnKind::flag:
      step.to =
          member == Member::attach ? &operation.attach_global : &(operation.*field(member).flag);
      return;
    case ColumnKind::text:
      step.to = member == Member::op       ? &operation.extension
                : member == Member::result ? &operation.result.name
                : member == Member::frames ? nullptr
                                           : &(operation.*field(member).text);
      return;
    case ColumnKind::json:
      step.to = member == Member::text ? &operation.text : &operation.extension;
      return;
    case ColumnKind::id:
      step.to =
          member == Member::expect ? &operation.expect.same_as : &(operation.*field(member).id);
      return;
    case ColumnKind::made:
    case ColumnKind::ended:
      step.to = &operation.id;
      return;
    case ColumnKind::choice:
      switch (member) {
        case Member::layer:
          step.to = &operation.layer;
          return;
        case Member::kind:
          step.to = operation.op == Op::define ? static_cast<void*>(&operation.define_kind)
                                               : static_cast<void*>(&operation.kind);
          return;
        case Member::cause:
          step.to = &operation.cause;
          return;
        case Member::phase:
          step.to = &operation.phase;
          return;
        case Member::result:
          step.to = &operation.result.outcome;
          return;
        default:
          step.to = &operation.expect.outcome;
          return;
      }
    case ColumnKind::integer:
      step.to = member == Member::result ? &operation.result.code : &operation.priority;
      return;
    default:
      return;
  }
}

bool BlockDecoder::take_id(std::uint64_t value, Id& id, std::uint64_t number) noexcept {
  if ((value & 1) == 0) {
    id = Id::of(number);
    return true;
  }
  if ((value >> 1) >= texts_.size() || !texts_[value >> 1].is_id) return false;
  id = texts_[value >> 1].id;
  return true;
}

bool BlockDecoder::take_json(std::uint64_t value, std::string_view& to, bool needed) {
  if (value >= texts_.size()) return false;
  auto& text = texts_[value];
  if (text.json == Text::Json::unknown)
    text.json = is_members(text.text, !needed) ? Text::Json::good : Text::Json::bad;
  to = text.text;
  return text.json == Text::Json::good && (!needed || !to.empty());
}

// Takes a step's next value. False for a value that no writer makes: an unknown string, or a number
// that its member cannot have.
inline bool BlockDecoder::take(Step& step, Shape& shape) {
  if (is_fixed(step.part)) {
    const auto value = *fixed_[static_cast<std::size_t>(step.part)]++;
    auto& operation = shape.operation;
    switch (step.part) {
      case ColumnKind::time:
        operation.time_ns = value;
        return true;
      case ColumnKind::seq:
        operation.seq = now_.seq = value;
        return true;
      case ColumnKind::enter:
        operation.enter = value;
        return true;
      default:
        now_.exit = (operation.has(Member::enter) ? operation.enter : now_.exit) + unzigzag(value);
        operation.exit = now_.exit;
        return true;
    }
  }
  const auto value = *step.at++;
  switch (step.part) {
    case ColumnKind::number:
      *static_cast<std::uint64_t*>(step.to) = value;
      return true;
    case ColumnKind::small:
      *static_cast<std::uint32_t*>(step.to) = static_cast<std::uint32_t>(value);
      return value <= step.greatest;
    case ColumnKind::flag:
      *static_cast<bool*>(step.to) = value != 0;
      return value <= 1;
    case ColumnKind::text:
      if (value >= texts_.size()) return false;
      *static_cast<std::string_view*>(step.to) = texts_[value].text;
      return shape.operation.op != Op::extension || texts_[value].text.starts_with("x-");
    case ColumnKind::json:
      return take_json(value, *static_cast<std::string_view*>(step.to),
                       shape.operation.op != Op::extension);
    case ColumnKind::id:
      return take_id(value, *static_cast<Id*>(step.to), value >> 1);
    case ColumnKind::made: {
      auto& id = *static_cast<Id*>(step.to);
      if ((value & 1) == 0) now_.made += unzigzag(value >> 1) + 1;
      return take_id(value, id, now_.made);
    }
    case ColumnKind::ended:
      return take_id(value, *static_cast<Id*>(step.to), now_.made - unzigzag(value >> 1));
    case ColumnKind::parent:
      *static_cast<std::uint64_t*>(step.to) = now_.seq - unzigzag(value);
      return true;
    case ColumnKind::choice:
      *static_cast<unsigned char*>(step.to) = static_cast<unsigned char>(value);
      return value >= step.least && value <= step.greatest;
    case ColumnKind::integer: {
      const auto integer = static_cast<std::int64_t>(unzigzag(value));
      *static_cast<std::int32_t*>(step.to) = static_cast<std::int32_t>(integer);
      return static_cast<std::int32_t>(integer) == integer;
    }
    case ColumnKind::distinct:
      shape.operation.expect.distinct = (value & 1) != 0;
      shape.operation.expect.has_same_as = (value & 2) != 0;
      return value <= step.greatest;
    case ColumnKind::ids: {
      auto& list = shape.list;
      if (value > static_cast<std::uint64_t>(list.end - list.at)) return false;
      shape.ids.resize(static_cast<std::size_t>(value));
      for (auto& id : shape.ids) {
        const auto one = *list.at++;
        if (!take_id(one, id, now_.made - unzigzag(one >> 1))) return false;
      }
      shape.operation.ids = shape.ids;
      return true;
    }
    case ColumnKind::frames: {
      auto& list = shape.list;
      if (value > static_cast<std::uint64_t>(list.end - list.at)) return false;
      shape.frames.resize(static_cast<std::size_t>(value));
      for (auto& frame : shape.frames) {
        if (*list.at >= texts_.size()) return false;
        frame = texts_[*list.at++].text;
      }
      shape.operation.frames = shape.frames;
      return true;
    }
    default:
      return false;
  }
}

Operation* BlockDecoder::next_of(Shape& shape) {
  for (auto& step : shape.steps) {
    if (!take(step, shape)) [[unlikely]]
      return fail_here(kImpossible);
  }
  return &shape.operation;
}

}  // namespace emm::trace::compact
