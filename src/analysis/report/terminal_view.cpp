#include "report/terminal_view.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "format/columns.hpp"
#include "inspect/address_space.hpp"
#include "inspect/profile.hpp"
#include "inspect/report_parts.hpp"

namespace emm::report {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

constexpr std::uint32_t kLeast = 16;  // fewest events that zooming shows
constexpr std::array<std::string_view, 9> kBlocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 9> kAscii{" ", ".", ".", ":", ":", "|", "|", "#", "#"};
constexpr std::array<std::string_view, 5> kShades{"·", "░", "▒", "▓", "█"};
constexpr std::array<std::string_view, 5> kAsciiShades{".", "-", "=", "%", "#"};
constexpr std::string_view kLiveColour = "\x1b[34m", kReservedColour = "\x1b[33m",
                           kBad = "\x1b[31m", kBold = "\x1b[1m", kInverse = "\x1b[7m",
                           kPlain = "\x1b[0m";

/// The keys, as `?` shows them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kKeys{
    {{"Left Right, h l", "one event back, on"},
     {"Up Down, k j", "a fiftieth of what is shown back, on"},
     {"g G", "to the first event, the last"},
     {"p", "to the peak of what is live"},
     {"f", "to the next failed request"},
     {"+ -", "zoom in, out"},
     {"0", "show all events"},
     {"?", "these keys; any key leaves them"},
     {"q", "end"}}};

/// Cuts lines that are wider than the terminal.
std::string clipped(std::string_view lines, std::size_t columns) {
  std::string out;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    out += text::head(lines.substr(0, end), columns);
    out += '\n';
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out;
}

/// Writes words in as many lines as they need. Only a word that is wider than a line is cut.
std::string lines_of(std::string_view words, std::size_t columns) {
  return clipped(format::wrapped(words, columns), columns);
}

/// If the screen is too low for a frame, only its beginning is shown.
std::string first_lines(std::string out, std::size_t rows) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < std::max<std::size_t>(rows, 1) && end != out.npos; ++i)
    end = out.find('\n', end == 0 ? 0 : end + 1);
  out.resize(end == out.npos ? out.size() - 1 : end);
  return out;
}

/// The last `columns` characters of a path, which say more than the first.
std::string shortened(const std::string& path, std::size_t columns) {
  const auto shown = text::printable(path, std::string::npos);
  if (shown.size() <= columns || columns < 8) return shown;
  return "..." + std::string(text::tail(shown, columns - 3));
}

}  // namespace

TerminalView::TerminalView(const inspect::Recording& recording, const trace::Lifetimes& lifetimes)
    : recording_(recording), lifetimes_(lifetimes) {
  const auto& trace = recording.trace();
  live_.resize(trace.size());
  reserved_.resize(trace.size());
  std::uint64_t live = 0, reserved = 0;
  const auto change = [&](AllocId id, bool begins) {
    const auto& each = lifetimes[id];
    if (each.what != MemoryKind::device && each.what != MemoryKind::backing) return;
    auto& sum = each.what == MemoryKind::device ? live : reserved;
    sum = begins ? sum + each.size : sum - each.size;
  };
  const auto first_moment = static_cast<std::uint32_t>(trace.first_moment());
  peak_ = first_moment;
  lifetimes.walk_moments([&](std::uint32_t, AllocId id) { change(id, true); },
                         [&](std::uint32_t, AllocId id) { change(id, false); },
                         [&](std::uint32_t event) {
                           live_[event] = live;
                           reserved_[event] = reserved;
                           if (event == first_moment) {
                             // What existed before the recording exists at one moment.
                             std::fill_n(live_.begin(), event, live);
                             std::fill_n(reserved_.begin(), event, reserved);
                           }
                           if (live > live_[peak_]) peak_ = event;
                           if (trace::is_refused(trace[event])) failures_.push_back(event);
                         });
  for (std::uint32_t event = 0; event < events(); ++event)
    reserved_[event] = reserved_[recording.with_what_stays(event)];
  to_ = events();
  cursor_ = failures_.empty() ? peak_ : failures_.front();
}

