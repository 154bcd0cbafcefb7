#include "format/log_line.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace emm::format {
namespace {

constexpr std::string_view kLogDigits = "0123456789";
constexpr std::string_view kLogSpaces = " \t\r\v\f";

bool is_log_digit(char c) { return c >= '0' && c <= '9'; }
bool is_log_upper(char c) { return c >= 'A' && c <= 'Z'; }

std::string_view skip_log_spaces(std::string_view text) {
  const auto begin = text.find_first_not_of(kLogSpaces);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

/// How many characters at the beginning are a date or a time of day: digits with `-:.,/TZ+` between
/// them, of which at least two are `-`, `:` or `/`.
std::size_t time_size(std::string_view text) {
  std::size_t at = 0, marks = 0;
  if (text.empty() || !is_log_digit(text.front())) return 0;
  while (at < text.size()) {
    const auto c = text[at];
    const bool more = at + 1 < text.size() && is_log_digit(text[at + 1]);
    if (is_log_digit(c)) {
      ++at;
    } else if (more && std::string_view("-:.,/T+").find(c) != std::string_view::npos) {
      marks += c == '-' || c == ':' || c == '/' ? 1 : 0;
      ++at;
    } else {
      break;
    }
  }
  if (marks < 2) return 0;
  if (at < text.size() && text[at] == 'Z') ++at;
  return at;
}

constexpr std::array<std::string_view, 14> kLogLevels{
    "CRITICAL", "WARNING", "ERROR",  "FATAL", "DEBUG", "TRACE", "INFO",
    "WARN",     "stderr",  "stdout", "E",     "W",     "I",     "F"};

/// Takes one level word and the colon, dash or bar after it. Returns the size, 0 if there is none.
std::size_t level_size(std::string_view text) {
  for (const auto level : kLogLevels) {
    if (!text.starts_with(level)) continue;
    auto at = level.size();
    if (at == text.size()) return 0;
    if (text[at] == ':' || text[at] == '|') return at + 1;
    if (text[at] == ' ' || text[at] == '\t') return at;
  }
  return 0;
}

/// glog's `E0720 05:51:24.070100 27487 file.cc:12] `.
std::size_t glog_size(std::string_view text) {
  if (text.size() < 6 || std::string_view("IWEF").find(text[0]) == std::string_view::npos) return 0;
  for (std::size_t i = 1; i < 5; ++i) {
    if (!is_log_digit(text[i])) return 0;
  }
  if (text[5] != ' ') return 0;
  const auto end = text.find("] ");
  return end != std::string_view::npos && end < 160 ? end + 2 : 0;
}

/// The number behind `word` inside of `text`; empty if there is none.
std::string_view number_behind(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + word.size());
  const auto end = text.find_first_not_of(kLogDigits);
  return text.substr(0, end);
}

/// A label in brackets or parentheses, such as `[rank3]:`, `(EngineCore_0 pid=12)`, `[core.py:12]`,
/// `[2024-01-01 00:00:00,123]`, `[1,3]<stderr>:`. Returns its size, 0 if there is none. Text in
/// brackets that could be part of a message stays.
std::size_t label_size(std::string_view text, LogLine& line) {
  if (text.empty() || (text.front() != '[' && text.front() != '(')) return 0;
  const auto close = text.find(text.front() == '[' ? ']' : ')');
  if (close == std::string_view::npos || close > 120) return 0;
  const auto inside = text.substr(1, close - 1);
  auto end = close + 1;
  const auto rank = number_behind(inside, "rank");
  const auto named_rank = rank.empty() ? number_behind(inside, "default") : rank;
  const auto pid = number_behind(inside, "pid=");
  const bool numbers = !inside.empty() &&
                       inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                       text.front() == '[';
  const bool time = time_size(inside) >= 8;
  const bool place = inside.find(".py") != std::string_view::npos ||
                     inside.find(".cc:") != std::string_view::npos ||
                     inside.find("onnxruntime") != std::string_view::npos;
  const bool level = text.front() == '[' &&
                     std::find(kLogLevels.begin(), kLogLevels.end(), inside) != kLogLevels.end();
  if (numbers && text.substr(end).starts_with("<std")) {
    const auto stream_end = text.find(':', end);
    if (stream_end == std::string_view::npos) return 0;
    end = stream_end;
  } else if (numbers && !text.substr(end).starts_with(':')) {
    return 0;
  }
  // Numba's "[2] Call to" and CuPy's "(allocated so far" are parts of messages.
  if (named_rank.empty() && pid.empty() && !numbers && !time && !place && !level) return 0;
  if (end < text.size() && text[end] == ':') ++end;
  if (!named_rank.empty()) {
    line.writer = named_rank;
  } else if (numbers) {
    const auto comma = inside.rfind(',');
    line.writer = comma == std::string_view::npos ? inside : inside.substr(comma + 1);
  } else if (!pid.empty() && line.writer.empty()) {
    line.writer = inside.substr(inside.find("pid="));
    line.writer = line.writer.substr(0, line.writer.find_first_not_of(kLogDigits, 4));
  }
  return end;
}

/// `file.cc:479] ` of TensorFlow and XLA.
std::size_t place_size(std::string_view text) {
  const auto end = text.find("] ");
  if (end == std::string_view::npos || end > 160) return 0;
  const auto place = text.substr(0, end);
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos || place.find(' ') != std::string_view::npos) return 0;
  return place.substr(colon + 1).find_first_not_of(kLogDigits) == std::string_view::npos ? end + 2
                                                                                         : 0;
}

