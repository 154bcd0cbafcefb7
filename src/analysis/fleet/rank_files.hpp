#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace emm::fleet {

/// Orders names, with numbers compared as numbers: rank2 stands before rank10.
bool stands_before(std::string_view a, std::string_view b) noexcept;

/// Returns the files that arguments mean. A file means itself. A folder means all files in and
/// below it, except hidden ones and those whose names show that they are no recordings; if it has
/// only those, the logs among them. A glob means what it matches. Each file comes once, in the
/// order of stands_before(). Errors: usage, if a folder or a glob has no file. A missing file is
/// left to whoever opens it.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& arguments);

/// The recording of one rank.
struct RankFile {
  std::string path;
  std::string label;                    ///< "3"; "0/3" for host and device.
  std::optional<std::uint64_t> number;  ///< Empty if the name has none.
  std::string
      figures;  ///< A JSON of the same name beside it, with the run's own figures; or empty.
};

/// Recordings whose names differ only in their ranks.
struct RankSet {
  std::string name;  ///< The path with * for the rank.
  std::vector<RankFile> ranks{};
  bool by_rank = false;    ///< The numbers stand after "rank".
  std::uint64_t told = 0;  ///< The number of ranks in the names, as in "3-of-8"; or 0.
  /// Sets of one family have the same ranks, at several steps or times.
  std::size_t family = 0;
};

/// Tells which of the files are of one run, and the rank of each: the number after "rank", the one
/// before "of", the only number in which the names differ, or else all that differ. Times, and
/// numbers after "step" and similar words, are not ranks; they tell several sets of the same ranks
/// apart. If machines count their ranks from 0, the label names the machine too: "node1/3".
std::vector<RankSet> sets_of(const std::vector<std::string>& files);

/// Returns the ranks that have no file: gaps in the numbers, and those up to `world` unless it is
/// 0, which means unknown.
std::vector<std::uint64_t> missing_of(const RankSet& set, std::uint64_t world);
/// Returns missing labels such as "1/3": what some machines have and others lack.
std::vector<std::string> missing_places_of(const RankSet& set);

}  // namespace emm::fleet
