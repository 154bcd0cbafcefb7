#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command.hpp"
#include "cli/locale.hpp"
#include "commands/load_recording.hpp"
#include "report/terminal_view.hpp"

namespace emm {
namespace {

using namespace emm::cli;

extern "C" void on_other_size(int) {}  // interrupts the wait for a key

/// A terminal in raw mode with its alternate screen. The destructor restores it.
class WholeScreen {
 public:
  WholeScreen() {
    // SIGWINCH is unblocked only during the wait for a key, so that no change of size is missed.
    sigset_t other_size;
    sigemptyset(&other_size);
    sigaddset(&other_size, SIGWINCH);
    sigprocmask(SIG_BLOCK, &other_size, &listening_);
    sigdelset(&listening_, SIGWINCH);
    struct sigaction action {};
    action.sa_handler = on_other_size;
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, nullptr);
    tcgetattr(STDIN_FILENO, &before_);
    auto raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put("\x1b[?1049h\x1b[?25l");
  }
  ~WholeScreen() {
    put("\x1b[?25h\x1b[?1049l");
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  WholeScreen(const WholeScreen&) = delete;
  WholeScreen& operator=(const WholeScreen&) = delete;

  /// Clears each line before writing it. Clearing after a full line would erase its last character.
  void show(std::string_view frame) {
    const auto last = frame.rfind('\n');
    std::string out = frame.find('\n') == frame.npos ? "\x1b[H\x1b[J" : "\x1b[H\x1b[K";
    for (std::size_t i = 0; i < frame.size(); ++i) {
      if (frame[i] == '\n') {
        out += i == last ? "\r\n\x1b[J" : "\r\n\x1b[K";
      } else {
        out.push_back(frame[i]);
      }
    }
    put(out);
  }
  /// Reads a key as the terminal sends it. Returns an empty string after a signal, such as a change
  /// of size, and nothing if the terminal is gone. Several keys may arrive at once, and over a
  /// network a key may arrive in pieces.
  std::optional<std::string> key() {
    // For the rest of a key that a network sends in pieces.
    constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 250'000'000};
    for (;;) {
      if (const auto size = first_key(typed_); size != 0) {
        auto key = typed_.substr(0, size);
        typed_.erase(0, size);
        return key;
      }
      pollfd more{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      const auto ready = ppoll(&more, 1, typed_.empty() ? nullptr : &kPatience, &listening_);
      if (ready < 0) return errno == EINTR ? std::optional(std::string()) : std::nullopt;
      // A lone escape is the Escape key.
      if (ready == 0) return std::exchange(typed_, {});
      char bytes[64];
      const auto size = read(STDIN_FILENO, bytes, sizeof bytes);
      if (size <= 0) return std::nullopt;
      typed_.append(bytes, static_cast<std::size_t>(size));
    }
  }

 private:
  /// The size of the first key in bytes; 0 if the key is incomplete.
  static std::size_t first_key(std::string_view typed) {
    if (typed.empty() || typed[0] != '\x1b') return typed.empty() ? 0 : 1;
    if (typed.size() == 1) return 0;
    if (typed[1] == 'O') return typed.size() >= 3 ? 3 : 0;
    if (typed[1] != '[') return 1;
    for (std::size_t i = 2; i < typed.size(); ++i) {
      if (typed[i] >= 0x40 && typed[i] <= 0x7e) return i + 1;
    }
    return 0;
  }
  static void put(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto written = write(STDOUT_FILENO, bytes.data(), bytes.size());
      if (written <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  termios before_{};
  sigset_t listening_{};  // signals blocked during the wait for a key
  std::string typed_;
};

class Top final : public CommandRun {
 public:
  explicit Top(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.under(OptionHeading::input)
        .count("--event", event_, "N",
               "Where the cursor begins. Without it, at the first failure, else at the peak");
    arguments.footer(
        "If the output is not a terminal, top prints one screen. Keys: Left and Right move by one "
        "event, Up and Down by a fiftieth of what is shown, g and G to the ends, p to the peak, f "
        "to the next failure; + and - zoom, 0 shows all, ? shows the keys, q ends. NO_COLOR is "
        "heeded.");
  }

  Result<ExitCode> run(Console& console) override {
    auto recording = load_recording(console, trace_);
    if (!recording) return std::move(recording).error();
    const trace::Lifetimes lifetimes(recording->trace());
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    report::TerminalView view(*recording, lifetimes);
    if (event_) {
      if (*event_ >= recording->trace().size()) {
        return fail(Errc::usage, "{}: there is no event {}: expected one below {}", trace_.path,
                    *event_, recording->trace().size());
      }
      view.set_cursor(static_cast<std::uint32_t>(*event_));
    }
    report::TerminalView::Look look{.columns = 80, .rows = 32, .blocks = speaks_utf8()};
    if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
      console.result(view.frame(look) + '\n');
      return ExitCode::fine;
    }
    handle_interrupts();
    const char* plain = std::getenv("NO_COLOR");
    look.colour = plain == nullptr || *plain == '\0';
    WholeScreen screen;
    while (!interrupted()) {
      winsize size{};
      if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        look.columns = size.ws_col;
        look.rows = size.ws_row;
      }
      screen.show(view.frame(look));
      const auto key = screen.key();
      if (!key || !view.press(*key)) break;
    }
    return ExitCode::fine;
  }

 private:
  TraceArgument trace_;
  std::optional<std::uint64_t> event_;
};

}  // namespace

extern constinit const Command top_command{
    "top",
    "Look at a recording in a terminal: the curve, what is live, where it lies",
    false,
    make_run<Top>,
    Heading::look,
    {{{"emmctl top run.jsonl", "Shows the recording; q ends it."},
      {"emmctl top run.jsonl --event 100", "Begins after event 100."}}}};

}  // namespace emm
