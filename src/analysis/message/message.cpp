#include "message/message.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "format/bfc_dump.hpp"
#include "format/log_line.hpp"

namespace emm::message {
namespace {

// A message is looked for in so many characters behind its beginning; the longest, with a list of
// processes, are shorter.
constexpr std::size_t kLongest = std::size_t{8} << 10;
// Words in front of the trigger that belong to the message.
constexpr std::size_t kBefore = 160;
// No trigger of wording.cpp is longer. The end of what was read so far may cut one.
constexpr std::size_t kLongestTrigger = 64;
// The lines of so many ranks and processes are told apart; those of further ones count as nobody's.
constexpr std::size_t kWritersMost = 4096;
// An answer lists so many of the largest free blocks.
constexpr std::size_t kFreeListed = 8;
// A second trigger within so many characters is of the same message: an exception repeats what the
// allocator said, and RMM's has its name and then its reason.
constexpr std::size_t kSameMessage = 300, kNameAndReason = 200;
// Lines between an allocator's message and the exception of its framework, a dump apart.
constexpr std::uint64_t kApart = 2000;
// A terminal that wraps a line puts no prefix in front of the rest of it.
constexpr std::uint64_t kWrapped = 12;
constexpr std::size_t kNone = ~std::size_t{0};  // no message has a dump
constexpr std::size_t kAgain = kNone - 1;       // a dump that was there before

/// The size of what pages have between the letters of a text: a tag, or a letter by its name, of
/// which `letter` gets what it stands for (0: a space). 0 if there is none.
std::size_t markup_at(std::string_view text, char& letter) {
  letter = '\0';
  for (const std::string_view space : {"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"})
    if (text.starts_with(space)) return space.size();  // no-break, narrow and thin spaces
  if (text.front() == '<') {
    // Bytes; a "<" without an end this near is a sign of its own.
    constexpr std::size_t kLongestTag = 200;
    const auto end = text.substr(0, kLongestTag).find_first_of("<>", 1);
    const bool is_tag = end != text.npos && text[end] == '>' && end > 1 &&
                        (text[1] == '/' || (text[1] >= 'a' && text[1] <= 'z'));
    return is_tag ? end + 1 : 0;
  }
  struct Named {
    std::string_view name;
    char letter;
  };
  constexpr std::array kNamed{Named{"&nbsp;", '\0'}, Named{"&#160;", '\0'}, Named{"&amp;", '&'},
                              Named{"&lt;", '<'},    Named{"&gt;", '>'},    Named{"&quot;", '"'},
                              Named{"&#34;", '"'},   Named{"&#39;", '\''},  Named{"&#x27;", '\''},
                              Named{"&apos;", '\''}};
  for (const auto& named : kNamed) {
    if (!text.starts_with(named.name)) continue;
    letter = named.letter;
    return named.name.size();
  }
  return 0;
}

/// Appends `text` without its spaces, and without the tags of pages. A comma in front of a space is
/// doubled, so that it is not taken for one that groups digits.
void squeeze(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto c = text[i];
    if (c == '=' && i + 1 == text.size()) continue;  // a line that a mail wraps
    if (c == ' ' || c == '\t' || c == '\r' || c == '\0') continue;
    if (c == '<' || c == '&' || c == '\xc2' || c == '\xe2') {
      char letter = 0;
      if (const auto size = markup_at(text.substr(i), letter); size != 0) {
        i += size - 1;
        if (letter == 0) continue;
        c = letter;
      }
    }
    out += c;
    if (c == ',' && i + 1 < text.size() && (text[i + 1] == ' ' || text[i + 1] == '\t')) out += c;
  }
}

bool is_text_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// The number that `text` ends with.
std::string_view digits_at_end(std::string_view text) {
  auto begin = text.size();
  while (begin > 0 && is_text_digit(text[begin - 1])) --begin;
  return text.substr(begin);
}

/// The bytes of TensorFlow's "tensor with shape[64,256,56,56] and type float".
std::optional<std::uint64_t> tensor_bytes(std::string_view text) {
  constexpr std::string_view kShape = "tensorwithshape[", kType = "]andtype";
  const auto begin = text.find(kShape);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + kShape.size());
  const auto end = text.find(kType);
  if (end == std::string_view::npos) return std::nullopt;
  struct Type {
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr std::array<Type, 14> kTypes{{{"float", 4},
                                         {"half", 2},
                                         {"bfloat16", 2},
                                         {"double", 8},
                                         {"int8", 1},
                                         {"uint8", 1},
                                         {"int16", 2},
                                         {"uint16", 2},
                                         {"int32", 4},
                                         {"uint32", 4},
                                         {"int64", 8},
                                         {"uint64", 8},
                                         {"bool", 1},
                                         {"complex64", 8}}};
  std::uint64_t bytes = 0;
  const auto type = text.substr(end + kType.size());
  for (const auto& [name, size] : kTypes) {
    if (type.starts_with(name) && type.substr(name.size()).starts_with("on")) bytes = size;
  }
  for (auto sizes = text.substr(0, end); bytes != 0 && !sizes.empty();) {
    const auto comma = std::min(sizes.find(','), sizes.size());
    const auto size = text::to_u64(sizes.substr(0, comma));
    if (!size || *size > (std::uint64_t{1} << 40) ||
        (*size != 0 && bytes > (std::uint64_t{1} << 62) / *size))
      return std::nullopt;
    bytes *= *size;
    sizes.remove_prefix(std::min(comma + 1, sizes.size()));
    while (sizes.starts_with(',')) sizes.remove_prefix(1);
  }
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

/// Does the text speak of a device, whatever its kind?
bool names_device(std::string_view text) {
  constexpr std::array<std::string_view, 7> kNames{"cuda", "CUDA", "Cuda", "GPU",
                                                   "gpu",  "Gpu",  "cuMem"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view each) {
    return text.find(each) != std::string_view::npos;
  });
}

/// Is it advice for the case that memory runs out, and no failure?
bool is_advice(std::string_view line) {
  const auto said = line.find("out of memory");
  if (said == std::string_view::npos) return false;
  constexpr std::array<std::string_view, 10> kWords{"if ",     "If ",     "avoid ", "prevent ",
                                                    "may ",    "can ",    "when ",  "in case of ",
                                                    "to fix ", "reduces "};
  const auto before = line.substr(0, said);
  if (before.find("f you ") != std::string_view::npos) return true;
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    const auto at = before.rfind(word);
    // Bytes before the figure: as far as such words stand from it.
    constexpr std::size_t kNear = 40;
    return at != std::string_view::npos && said - at < kNear && (at == 0 || before[at - 1] == ' ');
  });
}

