#include "trace/importers/torch_pickle_sites.hpp"

#include <utility>

#include "base/text.hpp"

namespace emm::trace {
namespace {

using format::Pickle;
using format::PickleValue;

// Frames that many stacks share are written once; what is beyond this is written each time.
constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

class Hash {
 public:
  void add(std::uint64_t word) noexcept {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) noexcept {
    std::uint64_t sum = text.size();
    for (const auto c : text) sum = (sum ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
    add(sum);
  }
  std::uint32_t value() const noexcept { return static_cast<std::uint32_t>(state_ >> 16); }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace

void NumberSet::grow() {
  std::vector<Place> larger(places_.empty() ? 64 : 2 * places_.size());
  for (const auto& place : places_) {
    if (place.number == 0) continue;
    auto at = place.hash & (larger.size() - 1);
    while (larger[at].number != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = place;
  }
  places_ = std::move(larger);
}

TorchPickleSites::TorchPickleSites(const Pickle& pickle, ImportRun& run)
    : pickle_(pickle), run_(run), numbers_(pickle.container_count()) {}

Result<std::uint64_t> TorchPickleSites::site(PickleValue frames) {
  if (pickle_.type(frames) != PickleValue::Type::list || pickle_.size(frames) == 0) return std::uint64_t{0};
  auto& number = numbers_[pickle_.identity(frames)];
  if (number == 0) {
    const auto known = stacks_.size();
    const auto stack = stack_number(frames);
    number = stack;
    if (stack > known) {
      if (auto defined = define(stack); !defined) return std::move(defined).error();
    }
  }
  return std::uint64_t{number};
}

std::uint32_t TorchPickleSites::stack_number(PickleValue frames) {
  Hash hash;
  at_hand_.clear();
  PickleValue frame;
  for (auto each = pickle_.elements(frames); each.next(frame);) {
    if (pickle_.type(frame) != PickleValue::Type::dict) continue;
    at_hand_.push_back(frame_number(frame));
    hash.add(at_hand_.back());
  }
  const auto same = [&](std::uint32_t other) {
    std::size_t at = 0;
    PickleValue its;
    for (auto each = pickle_.elements(stacks_[other - 1]); each.next(its);) {
      if (pickle_.type(its) != PickleValue::Type::dict) continue;
      if (at == at_hand_.size() || at_hand_[at++] != numbers_[pickle_.identity(its)]) return false;
    }
    return at == at_hand_.size();
  };
  const auto next = static_cast<std::uint32_t>(stacks_.size() + 1);
  const auto number = stack_set_.intern(hash.value(), next, same);
  if (number == next) stacks_.push_back(frames);
  return number;
}

std::uint32_t TorchPickleSites::frame_number(PickleValue frame) {
  auto& number = numbers_[pickle_.identity(frame)];
  if (number != 0) return number;
  const auto file = pickle_.find(frame, "filename"), name = pickle_.find(frame, "name");
  const auto line = pickle_.u64(pickle_.find(frame, "line")).value_or(0);
  Hash hash;
  hash.add(pickle_.string(file).value_or(""));
  hash.add(pickle_.string(name).value_or(""));
  hash.add(line);
  const auto equal = [&](PickleValue a, PickleValue b) { return a == b || pickle_.string(a) == pickle_.string(b); };
  const auto same = [&](std::uint32_t other) {
    const auto first = frames_[other - 1];
    return pickle_.u64(pickle_.find(first, "line")).value_or(0) == line &&
           equal(pickle_.find(first, "filename"), file) && equal(pickle_.find(first, "name"), name);
  };
  const auto next = static_cast<std::uint32_t>(frames_.size() + 1);
  number = frame_set_.intern(hash.value(), next, same);
  if (number == next) {
    frames_.push_back(frame);
    texts_.emplace_back();
  }
  return number;
}

/// REQUIRES: at_hand_ has the frames of the stack.
Status TorchPickleSites::define(std::uint32_t stack) {
  passing_.clear();
  std::vector<Text> passing;
  for (const auto frame : at_hand_) {
    auto& text = texts_[frame - 1];
    if (text.size != 0) continue;
    auto& out = kept_.size() < kKeptBytes ? kept_ : passing_;
    Text written{.at = static_cast<std::uint32_t>(out.size())};
    write(frames_[frame - 1], out);
    written.size = static_cast<std::uint32_t>(out.size()) - written.at;
    if (&out == &kept_) {
      text = written;
    } else {
      passing.push_back(written);
    }
  }
  views_.clear();
  auto next = passing.begin();
  for (const auto frame : at_hand_) {
    const auto text = texts_[frame - 1];
    views_.push_back(text.size != 0 ? std::string_view(kept_).substr(text.at, text.size)
                                    : std::string_view(passing_).substr(next->at, next->size));
    next += text.size == 0 ? 1 : 0;
  }
  Operation made{.op = Op::define, .members = Members(Member::kind, Member::id, Member::frames)};
  made.define_kind = DefineKind::site;
  made.id = Id::of(stack);
  made.frames = views_;
  return run_.emit(made);
}

void TorchPickleSites::write(PickleValue frame, std::string& out) const {
  text::append(out, string(frame, "filename"));
  if (const auto line = pickle_.u64(pickle_.find(frame, "line")).value_or(0); line != 0) {
    text::append(out, ':');
    text::append(out, line);
  }
  text::append(out, ' ');
  text::append(out, string(frame, "name"));
}

std::string_view TorchPickleSites::string(PickleValue frame, std::string_view key) const {
  return pickle_.string(pickle_.find(frame, key)).value_or("?");
}

}  // namespace emm::trace
