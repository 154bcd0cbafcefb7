#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/members.hpp"
#include "base/result.hpp"
#include "format/brief.hpp"
#include "format/byte_source.hpp"

namespace emm::inspect {

/// A value of which a file tells digits only up to some place: it is `low`, `high` or between.
struct Stated {
  std::uint64_t low = 0, high = 0;
  static constexpr Stated exactly(std::uint64_t value) noexcept { return {value, value}; }
  bool operator==(const Stated&) const = default;
};
/// The differences that are possible, none below 0.
Stated minus(Stated from, Stated what) noexcept;

/// One number that a program stated about itself.
struct Figure {
  enum class Unit : std::uint8_t { bytes, count };
  std::string name;               ///< "reserved"
  std::optional<Stated> value{};  ///< Nothing: the file does not tell it.
  Unit unit = Unit::bytes;
  bool operator==(const Figure&) const = default;
};

/// What is stated of one device or one process.
struct FigureGroup {
  std::string name;  ///< "device 0"
  std::vector<Figure> figures{};
  bool operator==(const FigureGroup&) const = default;
};

/// A part of memory that has a name: of a call site, a process.
struct StatisticsRow {
  std::string name;
  std::uint64_t bytes = 0, count = 0;
};
EMM_MEMBERS_OF(StatisticsRow, name, bytes, count)

/// The answer for a file that has figures and no events, so that nothing of it can be walked or
/// replayed: what it states, what that means, and what it cannot tell.
struct Statistics {
  std::string what{};  ///< "torch.cuda.memory_summary()"
  std::vector<FigureGroup> groups{};
  std::string rows_title{};
  std::vector<StatisticsRow> rows{};   ///< The greatest first.
  std::vector<std::string> reading{};  ///< Sentences: the answer.
  std::vector<std::string> unknown{};  ///< What the file cannot tell.
  std::vector<std::string> next{};     ///< What to do or record to know more.
};

/// One format of such files.
struct StatisticsReader {
  std::string_view name, summary;
  /// The figures stand in a log, whose other lines may tell of a failure.
  bool is_amid_text = false;
  /// Confidence, 0 to 100, that a file with this beginning, of at most 64 KiB, has the format.
  int (*sniff)(std::string_view prefix);
  Result<Statistics> (*read)(format::ByteSource& source);
};
std::span<const StatisticsReader* const> statistics_readers();

/// The reader with the highest confidence; null if there is none. Consumes nothing.
Result<const StatisticsReader*> detect_statistics(format::ByteSource& source);

/// Rows of `after` less those of `before` by name, the greatest growth first, and the figures of
/// `after`.
struct Growing {
  std::string name;
  std::uint64_t before = 0, after = 0;
};
std::vector<Growing> growth_of(const Statistics& before, const Statistics& after);

/// Says in one breath what a file of statistics tells.
format::Brief brief(const Statistics& statistics, const std::string& file);
/// Text for a terminal of 80 columns, and JSON (emmctl.statistics/1, and emmctl.grown/1 of two
/// files).
std::string to_text(const Statistics& statistics, const std::string& file, std::size_t top);
std::string to_json(const Statistics& statistics, const StatisticsReader& reader,
                    const std::string& file);
std::string to_json(const std::vector<Growing>& growing, const StatisticsReader& reader,
                    const std::string& before, const std::string& after);
std::string to_text(const std::vector<Growing>& growing, const std::string& before,
                    const std::string& after, std::size_t top);

}  // namespace emm::inspect
