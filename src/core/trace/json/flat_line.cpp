#include "trace/json/flat_line.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the first character is looked for in the lowest byte");

// Words with the same bits in each byte: eight characters are looked at at once.
constexpr std::uint64_t kOnes = 0x0101010101010101u;
constexpr std::uint64_t kHighs = 0x8080808080808080u;

std::uint64_t load(const char* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Sets the high bit of each byte of `word` that is `c`. Bits above the first match may be wrong.
constexpr std::uint64_t bytes_equal(std::uint64_t word, char c) noexcept {
  const auto difference = word ^ (kOnes * static_cast<unsigned char>(c));
  return (difference - kOnes) & ~difference & kHighs;
}

unsigned first_byte(std::uint64_t high_bits) noexcept {
  return static_cast<unsigned>(std::countr_zero(high_bits)) / 8;
}

/// The first bytes of `text`, up to 8, as load() would give them, padded with zeros.
constexpr std::uint64_t first_bytes(std::string_view text) noexcept {
  std::uint64_t word = 0;
  for (std::size_t at = 0; at < 8 && at < text.size(); ++at) {
    word |= std::uint64_t{static_cast<unsigned char>(text[at])} << (8 * at);
  }
  return word;
}

/// A hash table of words by their bytes. A look-up takes one or two probes and no call.
template <std::size_t N>
class WordTable {
 public:
  constexpr explicit WordTable(const std::array<std::string_view, N>& words) : words_(words) {
    for (std::size_t i = 0; i < N; ++i) {
      const auto word = words[i];
      const auto first = first_bytes(word);
      auto slot = slot_of(first, word.size());
      while (slots_[slot].entry != 0) slot = (slot + 1) % kSlots;
      const auto last = word.size() > 8 ? first_bytes(word.substr(word.size() - 8)) : first;
      slots_[slot] = {.first = first,
                      .last = last,
                      .size = static_cast<std::uint8_t>(word.size()),
                      .entry = static_cast<std::uint8_t>(i + 1)};
    }
  }

  /// Returns the index of the word, or N if it is unknown. 8 bytes from `at` must be readable.
  std::size_t find(const char* at, std::size_t size) const noexcept {
    auto first = load(at);
    if (size < 8) first &= (std::uint64_t{1} << (8 * size)) - 1;
    const auto last = size > 8 ? load(at + size - 8) : first;
    for (auto slot = slot_of(first, size); slots_[slot].entry != 0; slot = (slot + 1) % kSlots) {
      const auto& known = slots_[slot];
      if (known.first != first || known.last != last || known.size != size) continue;
      const auto index = static_cast<std::size_t>(known.entry - 1);
      if (size > 16 && std::memcmp(words_[index].data(), at, size) != 0) continue;
      return index;
    }
    return N;
  }

 private:
  struct Slot {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint8_t size = 0;
    std::uint8_t entry = 0;  // index + 1; 0: empty
  };
  // Twice the words at least, so that few share a slot; the hash has 8 bits.
  static constexpr std::size_t kSlots = 256;
  static_assert(N < 128);
  static constexpr std::size_t slot_of(std::uint64_t first, std::size_t size) noexcept {
    return static_cast<std::size_t>(((first ^ (size << 59)) * 0x9e3779b97f4a7c15u) >> 56);
  }

  std::array<std::string_view, N> words_;
  std::array<Slot, kSlots> slots_{};
};

constexpr WordTable<kOpCount> kOps(kOpNames);
constexpr WordTable<kOutcomeNames.size()> kOutcomes(kOutcomeNames);
constexpr WordTable<kCauseNames.size()> kCauses(kCauseNames);
constexpr WordTable<kKindNames.size()> kKinds(kKindNames);
constexpr WordTable<kLayerNames.size()> kLayers(kLayerNames);
constexpr WordTable<kMemberCount> kMembers(kMemberNames);

/// The bytes that begin a member in a line: its name in quotes, a colon.
struct Opening {
  // 24 bytes: the longest name is "release_threshold", in quotes.
  static constexpr std::size_t kWords = 3;
  std::array<std::uint64_t, kWords> bytes{};
  std::array<std::uint64_t, kWords> mask{};
  std::size_t size = 0;
};

constexpr auto kOpenings = [] {
  std::array<Opening, kMemberCount> openings{};
  for (std::size_t i = 0; i < kMemberCount; ++i) {
    auto& opening = openings[i];
    const auto put = [&](char c) {
      const auto shift = 8 * (opening.size % 8);
      opening.bytes[opening.size / 8] |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
      opening.mask[opening.size / 8] |= std::uint64_t{0xff} << shift;
      ++opening.size;
    };
    put('"');
    for (const char c : kMemberNames[i]) put(c);
    put('"');
    put(':');
  }
  return openings;
}();

/// Scans one line. Every function returns false if the OperationReader has to read the line
/// instead. A line end or a zero byte follows the line; no token accepts it, so no scan passes it.
class Scanner {
 public:
  explicit Scanner(std::string_view line) noexcept : at_(line.data()), end_(at_ + line.size()) {}

  bool take(char c) noexcept {
    if (*at_ != c) return false;
    ++at_;
    return true;
  }
  bool take(const Opening& opening) noexcept {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < Opening::kWords; ++i) {
      difference |= (load(at_ + 8 * i) ^ opening.bytes[i]) & opening.mask[i];
    }
    if (difference != 0) return false;
    at_ += opening.size;
    return true;
  }
  void skip_space() noexcept { at_ += *at_ == ' ' ? 1 : 0; }
  bool at_end() const noexcept { return at_ == end_; }

  /// Reads a string of printable ASCII without escapes; `out` is without its quotes.
  bool string(std::string_view& out) noexcept {
    if (!take('"')) return false;
    const char* const begin = at_;
    for (;;) {
      const auto word = load(at_);
      const auto quotes = bytes_equal(word, '"');
      const auto control = (word - kOnes * 0x20) & ~word;
      const auto stops = (quotes | bytes_equal(word, '\\') | control | word) & kHighs;
      if (stops == 0) {
        at_ += 8;
        continue;
      }
      at_ += first_byte(stops);
      if (*at_ != '"') return false;
      out = {begin, static_cast<std::size_t>(at_ - begin)};
      ++at_;
      return true;
    }
  }

  /// Reads a word of the table in quotes.
  template <std::size_t N>
  bool word(const WordTable<N>& table, std::size_t& out) noexcept {
    if (!take('"')) return false;
    constexpr std::size_t kLongest = 24;  // characters: no word of a table is longer
    for (std::size_t size = 0; size < kLongest; size += 8) {
      const auto quotes = bytes_equal(load(at_ + size), '"');
      if (quotes == 0) continue;
      size += first_byte(quotes);
      out = table.find(at_, size);
      at_ += size + 1;
      return out != N;
    }
    return false;
  }

  /// Reads digits without a leading zero, up to kExactInteger, with the end of a value behind them.
  bool number(std::uint64_t& out) noexcept {
    auto word = load(at_);
    auto digits = count_digits(word);
    if (digits == 0 || (*at_ == '0' && digits > 1)) return false;
    auto value = value_of(word, digits);
    at_ += digits;
    if (digits == 8) {
      word = load(at_);
      digits = count_digits(word);
      if (digits == 8) return false;  // longer than any exact integer
      if (digits > 0) value = value * kPowers[digits] + value_of(word, digits);
      at_ += digits;
    }
    out = value;
    return value <= kExactInteger && ends_value();
  }

  bool address(std::uint64_t& out) noexcept {
    if (at_[0] != '"' || at_[1] != '0' || at_[2] != 'x') return false;
    at_ += 3;
    constexpr std::size_t kDigits = 16;  // of 64 bits
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits <= kDigits; ++digits, ++at_) {
      const auto digit = kHex[static_cast<unsigned char>(*at_)];
      if (digit > 15) break;
      value = value << 4 | digit;
    }
    out = value;
    return digits > 0 && digits <= kDigits && take('"');
  }

  bool id(Id& out) noexcept {
    if (*at_ != '"') {
      out.text = {};
      return number(out.number);
    }
    std::string_view name;
    if (!string(name) || name.empty() || name.size() > kIdBytes) return false;
    for (const char c : name) {
      if (!kIdCharacter[static_cast<unsigned char>(c)]) return false;
    }
    out = Id::of(name);
    return true;
  }

  bool flag(bool& out) noexcept {
    const auto word = load(at_);
    if ((word & 0xffffffffu) == first_bytes("true")) {
      out = true;
      at_ += 4;
      return ends_value();
    }
    if ((word & 0xffffffffffu) == first_bytes("false")) {
      out = false;
      at_ += 5;
      return ends_value();
    }
    return false;
  }

  template <class Enum, std::size_t N>
  bool choice(const WordTable<N>& table, Enum& out) noexcept {
    std::size_t found = 0;
    if (!word(table, found)) return false;
    out = static_cast<Enum>(found);
    return true;
  }

 private:
  bool ends_value() const noexcept { return *at_ == ',' || *at_ == '}' || *at_ == ' '; }

  static unsigned count_digits(std::uint64_t word) noexcept {
    const auto others = ((word + kOnes * (0x80 - '9' - 1)) | (word - kOnes * '0') | word) & kHighs;
    return others == 0 ? 8 : first_byte(others);
  }
  /// The number that the first `digits` bytes spell. REQUIRES: they are 1 to 8 digits.
  static std::uint64_t value_of(std::uint64_t word, unsigned digits) noexcept {
    auto value = (word - kOnes * '0') << (64 - 8 * digits);
    value = value * 10 + (value >> 8);  // pairs of digits, in every other byte
    // Every fourth byte: a pair of digits and room for the carry.
    constexpr std::uint64_t kPairs = 0x000000ff000000ffu;
    return (((value & kPairs) * (100 + (std::uint64_t{1000000} << 32))) +
            (((value >> 16) & kPairs) * (1 + (std::uint64_t{10000} << 32)))) >>
           32;
  }

  static constexpr std::array<std::uint64_t, 8> kPowers{1,     10,     100,     1000,
                                                        10000, 100000, 1000000, 10000000};
  static constexpr auto kHex = [] {
    std::array<std::uint8_t, 256> table{};
    for (unsigned c = 0; c < 256; ++c) {
      table[c] = static_cast<std::uint8_t>(c >= '0' && c <= '9'   ? c - '0'
                                           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                                  : 255);
    }
    return table;
  }();
  static constexpr auto kIdCharacter = [] {
    std::array<bool, 256> table{};
    for (unsigned c = 0; c < 128; ++c) table[c] = is_id_character(static_cast<char>(c));
    return table;
  }();

  const char* at_;
  const char* end_;
};