/// Reads the figures of a message out of its text without spaces.
void read_figures(std::string_view text, Message& message) {
  message.beyond_any = text.find("morethan1EBmemory") != std::string_view::npos;
  const auto set = [&](Meaning what, std::string_view digits, std::string_view unit) {
    if (what == Meaning::device) {
      if (unit.empty() && !message.device && digits.size() < 6)
        message.device = static_cast<std::uint32_t>(text::to_u64(digits).value_or(0));
      return;
    }
    auto& figure = message.figures[static_cast<std::size_t>(what)];
    if (figure) return;
    auto read = message::figure(digits, unit, message.wording->rounding);
    // 2^62 and more is how "no limit" is printed.
    if (read && read->bytes.most >> 62 == 0) figure = std::move(read);
  };
  unsigned sizes_of_rmm = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_text_digit(text[at])) {
      ++at;
      continue;
    }
    const auto token = number_at(text.substr(at));
    const auto before = text.substr(0, at);
    const auto digits = text.substr(at, token->digits);
    if (before.ends_with("current/max/trysize=") || before.ends_with("current/max/trysize") ||
        (sizes_of_rmm % 3 != 0 && before.ends_with(','))) {
      constexpr std::array kOfRmm{Meaning::reserved, Meaning::allowed, Meaning::asked};
      set(kOfRmm[sizes_of_rmm++ % 3], digits, token->unit);
      at += token->size;
      continue;
    }
    bool is_found = false;
    for (const auto& [words_before, what, words_after] : phrases()) {
      if (!before.ends_with(words_before)) continue;
      // A letter may be a unit or begin the next word: "GPU0byallocator".
      const bool with_unit = text.substr(at + token->size).starts_with(words_after);
      const bool without = text.substr(at + token->digits).starts_with(words_after);
      if (!with_unit && !(without && what == Meaning::device)) continue;
      is_found = true;
      auto unit = what == Meaning::device ? std::string_view() : token->unit;
      if (what == Meaning::free && words_after == "/") {  // vLLM's "(10.94/79.11 GiB)"
        if (message.wording->speaker != Speaker::vllm) continue;
        const auto second = number_at(text.substr(at + token->size + 1));
        unit = second ? second->unit : unit;
      }
      set(what, digits, unit);
      break;
    }
    if (!is_found && before.ends_with("has") &&
        text.substr(at + token->size).starts_with("memoryinuse")) {
      const auto pid = digits_at_end(before.substr(0, before.size() - 3));
      auto held = figure(digits, token->unit, message.wording->rounding);
      const auto named = before.substr(0, before.size() - 3 - pid.size());
      if (held && held->bytes.most >> 50 == 0 && !pid.empty() && named.ends_with("Process") &&
          message.processes.size() < 64) {
        message.processes.push_back(
            {.pid = text::to_u64(pid).value_or(0), .held = std::move(*held)});
      }
    }
    at += token->size;
  }
  if (const auto bytes = tensor_bytes(text)) {
    auto& asked = message.figures[static_cast<std::size_t>(Meaning::asked)];
    if (!asked) asked = Figure{{*bytes, *bytes}, text::format("{} bytes", *bytes)};
  }
  // CUDA.jl prints what of the device is used, "95.12% (22.500 GiB/23.653 GiB)".
  const auto total = message.bytes(Meaning::total);
  if (const auto used_at = text.find("%("); total && used_at != text.npos) {
    const auto used_text = text.substr(used_at + 2);
    const auto token = number_at(used_text);
    const auto used =
        token && used_text.substr(token->size).starts_with('/')
            ? message::figure(used_text.substr(0, token->digits), token->unit, Rounding::nearest)
            : std::nullopt;
    auto& free = message.figures[static_cast<std::size_t>(Meaning::free)];
    if (used && !free) {
      const auto left = *total - used->bytes;
      free = Figure{left, words_of(left)};
    }
  }
  // A driver that knows no figure prints 2^64 bytes, of which format_size() makes 2^34 GiB.
  auto& process = message.figures[static_cast<std::size_t>(Meaning::process)];
  if (process && process->bytes.most >> 50 != 0) process.reset();
}

