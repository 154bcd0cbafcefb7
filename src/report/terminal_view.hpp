#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/lifetimes.hpp"
#include "inspect/recording.hpp"

namespace emm::report {

/// A recording in a terminal: the curve of live and reserved bytes, what is live after the event at
/// the cursor, and where it lies. Knows what to show and which keys move it, and nothing of the
/// terminal. The recording and its lifetimes must outlive it.
class TerminalView {
 public:
  struct Look {
    std::size_t columns = 80, rows = 24;
    bool blocks = true;   ///< Unicode's block elements; else ASCII.
    bool colour = false;  ///< The terminal's own colours.
  };

  TerminalView(const inspect::Recording& recording, const inspect::Lifetimes& lifetimes);

  std::uint32_t cursor() const noexcept { return cursor_; }
  void set_cursor(std::uint32_t event) noexcept;  ///< Moves what is shown so that it is in it.
  /// What a terminal sends for a key: "q", "\x1b[C" (Right). False where the key ends the view; a
  /// key that means nothing changes nothing.
  bool press(std::string_view key);
  /// The screen: `look.rows` lines at most, each of `look.columns` columns at most, with a line's
  /// end behind each.
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
  const inspect::Lifetimes& lifetimes_;
  std::vector<std::uint64_t> live_, reserved_;  // after each event
  std::vector<std::uint32_t> failures_;
  std::uint32_t peak_ = 0, cursor_ = 0;
  std::uint32_t from_ = 0, to_ = 0;  // the events that are shown
};

}  // namespace emm::report