void TerminalView::set_cursor(std::uint32_t event) noexcept {
  cursor_ = std::min(event, events() == 0 ? 0 : events() - 1);
  if (cursor_ >= from_ && cursor_ < to_) return;
  const auto width = to_ - from_;
  from_ = std::min(cursor_ - std::min(cursor_, width / 2), events() - width);
  to_ = from_ + width;
}

void TerminalView::move(std::int64_t by) {
  const auto at = std::clamp<std::int64_t>(std::int64_t{cursor_} + by, 0,
                                           std::max<std::int64_t>(std::int64_t{events()} - 1, 0));
  set_cursor(static_cast<std::uint32_t>(at));
}

void TerminalView::zoom(double factor) {
  const auto wanted = static_cast<std::uint32_t>(static_cast<double>(to_ - from_) * factor);
  const auto width = std::clamp(wanted, std::min(kLeast, events()), events());
  from_ = std::min(cursor_ - std::min(cursor_, width / 2), events() - width);
  to_ = from_ + width;
}

bool TerminalView::press(std::string_view key) {
  if (keys_shown_) {
    keys_shown_ = false;
    return key != "\x03" && key != "\x04";
  }
  if (key == "?") keys_shown_ = true;
  if (key == "q" || key == "\x03" || key == "\x04" || key == "\x1b") return false;
  if (events() == 0) return true;
  const auto part = std::max<std::int64_t>((to_ - from_) / 50, 1);
  if (key == "\x1b[C" || key == "l") move(1);
  if (key == "\x1b[D" || key == "h") move(-1);
  if (key == "\x1b[A" || key == "k" || key == "\x1b[5~") move(-part);
  if (key == "\x1b[B" || key == "j" || key == "\x1b[6~") move(part);
  if (key == "\x1b[H" || key == "g") set_cursor(0);
  if (key == "\x1b[F" || key == "G") set_cursor(events() - 1);
  if (key == "p") set_cursor(peak_);
  if (key == "f" && !failures_.empty()) {
    const auto next = std::upper_bound(failures_.begin(), failures_.end(), cursor_);
    set_cursor(next == failures_.end() ? failures_.front() : *next);
  }
  if (key == "+" || key == "=") zoom(0.5);
  if (key == "-") zoom(2);
  if (key == "0") {
    from_ = 0;
    to_ = events();
  }
  return true;
}

std::vector<TerminalView::Column> TerminalView::columns(std::size_t count) const {
  std::vector<Column> out(count);
  const std::uint64_t width = to_ - from_;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = from_ + static_cast<std::uint32_t>(width * i / count);
    const auto last =
        std::max(first + 1, from_ + static_cast<std::uint32_t>(width * (i + 1) / count));
    for (auto event = first; event < last && event < events(); ++event) {
      out[i].live = std::max(out[i].live, live_[event]);
      out[i].reserved = std::max(out[i].reserved, reserved_[event]);
    }
  }
  return out;
}