/// `Nov 28 09:36:42 host program[12]: ` of the journal.
std::size_t journal_size(std::string_view text) {
  if (text.size() < 16 || !is_log_upper(text[0]) || text[3] != ' ' || text[6] != ' ') return 0;
  if (time_size(text.substr(7)) != 8) return 0;
  const auto end = text.find("]: ", 15);
  return end != std::string_view::npos && end < 120 ? end + 3 : 15;
}

/// `3: ` of srun --label: the size of the number, 0 if there is none.
std::size_t number_size(std::string_view text) {
  const auto digits = text.find_first_not_of(kLogDigits);
  const bool is_number = digits != std::string_view::npos && digits != 0 && digits <= 5 &&
                         text.substr(digits).starts_with(": ");
  return is_number ? digits : 0;
}

/// `worker-1  | ` of Docker Compose, `3: ` of srun --label.
std::size_t stream_size(std::string_view text, bool is_numbered, LogLine& line) {
  if (const auto digits = is_numbered ? number_size(text) : 0; digits != 0) {
    line.writer = text.substr(0, digits);
    return digits + 1;
  }
  const auto bar = text.find(" | ");
  if (bar == std::string_view::npos || bar == 0 || bar > 40) return 0;
  const auto name = text.substr(0, text.find_last_not_of(' ', bar) + 1);
  if (name.find(' ') != std::string_view::npos || is_log_digit(name.front())) return 0;
  return bar + 3;
}

}  // namespace

LogLine without_prefix(std::string_view text, bool is_numbered) {
  LogLine line;
  while (text.ends_with('\r')) text.remove_suffix(1);
  for (constexpr std::string_view kBar = "\xe2\x94\x82";
       text.ends_with(kBar) || text.ends_with(' ');)
    text.remove_suffix(text.ends_with(' ') ? 1 : kBar.size());
  for (unsigned parts = 0; parts < 12; ++parts) {
    text = skip_log_spaces(text);
    std::size_t size = 0;
    if (text.starts_with("\xe2\x94\x82") || text.starts_with("\xe2\x95\xad") ||
        text.starts_with("\xe2\x95\xb0")) {
      size = 3;
    } else if (text.starts_with("> ") || text.starts_with("| ") || text.starts_with("- ")) {
      size = 1;
    } else {
      size = time_size(text);
      if (size != 0 && size < text.size() && text[size] == ':') ++size;
      if (size == 0) size = glog_size(text);
      if (size == 0) size = label_size(text, line);
      if (size == 0) size = level_size(text);
      // TensorRT's "[E] 2: [" has the number of an error.
      if (text.starts_with("[E]")) is_numbered = false;
      if (size == 0) size = place_size(text);
      if (size == 0) size = journal_size(text);
      if (size == 0) size = stream_size(text, is_numbered, line);
    }
    if (size == 0) break;
    text.remove_prefix(size);
  }
  line.text = skip_log_spaces(text);
  return line;
}

/// Answers whether no word is near the text, which follows what was looked at.
bool LogLines::is_far(std::string_view text) {
  // A word may begin in the text before.
  constexpr std::size_t kSeam = 64;
  const auto seam = passes_
                        ? std::string(near_.substr(near_.size() - std::min(kSeam, near_.size())))
                              .append(text.substr(0, kSeam))
                        : std::string();
  if (words_->is_in(text) || words_->is_in(seam)) {
    near_until_ = read_ + text.size() + kLogNear;
    return false;
  }
  return read_ >= std::max<std::uint64_t>(near_until_, kLogWhole);
}

/// Counts lines that are passed over. Keeps the last of them, should a word follow.
void LogLines::pass_over(std::string_view lines) {
  if (!passes_) {
    ++gaps_;
    near_.clear();
  }
  passes_ = true;
  near_ += lines;
  if (near_.size() <= kLogNear) return;
  const auto end = near_.find('\n', near_.size() - kLogNear);
  // A longer line is kept from its end.
  const auto passed =
      std::string_view(near_).substr(0, end == near_.npos ? near_.size() - kLogNear : end + 1);
  for (std::size_t at = 0; (at = passed.find('\n', at)) != passed.npos; ++at) ++number_;
  near_.erase(0, passed.size());
}