/// The lines of one writer: what is not yet known to be no message.
struct Stream {
  struct Mark {
    std::size_t at;
    std::uint64_t line;
  };
  std::string text;  // squeezed
  std::vector<Mark> marks;
  std::size_t looked_at = 0;  // triggers before it are dealt with
  const Wording* open = nullptr;
  std::size_t begin = 0, end_of_last = 0;
  std::string first_line;
  std::size_t dump = kNone;  // the message to which lines of a dump belong
};

class Finder {
 public:
  Finder(format::ByteSource& source, const std::function<void()>& progress)
      : lines_(source, anchors()), progress_(progress) {}

  Result<Messages> find() {
    format::LogLine line;
    for (;;) {
      auto more = lines_.next(line);
      if (!more) return std::move(more).error();
      if (!*more) break;
      take(line);
      if (progress_ && (++taken_ & 0xfff) == 0) progress_();
    }
    for (auto& [writer, stream] : streams_) close(writer, stream, stream.text.size());
    out_.lines = lines_.line_number();
    out_.is_binary = lines_.is_binary();
    std::stable_sort(out_.all.begin(), out_.all.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    for (const auto& message : out_.all) ++out_.by_writer[message.writer];
    if (out_.count > out_.all.size()) out_.by_writer[""] += out_.count - out_.all.size();
    return std::move(out_);
  }

 private:
  void take(const format::LogLine& line) {
    if (gaps_ != lines_.gaps()) {  // What is open has ended before what was passed over.
      gaps_ = lines_.gaps();
      for (auto& [writer, stream] : streams_) close(writer, stream, stream.text.size());
      streams_.clear();
      last_writer_.clear();
    }
    std::string writer(line.writer);
    if (writer.empty() && !last_writer_.empty() && is_rest_of_last(line.text))
      writer = last_writer_;
    if (!line.writer.empty()) last_named_ = lines_.line_number();
    last_writer_ = writer;
    if (streams_.size() >= kWritersMost && streams_.count(writer) == 0) writer.clear();
    auto& stream = streams_[writer];
    if (const auto bfc = format::parse_bfc_line(line.text);
        bfc && bfc->what != format::BfcLine::Meaning::request) {
      close(writer, stream, stream.text.size());
      dump(writer, stream, *bfc);
      return;
    }
    const auto from = stream.text.size();
    stream.marks.push_back({from, lines_.line_number()});
    squeeze(line.text, stream.text);
    stream.looked_at =
        std::max(stream.looked_at, from - std::min<std::size_t>(from, kLongestTrigger));
    look(writer, stream, line.text);
    if (stream.open != nullptr && stream.text.size() - stream.begin > kLongest)
      close(writer, stream, stream.text.size());
    if (stream.open == nullptr && stream.text.size() > kLongest) forget(stream);
  }

  /// Is the line, which names no writer, the rest of one that a terminal wrapped? It may also be of
  /// another writer, if it has a message of its own.
  bool is_rest_of_last(std::string_view text) const {
    if (lines_.line_number() - last_named_ >= kWrapped) return false;
    Stream alone;
    squeeze(text, alone.text);
    const auto* const own = next_trigger(alone).first;
    const auto last = streams_.find(last_writer_);
    // Messages of llama.cpp and vLLM begin in front of their triggers.
    if (own == nullptr || own->speaker == Speaker::llama || own->speaker == Speaker::vllm)
      return true;
    if (last == streams_.end() || last->second.open == nullptr) return false;
    const auto& open = *last->second.open;
    const bool is_quoted = !own->is_specific && open.is_specific;
    return is_quoted || (own->speaker == Speaker::rmm && open.speaker == Speaker::rmm);
  }

  static void forget(Stream& stream) {
    const auto cut = stream.text.size() - std::max(kBefore, kLongestTrigger);
    stream.text.erase(0, cut);
    auto last = stream.marks.back();
    last.at = last.at > cut ? last.at - cut : 0;
    stream.marks = {last};
    stream.looked_at -= std::min(stream.looked_at, cut);
    stream.end_of_last -= std::min(stream.end_of_last, cut);
  }

  void look(const std::string& writer, Stream& stream, std::string_view line) {
    for (;;) {
      const auto [wording, at] = next_trigger(stream);
      if (wording == nullptr) return;
      stream.looked_at = at + 1;
      if (!wording->is_specific && is_advice(line)) continue;
      if (stream.open != nullptr && at - stream.begin < kLongest) {
        // Part of the open message: of its own words, an error code that it quotes, or its name
        // once more.
        if (stream.open->is_specific && at < stream.begin + stream.open->trigger.size()) continue;
        if (!wording->is_specific && stream.open->is_specific) continue;
        if (wording->is_specific && !stream.open->is_specific && at - stream.begin < kSameMessage) {
          stream.open = wording;
          continue;
        }
        // RMM's exception is the name and the reason.
        if (wording->speaker == stream.open->speaker && at - stream.begin < kNameAndReason &&
            wording->speaker == Speaker::rmm) {
          stream.open = wording;
          continue;
        }
        if (!wording->is_specific && at - stream.begin < kSameMessage) continue;
      }
      close(writer, stream, at);
      stream.open = wording;
      stream.begin = at;
      stream.first_line = text::printable(line, 160);
    }
  }

  static std::pair<const Wording*, std::size_t> next_trigger(const Stream& stream) {
    const auto text = std::string_view(stream.text);
    // Every trigger has one of these.
    constexpr std::array<std::string_view, 15> kSeeds{
        "emory", "EMORY", "lloc",  "LLOC",       "OfMem",      "OOM",      "poolsizeex", "KVcache",
        "oom_k", "oom-k", "OfDev", "ofresource", "buffersize", "isnotini", "/dev/shm"};
    if (std::none_of(kSeeds.begin(), kSeeds.end(), [&](std::string_view seed) {
          return text.find(seed, stream.looked_at) != std::string_view::npos;
        }))
      return {nullptr, 0};
    const Wording* first = nullptr;
    auto where = std::string_view::npos;
    for (const auto& wording : wordings()) {
      const auto at = text.find(wording.trigger, stream.looked_at);
      if (at >= where) continue;
      where = at;
      first = &wording;
    }
    return {first, first == nullptr ? 0 : where};
  }

  /// Ends the open message of a stream at `end` and keeps what it tells.
  void close(const std::string& writer, Stream& stream, std::size_t end) {
    if (stream.open == nullptr) return;
    const auto begin = std::max(stream.begin - std::min(stream.begin, kBefore), stream.end_of_last);
    const auto text = std::string_view(stream.text).substr(begin, std::min(end - begin, kLongest));
    Message message{.wording = stream.open, .writer = writer, .text = stream.first_line};
    for (const auto& mark : stream.marks) {
      if (mark.at <= stream.begin) message.line = mark.line;
    }
    stream.open = nullptr;
    stream.end_of_last = end;
    stream.dump = kNone;
    if (text.find("Thecallerindicatesthatthisisnotafailure") != std::string_view::npos) {
      ++out_.not_failures;
      return;
    }
    if (message.wording->needs_device && !names_device(text)) return;
    // The driver's words in the form that llama.cpp and what stands on it give them.
    static constexpr Wording kDriver{Speaker::cuda, "", false};
    if (message.wording->trigger == "Mallocfailed:outofmemory" && text.find("llama") == text.npos &&
        text.find("ggml") == text.npos)
      message.wording = &kDriver;
    read_figures(text, message);
    if (message.wording->needs_figure && !message[Meaning::asked] && !message.beyond_any) {
      if (message.wording->speaker == Speaker::rmm && text.find("CUDAerror") == text.npos) {
        // Versions of RMM before 25.04 tell no sizes of the pool; elsewhere it is somebody's source
        // text.
        if (text.find("RMMfailureat") == text.npos) return;
      } else if (message.wording->speaker != Speaker::rmm) {
        return;
      }
    }
    add(stream, std::move(message));
  }

  void add(Stream& stream, Message message) {
    for (auto at = out_.all.size(); at > 0; --at) {
      auto& before = out_.all[at - 1];
      if (is_same(before, message)) {
        ++before.printed;
        stream.dump = before.chunks ? kAgain : at - 1;
        return;
      }
      if (joins(before, message)) {
        join(before, message);
        stream.dump = at - 1;
        return;
      }
    }
    ++out_.count;
    if (out_.all.size() == kMost) return;
    stream.dump = out_.all.size();
    out_.all.push_back(std::move(message));
  }

  /// Does the log print one message again, as frameworks do where an exception passes through them?
  static bool is_same(const Message& a, const Message& b) {
    if (a.wording != b.wording || a.device != b.device) return false;
    if (a.writer != b.writer && !a.writer.empty() && !b.writer.empty()) return false;
    if (!a.has_figures() && a.writer != b.writer) return false;
    for (std::size_t i = 0; i < kFigures; ++i) {
      const auto& left = a.figures[i];
      const auto& right = b.figures[i];
      if (left && right && left->bytes != right->bytes) return false;
      if (left.has_value() != right.has_value() && a.chunks == std::nullopt) return false;
    }
    return true;
  }

  /// Do both tell one failure: an allocator, and the framework on it?
  static bool joins(const Message& a, const Message& b) {
    if (family(a.wording->speaker) != family(b.wording->speaker)) return false;
    if (a.wording == b.wording || a.wording->speaker == Speaker::torch) return false;
    if (a.writer != b.writer && !a.writer.empty() && !b.writer.empty()) return false;
    if (b.line - a.line > kApart && !a.chunks) return false;
    const auto of = [](const Message& message) {
      return message[Meaning::rounded] ? message.bytes(Meaning::rounded)
                                       : message.bytes(Meaning::asked);
    };
    const auto left = of(a), right = of(b);
    constexpr std::uint64_t kUnit = 256;  // to which BFC allocators round
    return !left || !right ||
           (left->least <= right->most + kUnit && right->least <= left->most + kUnit);
  }

  static void join(Message& into, Message& from) {
    for (std::size_t i = 0; i < kFigures; ++i) {
      auto& has = into.figures[i];
      auto& gets = from.figures[i];
      const bool is_closer = has && gets && gets->bytes.is_exact() && !has->bytes.is_exact();
      if (gets && (!has || is_closer)) has = std::move(gets);
    }
    if (!into.device) into.device = from.device;
    if (into.writer.empty()) into.writer = from.writer;
    if (!into.wording->is_specific) into.wording = from.wording;
  }

  void dump(const std::string& writer, Stream& stream, const format::BfcLine& line) {
    using LineOf = format::BfcLine::Meaning;
    if (line.what == LineOf::bin || line.what == LineOf::region || stream.dump == kAgain) return;
    if (stream.dump >= out_.all.size()) {
      if (line.what != LineOf::chunk) return;
      // A dump whose first lines were cut off.
      static constexpr Wording kCut{Speaker::tensorflow, "", true};
      ++out_.count;
      if (out_.all.size() == kMost) return;
      Message message{.wording = &kCut, .writer = writer, .line = lines_.line_number()};
      message.text = "(a dump of chunks)";
      stream.dump = out_.all.size();
      out_.all.push_back(std::move(message));
    }
    auto& message = out_.all[stream.dump];
    const auto set = [&](Meaning what) {
      auto& figure = message.figures[static_cast<std::size_t>(what)];
      if (line.size >> 62 == 0)
        figure = Figure{{line.size, line.size}, text::format("{} bytes", line.size)};
    };
    switch (line.what) {
      case LineOf::limit:
        return set(Meaning::allowed);
      case LineOf::in_use:
        return set(Meaning::allocated);
      case LineOf::peak:
        return set(Meaning::peak);
      default:
        break;
    }
    if (!message.chunks) message.chunks.emplace();
    auto& chunks = *message.chunks;
    ++(line.is_free ? chunks.free : chunks.in_use);
    (line.is_free ? chunks.free_bytes : chunks.in_use_bytes) += line.size;
    if (!line.is_free) return;
    chunks.largest_free = std::max(chunks.largest_free, line.size);
    auto& largest = chunks.largest;
    largest.insert(std::upper_bound(largest.begin(), largest.end(), line.size, std::greater<>()),
                   line.size);
    if (largest.size() > kFreeListed) largest.pop_back();
  }

  format::LogLines lines_;
  const std::function<void()>& progress_;
  std::uint64_t taken_ = 0, gaps_ = 0;
  std::map<std::string, Stream> streams_;
  std::string last_writer_;
  std::uint64_t last_named_ = 0;  // the last line that names its writer
  Messages out_;
};

}  // namespace

bool Message::has_figures() const noexcept {
  return std::any_of(figures.begin(), figures.end(), [](const auto& each) { return bool(each); });
}

Result<Messages> find_messages(format::ByteSource& source, const std::function<void()>& progress) {
  return Finder(source, progress).find();
}

}  // namespace emm::message