void TerminalView::draw_curve(std::string& out, const Look& look, std::size_t height) const {
  constexpr std::size_t kScale = 11;  // columns of the scale beside the curve
  const auto width = look.columns > kScale + 10 ? look.columns - kScale : look.columns;
  const auto margin = look.columns - width;
  const auto shown = columns(width);
  std::uint64_t most = 1;
  for (const auto& column : shown) most = std::max({most, column.live, column.reserved});
  const auto marked = static_cast<std::size_t>(std::uint64_t{cursor_ - from_} * width /
                                               std::max<std::uint64_t>(to_ - from_, 1));
  std::vector<bool> failed(width);
  for (const auto event : failures_) {
    if (event >= from_ && event < to_)
      failed[static_cast<std::size_t>(std::uint64_t{event - from_} * width / (to_ - from_))] = true;
  }
  const auto eighths = [&](std::uint64_t bytes) {
    return static_cast<std::size_t>(static_cast<double>(bytes) / static_cast<double>(most) *
                                    static_cast<double>(8 * height));
  };
  for (std::size_t line = 0; line < height; ++line) {
    const auto below = 8 * (height - 1 - line);
    auto name = line == 0            ? units::bytes(most)
                : line == height / 2 ? units::bytes(most / height * (height - line))
                : line == height - 1 ? std::string("0 B")
                                     : std::string();
    if (margin != 0)
      out += std::string(margin - 1 - std::min(margin - 1, name.size()), ' ') + name + ' ';
    for (std::size_t i = 0; i < width; ++i) {
      const auto live = eighths(shown[i].live), reserved = eighths(shown[i].reserved);
      const auto level = live <= below ? 0 : std::min<std::size_t>(live - below, 8);
      const bool edge = reserved > live && reserved > below && reserved <= below + 8 && level < 8;
      std::string_view cell = (look.blocks ? kBlocks : kAscii).at(level);
      if (edge && level == 0) cell = look.blocks ? "─" : "-";
      if (line == 0 && failed[i]) cell = look.blocks ? "▼" : "v";
      if (i == marked && level == 0 && !edge) cell = look.blocks ? "│" : "|";
      if (look.colour) {
        out += i == marked ? kInverse : "";
        out += line == 0 && failed[i] ? kBad : edge && level == 0 ? kReservedColour : kLiveColour;
      }
      out += cell;
      if (look.colour) out += kPlain;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
}

void TerminalView::draw_sites(std::string& out, const Look& look, std::size_t height) const {
  const auto held = inspect::held_after(lifetimes_, cursor_);
  const auto& trace = recording_.trace();
  const auto sites = inspect::shown_sites(trace, held.by_site, {.frames = 1});
  const bool sited =
      sites.all.size() > 1 || (!sites.all.empty() && index(sites.all.front().site) != 0);
  const auto line = [&](std::uint64_t bytes, std::uint64_t count, const std::string& name) {
    auto size = units::bytes(bytes), many = text::grouped(count);
    const auto row = text::format(
        "{}{} {}{}  {}\n", std::string(11 - std::min<std::size_t>(size.size(), 11), ' '), size,
        std::string(9 - std::min<std::size_t>(many.size(), 9), ' '), many, name);
    out += clipped(row, look.columns);
  };
  constexpr std::size_t kBefore = 23;  // columns of bytes and count
  for (std::size_t i = 0; i < height; ++i) {
    if (sited && i < sites.all.size()) {
      line(sites.all[i].bytes, sites.all[i].count,
           inspect::site_name(trace, sites.all[i].site,
                              look.columns > kBefore + 20 ? look.columns - kBefore : 20));
    } else if (!sited && i < held.by_size.size()) {
      const auto& size = held.by_size[i];
      const auto full = text::format("of {}", inspect::bytes_in_full(size.key));
      line(size.bytes, size.count,
           full.size() + kBefore <= look.columns ? full
                                                 : text::format("of {}", units::bytes(size.key)));
    }
  }
}

void TerminalView::draw_map(std::string& out, const Look& look, std::size_t height) const {
  const auto space = inspect::address_space_after(recording_, lifetimes_, cursor_);
  if (!space) {
    out += lines_of("the trace has no address of what is live then", look.columns);
    return;
  }
  auto words = text::format(
      "{} in {}: {} used, {} free, largest {}", units::bytes(space->size),
      inspect::counted(space->regions.size(), space->segments ? "segment" : "run"),
      units::bytes(space->used), units::bytes(space->free), units::bytes(space->largest_free));
  if (space->pending != 0) words += text::format(", {} waiting", units::bytes(space->pending));
  const auto told = lines_of(words, look.columns);
  out += told;
  const auto lines = static_cast<std::size_t>(std::count(told.begin(), told.end(), '\n'));
  if (height <= lines || space->size == 0) return;
  // The regions are laid end to end, so every cell stands for the same number of bytes.
  const auto cells = look.columns * (height - lines);
  const auto cell_bytes = static_cast<double>(space->size) / static_cast<double>(cells);
  std::vector<double> taken(cells);
  double begin = 0;
  for (const auto& region : space->regions) {
    for (const auto& block : region.blocks) {
      auto at = (begin + static_cast<double>(block.address - region.address)) / cell_bytes;
      const auto end = at + static_cast<double>(block.size) / cell_bytes;
      while (at < end) {
        const auto cell = std::min(static_cast<std::size_t>(at), cells - 1);
        const auto next = std::min(end, static_cast<double>(cell + 1));
        taken[cell] += next - at;
        if (next <= at) break;
        at = next;
      }
    }
    begin += static_cast<double>(region.size);
  }
  for (std::size_t i = 0; i < cells; ++i) {
    // A partly free cell never looks full or empty.
    const auto level = taken[i] >= 0.9995 ? 4u
                       : taken[i] <= 0.0005
                           ? 0u
                           : std::clamp(static_cast<unsigned>(taken[i] * 4), 1u, 3u);
    if (look.colour) out += level == 0 ? kPlain : kLiveColour;
    out += (look.blocks ? kShades : kAsciiShades).at(level);
    if ((i + 1) % look.columns == 0) {
      if (look.colour) out += kPlain;
      out += '\n';
    }
  }
}

std::string TerminalView::frame(const Look& look) const {
  const auto& trace = recording_.trace();
  std::string out;
  const auto put = [&](std::string lines, bool bold = false) {
    if (look.colour && bold) {
      lines.insert(lines.size() - 1, kPlain);
      lines.insert(0, kBold);
    }
    out += lines;
  };
  const auto count = ": " + inspect::counted(events(), "event");
  const auto room = look.columns - std::min(look.columns, count.size());
  put(lines_of(shortened(trace.source(), room) + count, look.columns), true);
  if (keys_shown_) {
    constexpr std::size_t kKeyWidth = 17;  // columns of the keys' names
    for (const auto& [key, what] : kKeys)
      out += clipped(text::format("{}{}{}\n", key, std::string(kKeyWidth - key.size(), ' '), what),
                     look.columns);
    return first_lines(std::move(out), look.rows);
  }
  if (events() == 0) return out;
  const auto range =
      lines_of(text::format("events {} to {}; live at most {}{}", text::grouped(from_),
                            text::grouped(to_ - 1), units::bytes(live_[peak_]),
                            failures_.empty()
                                ? std::string()
                                : "; " + inspect::counted(failures_.size(), "request") + " failed"),
               look.columns);
  auto words = inspect::place_of(trace, cursor_) + ": live " + units::bytes(live_[cursor_]);
  if (reserved_[cursor_] != 0) words += ", reserved " + units::bytes(reserved_[cursor_]);
  if (std::binary_search(failures_.begin(), failures_.end(), cursor_))
    words += text::format("; {} refused", units::bytes(trace[cursor_].size));
  const auto now = lines_of(words, look.columns);
  const auto keys = lines_of("?: keys  arrows: move  p: peak  f: failure  q: end", look.columns);
  std::size_t told = 1;
  for (const auto* lines : {&range, &now, &keys})
    told += static_cast<std::size_t>(std::count(lines->begin(), lines->end(), '\n'));
  const auto body = look.rows > told + 8 ? look.rows - told : 8;
  const auto curve = std::max<std::size_t>(body * 2 / 5, 3),
             sites = std::max<std::size_t>(body * 3 / 10, 2);
  draw_curve(out, look, curve);
  put(range);
  put(now, true);
  draw_sites(out, look, sites);
  draw_map(out, look, body > curve + sites ? body - curve - sites : 2);
  put(keys);
  return first_lines(std::move(out), look.rows);
}

}  // namespace emm::report
