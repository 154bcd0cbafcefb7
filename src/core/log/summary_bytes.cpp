#include "log/summary_bytes.hpp"

#include <cstring>
#include <deque>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

namespace emm::log {
namespace {

// Lists the members of each struct once, for both packing and unpacking: where EMM_MEMBERS_OF does
// not.
template <class T>
constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Pass> ||
                        std::is_same_v<T, Percentiles> || std::is_same_v<T, FourWay> ||
                        std::is_same_v<T, Flush> || std::is_same_v<T, CoursePoint>;
template <class T>
constexpr bool kPair = false;
template <class A, class B>
constexpr bool kPair<std::pair<A, B>> = true;

auto members(auto& of) {
  using T = std::remove_cvref_t<decltype(of)>;
  if constexpr (kPair<T>) {
    return std::tie(of.first, of.second);
  } else if constexpr (std::is_same_v<T, Holder>) {
    return std::tie(of.id, of.size, of.line, of.frames);
  } else if constexpr (std::is_same_v<T, NamedStatistic>) {
    return std::tie(of.name, of.value);
  } else if constexpr (Listed<T>) {
    return std::apply([&](const auto&... each) { return std::tie(of.*each.at...); },
                      members_of(&of));
  } else {
    static_assert(std::is_same_v<T, Summary>);
    return std::tie(of.trace, of.manager, of.device, of.clock, of.pass, of.repeats,
                    of.alloc_latency, of.free_latency, of.lateness, of.threads, of.first_failure,
                    of.outcomes, of.refused_again, of.peak_reserved_by_device, of.course,
                    of.flushes, of.recorded_flushes, of.violations, of.violation_count, of.declined,
                    of.statistics, of.skipped, of.notes, of.reports, of.interrupted, of.stopped_at,
                    of.stop_state, of.leaks, of.abnormal);
  }
}

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    if constexpr (kPlain<T>) {
      static_assert(std::is_trivially_copyable_v<T>);
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      std::apply([&](const auto&... member) { (put(member), ...); }, members(value));
    }
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(std::string_view text) {
    put(std::uint64_t{text.size()});
    out.append(text);
  }
  template <class T>
  void put(const std::vector<T>& all) {
    put(std::uint64_t{all.size()});
    for (const auto& one : all) put(one);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }

  std::string out;
};

/// Keeps text until the process ends. The names of statistics are views, which referred to literals
/// in the other process.
std::string_view kept(std::string_view text) {
  static std::mutex mutex;
  static std::deque<std::string> all;
  const std::lock_guard lock(mutex);
  for (const auto& known : all) {
    if (known == text) return known;
  }
  return all.emplace_back(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  void take(T& value) {
    if constexpr (kPlain<T>) {
      const auto bytes = some(sizeof value);
      if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    } else {
      std::apply([&](auto&... member) { (take(member), ...); }, members(value));
    }
  }
  void take(std::string& text) { text = some(size()); }
  void take(std::string_view& text) { text = kept(some(size())); }
  template <class T>
  void take(std::vector<T>& all) {
    for (auto left = size(); left > 0 && whole_; --left) take(all.emplace_back());
  }
  template <class T>
  void take(std::optional<T>& value) {
    if (some(1) == std::string_view("\1", 1)) take(value.emplace());
  }
  bool whole() const noexcept { return whole_ && rest_.empty(); }

 private:
  std::uint64_t size() {
    std::uint64_t value = 0;
    take(value);
    return value;
  }
  std::string_view some(std::uint64_t size) {
    whole_ = whole_ && size <= rest_.size();
    const auto found = rest_.substr(0, whole_ ? static_cast<std::size_t>(size) : 0);
    rest_.remove_prefix(found.size());
    return found;
  }

  std::string_view rest_;
  bool whole_ = true;
};

}  // namespace

std::string to_bytes(const Summary& summary) {
  Writer writer;
  writer.put(summary);
  return std::move(writer.out);
}

std::optional<Summary> summary_from_bytes(std::string_view bytes) {
  Summary summary;
  Reader reader(bytes);
  reader.take(summary);
  if (!reader.whole()) return std::nullopt;
  return summary;
}

}  // namespace emm::log
