#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "message/figure.hpp"
#include "message/wording.hpp"

namespace emm::message {

/// What a process holds of the device, as a message lists it.
struct Process {
  std::uint64_t pid = 0;
  Figure held;
};

/// The chunks of a BFC allocator, as its dump lists them.
struct Chunks {
  std::uint64_t in_use = 0, free = 0;  ///< Counts.
  std::uint64_t in_use_bytes = 0, free_bytes = 0, largest_free = 0;
  std::vector<std::uint64_t> largest;  ///< The sizes of the largest free chunks, falling.
};

/// One out-of-memory message, with what it tells.
struct Message {
  const Wording* wording = nullptr;
  std::string writer{};    ///< The rank or the process, as the line's prefix says.
  std::uint64_t line = 0;  ///< Where it begins, from 1.
  std::optional<std::uint32_t> device{};
  std::array<std::optional<Figure>, kFigures> figures{};
  std::vector<Process> processes{};
  std::optional<Chunks> chunks{};
  bool beyond_any = false;    ///< "more than 1EB": no device has that.
  std::uint64_t printed = 1;  ///< How often the log has it.
  std::string text{};         ///< Its first line.

  const std::optional<Figure>& operator[](Meaning what) const noexcept {
    return figures[static_cast<std::size_t>(what)];
  }
  std::optional<Range> bytes(Meaning what) const noexcept {
    const auto& figure = (*this)[what];
    return figure ? std::optional(figure->bytes) : std::nullopt;
  }
  bool has_figures() const noexcept;
};

/// What a log has of such messages.
struct Messages {
  std::vector<Message> all;  ///< Each failure once, in the order of the log; the first kMost.
  std::uint64_t count = 0;   ///< Failures, also those beyond kMost.
  std::map<std::string, std::uint64_t> by_writer;
  std::uint64_t not_failures = 0;  ///< A library asked, was refused, and went on without.
  std::uint64_t lines = 0;
  bool is_binary = false;
};
inline constexpr std::size_t kMost = 256;  // messages that are kept; all are counted

/// Finds the out-of-memory messages in a text of any length, in bounded memory. What lines have in
/// front of them, colours, escapes of JSON, and line ends inside of a message do not matter.
/// `progress`, if given, is called now and then.
Result<Messages> find_messages(format::ByteSource& source,
                               const std::function<void()>& progress = {});

}  // namespace emm::message