Result<bool> LogLines::more(bool at_line_begin) {
  while (chunk_.empty()) {
    if (rest_.empty()) {
      if (!ended_) {
        auto next = source_.next();
        if (!next) return std::move(next).error();
        rest_ = *next;
        ended_ = rest_.empty();
      }
      if (ended_) {
        // What was passed over last may end without a line end, and no word is near it.
        chunk_ = std::exchange(passes_, false) ? std::string_view(near_) : std::string_view();
        return !chunk_.empty();
      }
    }
    auto part = rest_;
    if (words_ != nullptr) {
      // Lines are passed over whole.
      if (!at_line_begin && !passes_)
        part = part.substr(0, std::min(part.find('\n'), part.size() - 1) + 1);
      else
        part = part.substr(0, kLogNear);
    }
    rest_.remove_prefix(part.size());
    const bool is_far = words_ != nullptr && this->is_far(part) && (at_line_begin || passes_);
    read_ += part.size();
    if (is_far) {
      pass_over(part);
      continue;
    }
    if (std::exchange(passes_, false)) {
      near_ += part;
      chunk_ = near_;
    } else {
      chunk_ = part;
    }
  }
  return true;
}

namespace {

/// Does the text begin with `[rank3]:`?
bool is_rank_label(std::string_view text) {
  constexpr std::string_view kRank = "[rank";
  if (!text.starts_with(kRank)) return false;
  const auto end = text.find_first_not_of(kLogDigits, kRank.size());
  return end != std::string_view::npos && end != kRank.size() && text.substr(end).starts_with("]:");
}

}  // namespace

/// Cleans one line, or a part of one.
void LogLines::take(std::string_view raw, bool goes_on) {
  clean_.clear();
  parts_.clear();
  part_ = 0;
  if (!continued_) writer_.clear();
  const bool json = raw.find("\\n") != std::string_view::npos;
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const auto c = raw[i];
    if (c == '\0') {
      is_binary_ = true;
      continue;
    }
    const bool escape = c == '\x1b' || (c == '\\' && raw.substr(i).starts_with("\\u001b")) ||
                        (c == '\\' && raw.substr(i).starts_with("\\x1b"));
    if (escape) {
      i += c == '\x1b' ? 1 : raw[i + 1] == 'u' ? 6 : 4;
      if (i < raw.size() && raw[i] == '[') {  // a control sequence ends at a letter
        for (++i; i < raw.size() && (raw[i] < '@' || raw[i] > '~');) ++i;
      } else if (i < raw.size() && raw[i] == ']') {  // a title ends at BEL
        while (i < raw.size() && raw[i] != '\a') ++i;
      }
      continue;
    }
    // Ranks that write at once leave their labels inside of lines.
    if (c == '[' && i != 0 && is_rank_label(raw.substr(i))) ends.push_back(clean_.size());
    if (c == '\r' && i + 1 < raw.size()) {
      clean_ += ' ';  // a progress bar writes over its line
      continue;
    }
    if (json && c == '\\') {
      auto behind = i;
      while (behind < raw.size() && raw[behind] == '\\') ++behind;
      const auto what = behind < raw.size() ? raw[behind] : '\0';
      if (what == 'n' || what == 'r') {
        ends.push_back(clean_.size());
        i = behind;
        continue;
      }
      if (what == 't') {
        clean_ += ' ';
        i = behind;
        continue;
      }
      if (what == '"' || what == '\'') {
        clean_ += what;
        i = behind;
        continue;
      }
    }
    clean_ += c;
  }
  ends.push_back(clean_.size());
  std::size_t begin = 0;
  for (const auto end : ends) {
    parts_.push_back(std::string_view(clean_).substr(begin, end - begin));
    begin = end;
  }
  continued_ = goes_on;
}

Result<bool> LogLines::next(LogLine& line) {
  for (;;) {
    if (part_ < parts_.size()) {
      const bool first = part_ == 0;
      line = without_prefix(parts_[part_], is_numbered_);
      // srun pads its numbers to one width.
      if (first) is_numbered_ = number_size(skip_log_spaces(parts_[part_])) != 0;
      ++part_;
      if (line.writer.empty()) {
        if (!first || parts_.size() == 1) line.writer = writer_;
      } else {
        writer_ = line.writer;
        line.writer = writer_;
      }
      return true;
    }
    raw_.clear();
    bool goes_on = false;
    bool any = false;
    for (;;) {
      auto left = more(raw_.empty() && !continued_);
      if (!left) return std::move(left).error();
      if (!*left) break;
      any = true;
      const auto room = kLogPartBytes - raw_.size();
      const auto end = chunk_.substr(0, room).find('\n');
      const auto size = std::min(end, std::min(room, chunk_.size()));
      raw_.append(chunk_.substr(0, size));
      chunk_.remove_prefix(
          std::min(chunk_.size(), end == std::string_view::npos ? size : size + 1));
      if (end != std::string_view::npos) break;
      if (raw_.size() == kLogPartBytes) {
        goes_on = true;
        break;
      }
    }
    if (!any) return false;
    if (!continued_) ++number_;
    take(raw_, goes_on);
  }
}

}  // namespace emm::format
