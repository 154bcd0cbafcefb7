#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/recording.hpp"
#include "trace/lifetimes.hpp"

namespace emm::report {

/// A view of a recording for a terminal: the curve of live and reserved bytes, the memory that is
/// live after the event at the cursor, and where it lies. It decides what to show and which keys
/// move it; it does not access the terminal. The recording and its lifetimes must outlive it.
class TerminalView {
 public:
  struct Look {
    std::size_t columns = 80, rows = 24;
    bool blocks = true;   ///< Unicode's block elements; otherwise ASCII.
    bool colour = false;  ///< The terminal's own colours.
  };

  TerminalView(const inspect::Recording& recording, const trace::Lifetimes& lifetimes);

  std::uint32_t cursor() const noexcept { return cursor_; }
  void set_cursor(std::uint32_t event) noexcept;  ///< Scrolls to show the event.
  /// Handles a key as a terminal sends it: "q", "\x1b[C" (Right). Returns false if the key ends the
  /// view. An unknown key changes nothing.
  bool press(std::string_view key);
  /// The screen: at most `look.rows` lines of at most `look.columns` columns, each with a newline.
  std::string frame(const Look& look) const;

 private:
  struct Column {
    std::uint64_t live = 0, reserved = 0;
  };
  std::uint32_t events() const noexcept { return static_cast<std::uint32_t>(live_.size()); }
  std::vector<Column> columns(std::size_t count) const;
  void zoom(double factor);
  void move(std::int64_t by);

  void draw_curve(std::string& out, const Look& look, std::size_t height) const;
  void draw_sites(std::string& out, const Look& look, std::size_t height) const;
  void draw_map(std::string& out, const Look& look, std::size_t height) const;

  const inspect::Recording& recording_;
  const trace::Lifetimes& lifetimes_;
  std::vector<std::uint64_t> live_, reserved_;  // after each event
  std::vector<std::uint32_t> failures_;
  std::uint32_t peak_ = 0, cursor_ = 0;
  std::uint32_t from_ = 0, to_ = 0;  // the range of events shown
  bool keys_shown_ = false;
};

}  // namespace emm::report
