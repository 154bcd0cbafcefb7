#include "cli/console.hpp"

#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/run_files.hpp"
#include "base/sudden_end.hpp"
#include "base/text.hpp"
#include "format/whole_file.hpp"

namespace emm::cli {
namespace {

std::atomic<bool> interrupted_flag{false};
std::atomic<bool> looks_at_flag{false};  // handle_interrupts() was called
std::atomic<int> interrupting{0};

/// How long a command may take to answer with what it has. Some loops look at no flag.
constexpr itimerval kPatience{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 700'000}};

extern "C" void on_interrupt(int signal) {
  int none = 0;
  const bool first = interrupting.compare_exchange_strong(none, signal);
  if (!first || !looks_at_flag) end_suddenly(128 + signal);
  interrupted_flag.store(true, std::memory_order_relaxed);
  setitimer(ITIMER_REAL, &kPatience, nullptr);
}

extern "C" void on_end_of_patience(int) { end_suddenly(128 + interrupting); }

// Does not use SteadyClock: its first use measures for two milliseconds, and this runs at every
// start.
std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

/// Makes lines safe for a terminal. Callers have quoted the newlines in a file's words; this quotes
/// all other control characters, for every command.
std::string shown_lines(std::string_view lines) {
  std::string out;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    out += text::printable(lines.substr(0, end), std::string::npos);
    if (end < lines.size()) out += '\n';
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out;
}

/// The columns of a terminal. Nothing if `descriptor` is not a terminal.
std::optional<std::size_t> columns_of(int descriptor) {
  constexpr std::size_t kLeast = 40;  // no table can be read in less
  winsize size{};
  if (isatty(descriptor) == 0 || ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col < kLeast)
    return std::nullopt;
  return size.ws_col;
}

/// Breaks lines that are too long for a terminal at spaces, where the terminal would break them
/// inside a word. A continuation is indented two columns more than its line.
std::string broken_at_spaces(std::string_view lines, std::size_t columns) {
  std::string out;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    auto line = lines.substr(0, end);
    const auto inset = std::min(line.find_first_not_of(' '), line.size());
    std::size_t before = 0;
    while (true) {
      // Finds the last space that fits. Of a UTF-8 character only the first byte counts.
      std::size_t width = before, space = line.npos, at = 0;
      for (; at < line.size() && width <= columns; ++at) {
        if (line[at] == ' ' && at > inset) space = at;
        width += (static_cast<unsigned char>(line[at]) & 0xc0) != 0x80 ? 1 : 0;
      }
      if (width <= columns || space == line.npos) break;
      out += line.substr(0, space);
      out += '\n';
      line.remove_prefix(std::min(line.find_first_not_of(' ', space), line.size()));
      before = std::min(inset + 2, columns / 2);
      out.append(before, ' ');
    }
    out += line;
    if (end < lines.size()) out += '\n';
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out;
}

/// Is stdout a terminal that accepts colours? https://no-color.org
bool stdout_takes_colours() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && !set("NO_COLOR") && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

/// Colours the words that matter. A verdict follows two spaces; after it comes its number, the next
/// column or the end of the line.
std::string coloured(std::string_view lines) {
  struct Colour {
    std::string_view word, begins;
    bool verdict;
  };
  constexpr std::array<Colour, 4> kColours{{{"FAILED", "\x1b[1;31m", false},
                                            {"worse", "\x1b[31m", true},
                                            {"better", "\x1b[32m", true},
                                            {"inconclusive", "\x1b[33m", true}}};
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::string out;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    const auto rest = lines.substr(at);
    const auto* found = std::find_if(kColours.begin(), kColours.end(), [&](const Colour& each) {
      if (!rest.starts_with(each.word)) return false;
      const auto behind = rest.substr(each.word.size());
      if (!each.verdict)
        return (at == 0 || !is_letter(lines[at - 1])) && (behind.empty() || !is_letter(behind[0]));
      if (at < 2 || lines.substr(at - 2, 2) != "  ") return false;
      return behind.empty() || behind[0] == '\n' || behind.starts_with("  ") ||
             (behind.size() > 1 && behind[0] == ' ' && behind[1] >= '0' && behind[1] <= '9');
    });
    if (found == kColours.end()) {
      out += lines[at];
      continue;
    }
    out += text::format("{}{}\x1b[0m", found->begins, found->word);
    at += found->word.size() - 1;
  }
  return out;
}

}  // namespace

Console::Console(std::string program)
    : program_(std::move(program)),
      started_ns_(now_ns()),
      stderr_is_terminal_(isatty(STDERR_FILENO) != 0) {}

void Console::result(std::string_view text) {
  auto shown = shown_lines(text);
  if (const auto columns = columns_of(STDOUT_FILENO)) shown = broken_at_spaces(shown, *columns);
  if (stdout_takes_colours()) shown = coloured(shown);
  end_progress();
  note_write(std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size());
}

/// Saves errno at once, since stdio does not keep why a write failed.
void Console::note_write(bool whole) noexcept {
  if (!whole && stdout_failed_ == 0) stdout_failed_ = errno;
}

void Console::say(std::string_view words) {
  end_progress();
  // enough for paths and lists of names, but not for a line of a damaged file
  constexpr std::size_t kLong = 4000;
  auto line = text::format("emmctl: {}\n", text::printable(words, kLong));
  if (const auto columns = columns_of(STDERR_FILENO)) line = broken_at_spaces(line, *columns);
  note_write(std::fflush(stdout) == 0);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Console::aside(std::string_view lines) {
  if (lines.empty()) return;
  end_progress();
  note_write(std::fflush(stdout) == 0);
  auto shown = shown_lines(lines);
  if (!shown.ends_with('\n')) shown += '\n';
  if (const auto columns = columns_of(STDERR_FILENO)) shown = broken_at_spaces(shown, *columns);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

Status Console::finish() {
  end_progress();
  note_write(std::fflush(stdout) == 0);
  if (stdout_failed_ != 0) {
    return fail(Errc::io_error, "cannot write {}: {}", "<stdout>", std::strerror(stdout_failed_));
  }
  return {};
}

void Console::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  constexpr std::uint64_t kSecond = 1'000'000'000;  // in ns; what is over sooner shows no progress
  if (!stderr_is_terminal_) return;
  const auto now = now_ns();
  if (what != counted_) {
    counted_ = what;
    counted_ns_ = now;
  }
  if (now - started_ns_ < kSecond || now - shown_ns_ < kSecond / 10) return;
  shown_ns_ = now;
  const auto seconds = static_cast<double>(now - counted_ns_) / 1e9;
  std::string line;
  if (total > 0) {
    const auto part = static_cast<double>(done) / static_cast<double>(total);
    const auto left = part > 0 ? seconds / part - seconds : 0;
    line = text::format("{}: {} of {}, {} %, {} s left", what, text::grouped(done),
                        text::grouped(total), text::fixed(100 * part, 0), text::fixed(left, 0));
  } else {
    line = text::format("{}: {}, {} s", what, text::grouped(done), text::fixed(seconds, 0));
  }
  overwrite(line);
}

void Console::step(std::string_view what) {
  constexpr std::uint64_t kShort = 200'000'000;  // in ns; nobody waits for less
  if (stderr_is_terminal_ && now_ns() - started_ns_ >= kShort) overwrite(what);
}

void Console::overwrite(std::string_view line) {
  showing_ = true;
  // Only the last line of wrapped text could be overwritten, so it is cut to one line.
  const auto columns = columns_of(STDERR_FILENO).value_or(80) - 1;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
    if (begins && characters++ == columns) line = line.substr(0, i);
  }
  std::fprintf(stderr, "\r%.*s\x1b[K", static_cast<int>(line.size()), line.data());
  std::fflush(stderr);
}

void Console::end_progress() {
  if (!showing_) return;
  showing_ = false;
  std::fputs("\r\x1b[K", stderr);
}

Status Console::write(const std::string& path, std::string_view text, std::string_view who) {
  if (path == "-") {
    if (auto output = run_files::writes(path, who); !output) return output.error();
    end_progress();
    note_write(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
    return {};
  }
  return format::write_whole(path, text, who);
}

int Console::width() const noexcept {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return std::min<int>(size.ws_col, 140);
  return 100;
}

std::atomic<bool>& interrupted() noexcept { return interrupted_flag; }
int interrupting_signal() noexcept { return interrupting.load(std::memory_order_relaxed); }

void obey_signals() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_end_of_patience;
  sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = on_interrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
  }
}

void handle_interrupts() noexcept { looks_at_flag = true; }

void end_in_own_time() noexcept {
  constexpr itimerval kNone{};
  setitimer(ITIMER_REAL, &kNone, nullptr);
}

}  // namespace emm::cli
