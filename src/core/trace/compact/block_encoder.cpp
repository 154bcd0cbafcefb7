#include "trace/compact/block_encoder.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/text_format.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm::trace::compact {
namespace {

constexpr int kLevel = 3;  // of zstd: its own default

std::uint64_t signed_code(std::int32_t value) noexcept {
  return zigzag(static_cast<std::uint64_t>(std::int64_t{value}));
}

std::uint64_t choice_of(Member member, const Operation& operation) noexcept {
  switch (member) {
    case Member::layer:
      return static_cast<std::uint64_t>(operation.layer);
    case Member::kind:
      return operation.op == Op::define ? static_cast<std::uint64_t>(operation.define_kind)
                                        : static_cast<std::uint64_t>(operation.kind);
    case Member::cause:
      return static_cast<std::uint64_t>(operation.cause);
    case Member::phase:
      return static_cast<std::uint64_t>(operation.phase);
    case Member::result:
      return static_cast<std::uint64_t>(operation.result.outcome);
    default:
      return static_cast<std::uint64_t>(operation.expect.outcome);
  }
}

/// The nth number of `expect`.
std::uint64_t expected_number(const Expect& expect, std::uint8_t nth) noexcept {
  if (nth == 1) return expect.align;
  return nth == 3 ? expect.free_at_least : expect.free_at_most;
}

}  // namespace

BlockEncoder::BlockEncoder() : columns_(kFixedColumns), packer_(kLevel) {}

std::size_t BlockEncoder::shape_of(const Operation& operation) {
  const auto members =
      operation.op == Op::extension ? Members() : operation.members.without(Members(Member::op));
  const auto is_it = [&](const Shape& shape) {
    return shape.op == operation.op && shape.members == members;
  };
  auto& last = last_shape_[static_cast<std::size_t>(operation.op)];
  if (last < shapes_.size() && is_it(shapes_[last])) return last;
  last = static_cast<std::size_t>(std::find_if(shapes_.begin(), shapes_.end(), is_it) -
                                  shapes_.begin());
  if (last < shapes_.size()) return last;
  auto& shape = shapes_.emplace_back();
  shape = {.op = operation.op,
           .members = members,
           .places = places(operation.op, members),
           .first_column = used_columns_};
  for (const auto& place : shape.places) used_columns_ += is_fixed(place.part) ? 0 : 1;
  if (columns_.size() < used_columns_) columns_.resize(used_columns_);
  return last;
}

std::uint64_t BlockEncoder::string(std::string_view text) {
  const auto found = strings_.find(text);
  if (found != strings_.end()) return found->second;
  const auto place = strings_.size();
  strings_.emplace(text, place);
  columns_[kLengthColumn].push_back(text.size());
  texts_.append(text);
  text_bytes_ += text.size() + 1;
  return place;
}

/// The code of an id; `number` stands for it if it is a number up to kIdNumberMax.
std::uint64_t BlockEncoder::id_code(const Id& id, std::uint64_t number) {
  if (!id.is_number()) return string(id.text) * 2 + 1;
  if (id.number > kIdNumberMax) return string(text::format("{}", id.number)) * 2 + 1;
  return number * 2;
}

std::uint64_t BlockEncoder::ended_code(const Id& id) {
  return id_code(id, zigzag(now_.made - id.number));
}

void BlockEncoder::add(const Operation& operation) {
  const auto number = shape_of(operation);
  columns_[kShapeColumn].push_back(number);
  const auto& shape = shapes_[number];
  auto column = shape.first_column;
  for (const auto& place : shape.places) {
    switch (place.part) {
      case ColumnKind::seq:
        columns_[kSeqColumn].push_back(zigzag(operation.seq - now_.seq));
        now_.seq = operation.seq;
        break;
      case ColumnKind::enter:
        columns_[kEnterColumn].push_back(zigzag(operation.enter - now_.enter));
        now_.enter = operation.enter;
        break;
      case ColumnKind::exit:
        columns_[kExitColumn].push_back(
            zigzag(operation.exit - (operation.has(Member::enter) ? operation.enter : now_.exit)));
        now_.exit = operation.exit;
        break;
      case ColumnKind::time:
        columns_[kTimeColumn].push_back(zigzag(operation.time_ns - now_.time_ns));
        now_.time_ns = operation.time_ns;
        if (!std::exchange(has_time_, true)) first_time_ns_ = operation.time_ns;
        last_time_ns_ = operation.time_ns;
        break;
      default:
        add_value(place, operation, columns_[column++]);
        break;
    }
  }
}

