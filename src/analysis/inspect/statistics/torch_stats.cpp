// torch.cuda.memory_stats() as JSON or as a printed dict, flat or nested; and the memory_stats() of
// a device of JAX.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics/torch_figures.hpp"

namespace emm::inspect {
namespace {

using Numbers = std::map<std::string, std::uint64_t, std::less<>>;

/// Finds numbers behind quoted names: `"a.b": 1` of JSON, `'a.b': 1` and `('a.b', 1)` of a printed
/// dict; nested names are joined by points. Whatever else the text has is passed over.
Numbers numbers_of(std::string_view text) {
  Numbers found;
  std::vector<std::string> path;
  std::string name;
  bool named = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const auto end = text.find(c, at + 1);
      if (end == text.npos) break;
      name = text.substr(at + 1, end - at - 1);
      named = true;
      at = end + 1;
      continue;
    }
    if (c == '{') {
      path.push_back(named ? name : "");
      named = false;
    } else if (c == '}') {
      if (!path.empty()) path.pop_back();
    } else if (c >= '0' && c <= '9') {
      const auto end = std::min(text.find_first_not_of("0123456789", at), text.size());
      const auto number = text::to_u64(text.substr(at, end - at));
      if (named && number && (end == text.size() || text[end] != '.')) {
        std::string key;
        for (const auto& part : path) {
          if (!part.empty()) key += part + '.';
        }
        found.emplace(key + name, *number);
      }
      named = false;
      at = end;
      continue;
    } else if (c != ':' && c != ',' && c != ' ' && c != '\n' && c != '\t' && c != '\r') {
      named = named && c == '(' ? named : false;
    }
    ++at;
  }
  return found;
}

/// The number under a name that may be nested in others ("stats.allocated_bytes.all.current").
std::optional<std::uint64_t> stated_number(const Numbers& numbers, std::string_view name) {
  if (const auto found = numbers.find(name); found != numbers.end()) return found->second;
  for (const auto& [key, value] : numbers) {
    if (key.size() > name.size() && key.ends_with(name) && key[key.size() - name.size() - 1] == '.')
      return value;
  }
  return std::nullopt;
}

std::optional<Stated> exact_number(const Numbers& numbers, std::string_view name) {
  const auto found = stated_number(numbers, name);
  return found ? std::optional(Stated::exactly(*found)) : std::nullopt;
}

void add_jax(Statistics& out, const Numbers& numbers) {
  FigureGroup group;
  const auto add = [&](std::string words, std::string_view name) {
    group.figures.push_back({.name = std::move(words), .value = exact_number(numbers, name)});
  };
  add("in use", "bytes_in_use");
  add("peak in use", "peak_bytes_in_use");
  add("limit", "bytes_limit");
  add("pool", "pool_bytes");
  add("largest free block", "largest_free_block_bytes");
  add("largest request ever", "largest_alloc_size");
  const auto used = stated_number(numbers, "bytes_in_use"),
             limit = stated_number(numbers, "bytes_limit");
  const auto largest = stated_number(numbers, "largest_free_block_bytes");
  if (used && limit && *limit >= *used) {
    out.reading.push_back(text::format("{} of {} are in use, {} are free for JAX.",
                                       units::short_bytes(*used), units::short_bytes(*limit),
                                       units::short_bytes(*limit - *used)));
    if (largest && *largest != 0) {
      out.reading.push_back(text::format("The largest free block has {}: a greater request fails.",
                                         units::short_bytes(*largest)));
    }
  }
  out.groups.push_back(std::move(group));
  out.unknown.emplace_back("which code holds the memory: jax.profiler tells it");
  out.next.emplace_back("jax.profiler.save_device_memory_profile(\"memory.prof\")");
  out.next.emplace_back("emmctl explain memory.prof");
}

Result<Statistics> read_stats(format::ByteSource& source) {
  // Bytes; a dictionary of statistics is far smaller.
  constexpr std::size_t kMost = std::size_t{64} << 20;
  std::string all;
  auto some = source.next();
  for (; some && !some->empty() && all.size() < kMost; some = source.next()) all += *some;
  if (!some) return some.error();
  const auto numbers = numbers_of(all);
  Statistics out;
  if (!stated_number(numbers, "allocated_bytes.all.current") &&
      stated_number(numbers, "bytes_in_use")) {
    out.what = "memory_stats() of a device of JAX";
    add_jax(out, numbers);
    return out;
  }
  out.what = "torch.cuda.memory_stats(), exact to the byte";
  TorchFigures of;
  of.allocated = exact_number(numbers, "allocated_bytes.all.current");
  of.allocated_peak = exact_number(numbers, "allocated_bytes.all.peak");
  of.reserved = exact_number(numbers, "reserved_bytes.all.current");
  of.reserved_peak = exact_number(numbers, "reserved_bytes.all.peak");
  of.active = exact_number(numbers, "active_bytes.all.current");
  of.requested = exact_number(numbers, "requested_bytes.all.current");
  of.stuck = exact_number(numbers, "inactive_split_bytes.all.current");
  of.ooms = stated_number(numbers, "num_ooms");
  of.retries = stated_number(numbers, "num_alloc_retries");
  of.segments = stated_number(numbers, "segment.all.current");
  add_torch_figures(out, of);
  add_torch_limits(out);
  return out;
}

int sniff_stats(std::string_view prefix) {
  const auto has = [&](std::string_view words) { return prefix.find(words) != prefix.npos; };
  if (has("allocated_bytes.all.current")) return 85;
  if (has("allocated_bytes") && has("reserved_bytes") && has("current") && has("peak")) return 80;
  return has("bytes_in_use") && has("peak_bytes_in_use") ? 80 : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader torch_stats_statistics{
    .name = "torch-stats",
    .summary = "torch.cuda.memory_stats() as JSON or printed; memory_stats() of a device of JAX",
    .is_amid_text = true,
    .sniff = inspect::sniff_stats,
    .read = inspect::read_stats,
};

}  // namespace emm