/// What stands before the first member of a line. No member that this reader accepts has this
/// value.
constexpr auto kLineBegins = Member::extension;

bool take_special(Scanner& scan, Member member, Operation& out) noexcept {
  switch (member) {
    case Member::device: {
      std::uint64_t number = 0;
      if (!scan.number(number) || number > kDeviceMax) return false;
      out.device = static_cast<std::uint32_t>(number);
      return true;
    }
    case Member::page_offset: {
      std::uint64_t number = 0;
      if (!scan.number(number) || number > kPageOffsetMax) return false;
      out.page_offset = static_cast<std::uint32_t>(number);
      return true;
    }
    case Member::layer:
      return scan.choice(kLayers, out.layer);
    case Member::kind:
      return scan.choice(kKinds, out.kind);
    case Member::cause:
      return scan.choice(kCauses, out.cause) && out.cause != Cause::none;
    case Member::result:
      return scan.choice(kOutcomes, out.result.outcome) && out.result.outcome != Outcome::none;
    case Member::expect:
      return scan.choice(kOutcomes, out.expect.outcome) && out.expect.outcome != Outcome::none;
    default:
      return false;
  }
}

bool take_value(Scanner& scan, Member member, const Field& at, Operation& out) noexcept {
  switch (at.type) {
    case FieldType::bytes:
    case FieldType::count:
    case FieldType::nanoseconds:
      return scan.number(out.*at.number);
    case FieldType::address:
      return scan.address(out.*at.number);
    case FieldType::flag:
      return scan.flag(out.*at.flag);
    case FieldType::text:
      return scan.string(out.*at.text);
    case FieldType::id:
      return scan.id(out.*at.id);
    case FieldType::special:
      return take_special(scan, member, out);
  }
  return false;
}