void BlockEncoder::add_value(const ColumnField& place, const Operation& operation,
                             std::vector<std::uint64_t>& to) {
  const auto member = place.member;
  switch (place.part) {
    case ColumnKind::number:
      to.push_back(member == Member::expect ? expected_number(operation.expect, place.nth)
                                            : operation.*field(member).number);
      return;
    case ColumnKind::small:
      to.push_back(member == Member::device ? operation.device : operation.page_offset);
      return;
    case ColumnKind::flag:
      to.push_back(member == Member::attach ? operation.attach_global
                                            : operation.*field(member).flag);
      return;
    case ColumnKind::text:
      if (member == Member::frames) {
        for (const auto frame : operation.frames) to.push_back(string(frame));
        return;
      }
      to.push_back(string(member == Member::op       ? operation.extension
                          : member == Member::result ? operation.result.name
                                                     : operation.*field(member).text));
      return;
    case ColumnKind::json:
      to.push_back(string(member == Member::text ? operation.text : operation.extension));
      return;
    case ColumnKind::id: {
      const auto& id =
          member == Member::expect ? operation.expect.same_as : operation.*field(member).id;
      to.push_back(id_code(id, id.number));
      return;
    }
    case ColumnKind::made: {
      const auto& id = operation.id;
      to.push_back(id_code(id, zigzag(id.number - now_.made - 1)));
      if (id.is_number() && id.number <= kIdNumberMax) now_.made = id.number;
      return;
    }
    case ColumnKind::ended:
      if (member == Member::ids) {
        for (const auto& id : operation.ids) to.push_back(ended_code(id));
      } else {
        to.push_back(ended_code(operation.id));
      }
      return;
    case ColumnKind::parent:
      to.push_back(zigzag(now_.seq - operation.parent));
      return;
    case ColumnKind::choice:
      to.push_back(choice_of(member, operation));
      return;
    case ColumnKind::integer:
      to.push_back(
          signed_code(member == Member::result ? operation.result.code : operation.priority));
      return;
    case ColumnKind::distinct:
      to.push_back((operation.expect.distinct ? 1u : 0u) |
                   (operation.expect.has_same_as ? 2u : 0u));
      return;
    case ColumnKind::ids:
      to.push_back(operation.ids.size());
      return;
    case ColumnKind::frames:
      to.push_back(operation.frames.size());
      return;
    default:
      return;
  }
}

/// Each value is `least` plus a multiple of `step`. Writes the multiples with as many bytes as the
/// greatest needs: first the lowest byte of all values, then the next.
void BlockEncoder::put_column(const std::vector<std::uint64_t>& values) {
  append_varint(table_, values.size());
  if (values.empty()) return;
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  std::uint64_t step = 0;
  for (auto at = values.begin(); at != values.end() && step != 1; ++at) {
    const auto above = *at - *least;
    if (step == 0 || above % step != 0) step = std::gcd(step, above);
  }
  const auto most = step == 0 ? 0 : (*greatest - *least) / step;
  const auto width = static_cast<std::size_t>((std::bit_width(most) + 7) / 8);
  append_varint(table_, width);
  append_varint(table_, *least);
  if (width == 0) return;
  append_varint(table_, step);
  planes_.resize(width * values.size());
  auto* to = planes_.data();
  if (step == 1) {
    for (unsigned shift = 0; shift < width * 8; shift += 8) {
      for (const auto value : values) *to++ = static_cast<char>((value - *least) >> shift);
    }
  } else {
    std::vector<std::uint64_t> steps(values.size());
    std::transform(values.begin(), values.end(), steps.begin(),
                   [step, from = *least](std::uint64_t value) { return (value - from) / step; });
    for (unsigned shift = 0; shift < width * 8; shift += 8) {
      for (const auto value : steps) *to++ = static_cast<char>(value >> shift);
    }
  }
  put_packed(planes_);
}

/// Writes the text bytes in the form that put_column() uses for values of one byte.
void BlockEncoder::put_text_column() {
  append_varint(table_, texts_.size());
  if (texts_.empty()) return;
  append_varint(table_, 1);
  append_varint(table_, 0);
  append_varint(table_, 1);
  put_packed(texts_);
}

/// Writes the bytes packed, or unchanged if packing does not shorten them.
void BlockEncoder::put_packed(std::string_view bytes) {
  const auto begin = data_.size();
  auto packed = packer_.pack(bytes, data_);
  if (packed >= bytes.size()) {
    data_.resize(begin);
    data_.append(bytes);
    packed = bytes.size();
  }
  append_varint(table_, packed);
}

const std::string& BlockEncoder::pack() {
  // The names of the shapes go into the dictionary, so they are added before it is written.
  std::vector<std::uint64_t> names;
  for (const auto& shape : shapes_) {
    names.push_back(string(name(shape.op)));
    names.push_back(static_cast<std::uint64_t>(std::popcount(shape.members.bits())));
    for (auto left = shape.members.bits(); left != 0; left &= left - 1)
      names.push_back(string(name(static_cast<Member>(std::countr_zero(left)))));
  }
  table_.clear();
  data_.clear();
  for (const auto value :
       {std::uint64_t{operations()}, before_.seq, before_.enter, before_.exit, before_.time_ns,
        before_.made, std::uint64_t{used_columns_}, std::uint64_t{shapes_.size()}}) {
    append_varint(table_, value);
  }
  for (const auto number : names) append_varint(table_, number);
  for (std::size_t i = 0; i < used_columns_; ++i) {
    if (i == kTextColumn) {
      put_text_column();
    } else {
      put_column(columns_[i]);
    }
    columns_[i].clear();
  }
  table_.append(data_);

  before_ = now_;
  shapes_.clear();
  last_shape_ = {};
  used_columns_ = kFixedColumns;
  strings_.clear();
  texts_.clear();
  text_bytes_ = 0;
  first_time_ns_ = last_time_ns_ = 0;
  has_time_ = false;
  return table_;
}

}  // namespace emm::trace::compact
