#include "exchange/importers/torch_pickle_sites.hpp"

#include <array>
#include <charconv>
#include <functional>
#include <utility>

#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using format::Pickle;
using format::PickleValue;

// The texts of frames are kept up to this size, since many stacks share them. Later ones are
// rewritten.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
constexpr std::size_t kSetMax = std::size_t{1} << 20;
constexpr std::uint32_t kFrame = std::uint32_t{1} << 31;  // marks the number of a frame
constexpr std::uint32_t kAlone =
    ~std::uint32_t{0};  // the number of all frames beyond the first kSetMax

class Hash {
 public:
  void add(std::uint64_t word) noexcept {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) noexcept { add(std::hash<std::string_view>()(text)); }
  std::uint32_t value() const noexcept { return static_cast<std::uint32_t>(state_ >> 16); }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace

void NumberSet::grow() {
  std::vector<Slot> larger(slots_.empty() ? 64 : 2 * slots_.size());
  for (const auto& slot : slots_) {
    if (slot.number == 0) continue;
    auto at = slot.hash & (larger.size() - 1);
    while (larger[at].number != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = slot;
  }
  slots_ = std::move(larger);
}

TorchPickleSites::TorchPickleSites(const Pickle& pickle, ImportRun& run)
    : pickle_(pickle), run_(run), numbers_(pickle.container_count()) {
  for (std::uint32_t shape = 0; shape < pickle.shape_count(); ++shape) {
    slots_.push_back({.file = pickle.slot(shape, "filename"),
                      .line = pickle.slot(shape, "line"),
                      .name = pickle.slot(shape, "name")});
  }
}

TorchPickleSites::Frame TorchPickleSites::read(PickleValue frame) const {
  const auto fields = pickle_.fields(frame);
  if (fields.values == nullptr) {
    return {.file = pickle_.find(frame, "filename"),
            .line = pickle_.find(frame, "line"),
            .name = pickle_.find(frame, "name")};
  }
  const auto& slots = slots_[fields.shape];
  const auto value = [&](std::optional<std::uint32_t> slot) {
    return slot ? fields.values[*slot] : PickleValue();
  };
  return {.file = value(slots.file), .line = value(slots.line), .name = value(slots.name)};
}

Result<std::uint64_t> TorchPickleSites::site(PickleValue frames) {
  if (pickle_.type(frames) != PickleValue::Type::list || pickle_.size(frames) == 0)
    return std::uint64_t{0};
  const auto identity = pickle_.identity(frames);
  if (numbers_[identity] == 0) {
    const auto known = sites_;
    const auto stack = stack_number(frames);
    numbers_[identity] = stack;
    if (stack > known) {
      if (auto defined = define(stack); !defined) return std::move(defined).error();
    }
  }
  return std::uint64_t{numbers_[identity]};
}

std::uint32_t TorchPickleSites::stack_number(PickleValue frames) {
  Hash hash;
  at_hand_.clear();
  words_.clear();
  PickleValue frame;
  std::uint64_t word = 0;
  for (auto each = pickle_.elements(frames); each.next(frame);) {
    if (!word_of(frame, word)) continue;
    at_hand_.push_back(frame);
    words_.push_back(word);
    hash.add(word);
  }
  const auto next = sites_ + 1;
  if (stacks_.size() >= kSetMax) return sites_ = next;
  const auto same = [&](std::uint32_t other) {
    std::size_t at = 0;
    PickleValue its;
    for (auto each = pickle_.elements(stacks_[other - 1]); each.next(its);) {
      if (!word_of(its, word)) continue;
      if (at == words_.size() || words_[at++] != word) return false;
    }
    return at == words_.size();
  };
  const auto number = stack_set_.intern(hash.value(), next, same);
  if (number == next) {
    stacks_.push_back(frames);
    sites_ = next;
  }
  return number;
}

bool TorchPickleSites::word_of(PickleValue frame, std::uint64_t& word) {
  if (!Pickle::is_container(frame)) return false;
  const auto identity = Pickle::identity(frame);
  auto number = numbers_[identity];
  if ((number & kFrame) == 0) {
    if (pickle_.type(frame) != PickleValue::Type::dict) return false;
    number = numbers_[identity] = frame_number(frame) | kFrame;
  }
  word = number != kAlone ? number & ~kFrame : (std::uint64_t{1} << 32) + identity;
  return true;
}

std::uint32_t TorchPickleSites::frame_number(PickleValue frame) {
  if (frames_.size() >= kSetMax) return kAlone;
  const auto its = read(frame);
  const auto line = pickle_.u64(its.line).value_or(0);
  Hash hash;
  hash.add(pickle_.string(its.file).value_or(""));
  hash.add(pickle_.string(its.name).value_or(""));
  hash.add(line);
  const auto equal = [&](PickleValue a, PickleValue b) {
    return a == b || pickle_.string(a) == pickle_.string(b);
  };
  const auto same = [&](std::uint32_t other) {
    const auto first = read(frames_[other - 1]);
    return pickle_.u64(first.line).value_or(0) == line && equal(first.file, its.file) &&
           equal(first.name, its.name);
  };
  const auto next = static_cast<std::uint32_t>(frames_.size() + 1);
  const auto number = frame_set_.intern(hash.value(), next, same);
  if (number == next) {
    frames_.push_back(frame);
    texts_.emplace_back();
  }
  return number;
}

/// REQUIRES: at_hand_ holds the frames of the stack and words_ their words.
Status TorchPickleSites::define(std::uint32_t stack) {
  passing_.clear();
  places_.clear();
  const auto numbered = [](std::uint64_t word) { return word < kFrame; };
  for (std::size_t i = 0; i < at_hand_.size(); ++i) {
    const auto word = words_[i];
    places_.push_back(numbered(word) ? texts_[word - 1] : Text{});
    if (places_.back().size != 0) continue;
    const auto keep = numbered(word) && kept_.size() < kKeptBytes;
    auto& out = keep ? kept_ : passing_;
    Text written{.at = static_cast<std::uint32_t>(out.size()), .kept = keep};
    write(at_hand_[i], out);
    written.size = static_cast<std::uint32_t>(out.size()) - written.at;
    if (keep) texts_[word - 1] = written;
    places_.back() = written;
  }
  views_.clear();
  for (const auto& text : places_) {
    views_.push_back(std::string_view(text.kept ? kept_ : passing_).substr(text.at, text.size));
  }
  Operation made{.op = Op::define, .members = Members(Member::kind, Member::id, Member::frames)};
  made.define_kind = DefineKind::site;
  made.id = Id::of(stack);
  made.frames = views_;
  return run_.emit(made);
}

void TorchPickleSites::write(PickleValue frame, std::string& out) const {
  const auto its = read(frame);
  std::array<char, 24> number{};
  auto* end = number.data();
  if (const auto line = pickle_.u64(its.line).value_or(0); line != 0) {
    *end++ = ':';
    end = std::to_chars(end, number.data() + number.size() - 1, line).ptr;
  }
  *end++ = ' ';
  out.append(pickle_.string(its.file).value_or("?"));
  out.append(number.data(), static_cast<std::size_t>(end - number.data()));
  out.append(pickle_.string(its.name).value_or("?"));
}

}  // namespace emm::trace