/// Members whose values mean something else in some operation. The OperationReader reads them
/// there.
constexpr Members members_of_their_own(Op op) noexcept {
  if (op == Op::flush) return Members(Member::layer);
  if (op == Op::define) return Members(Member::kind);
  return {};
}

}  // namespace

bool FlatLineReader::read(std::string_view line, Operation& out) noexcept {
  Scanner scan(line);
  if (!scan.take('{')) return false;
  out = Operation{};
  const auto fields = all_fields();
  std::size_t op = kOpCount;  // kOpCount: not read yet
  auto before = kLineBegins;
  do {
    scan.skip_space();
    // Guessing the next name saves the search for its end.
    auto& follower = followers_[op][static_cast<std::size_t>(before)];
    if (!scan.take(kOpenings[static_cast<std::size_t>(follower)])) {
      std::size_t word = 0;
      if (!scan.word(kMembers, word)) return false;
      scan.skip_space();
      if (!scan.take(':')) return false;
      follower = static_cast<Member>(word);
    }
    scan.skip_space();
    before = follower;
    if (before == Member::op) {
      if (op != kOpCount || !scan.word(kOps, op)) return false;
    } else {
      if (before == Member::extension || out.members.has(before)) return false;
      out.members.add(before);
      if (!take_value(scan, before, fields[static_cast<std::size_t>(before)], out)) return false;
    }
    scan.skip_space();
  } while (scan.take(','));
  if (!scan.take('}') || !scan.at_end() || op == kOpCount) return false;

  out.op = static_cast<Op>(op);
  if (out.op == Op::extension || !(out.members & members_of_their_own(out.op)).empty())
    return false;
  if (out.op == Op::flush) out.layer = Layer::backing;
  const auto& rules = rule(out.op);
  return rules.required.without(out.members).empty() &&
         out.members.without(rules.required | rules.allowed | common_members()).empty();
}

}  // namespace emm::trace
