#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace emm::fleet {

/// Does `a` stand before `b`? By name, with numbers compared as numbers: rank2 before rank10.
bool stands_before(std::string_view a, std::string_view b) noexcept;

/// The files that arguments mean: a file is itself, a folder all files in it and below but those
/// that are hidden or no recordings by their names, a glob what it matches. In the order of
/// stands_before(), each once. Usage error where a folder or a glob has none. A file that is not
/// there is left to whoever opens it.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& arguments);

/// The recording of one rank.
struct RankFile {
  std::string path;
  std::string label;                    ///< "3"; "0/3" where host and device are told apart.
  std::optional<std::uint64_t> number;  ///< Empty where the name does not tell one.
  std::string
      figures;  ///< A JSON of the same name beside it, with the run's own figures; or empty.
};

/// Recordings whose names differ only in their ranks.
struct RankSet {
  std::string name;  ///< The path with * for the rank.
  std::vector<RankFile> ranks{};
  bool by_rank = false;    ///< The numbers stand after "rank".
  std::uint64_t told = 0;  ///< What the names say of the whole, as "3-of-8"; or 0.
  /// Sets of one family are of the same ranks, at several steps or times.
  std::size_t family = 0;
};

/// Tells which of the files are of one run, and the rank of each: the number after "rank", that
/// before "of", the only number in which the names differ, or else all that differ. Numbers after
/// "step" and its like and times are no ranks, and tell several sets of the same ranks apart.
/// Machines that count their ranks from 0 have their own part in the label: "node1/3".
std::vector<RankSet> sets_of(const std::vector<std::string>& files);

/// The ranks that have no file: gaps in the numbers, and those up to `world` where it is known (0:
/// it is not).
std::vector<std::uint64_t> missing_of(const RankSet& set, std::uint64_t world);
/// The same of labels as "1/3": what some machines have and others have not.
std::vector<std::string> missing_places_of(const RankSet& set);

}  // namespace emm::fleet
