#include "inspect/plan.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "bounds/bounds.hpp"
#include "bounds/solve.hpp"
#include "format/columns.hpp"

namespace emm::inspect {
namespace {

using allocators::PoolPlan;
using bounds::Buffer;
using trace::Op;

constexpr double kPlanGap = 0.005;  // half of what a plan may take beyond the peak

constexpr std::uint64_t kBytesMost = std::uint64_t{1} << 50;  // of a stream

/// The requests of one stream, in their order. A moment is the number of requests made before it.
struct Requests {
  PoolPlan::Stream stream;
  std::map<AllocId, std::uint32_t> live;  // by id: its request
};

/// Streams in the order of their first requests. Each context has a pool of its own, and so has
/// streams of its own.
std::vector<PoolPlan::Stream> requests_of(const trace::Lifetimes& lifetimes,
                                          trace::CountedRequests asked) {
  const auto& trace = lifetimes.trace();
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::size_t> numbers;
  std::vector<Requests> all;
  // `made` is a Lifetime or an Event.
  const auto of = [&](const auto& made) -> Requests& {
    const auto& name = trace.streams()[index(made.stream)];
    // CU_STREAM_PER_THREAD is another stream on each thread.
    const auto thread = name == "per_thread" ? index(made.thread) : 0;
    const auto [at, is_new] =
        numbers.try_emplace({index(made.context), index(made.stream), thread}, all.size());
    if (is_new) {
      auto& stream = all.emplace_back().stream;
      stream.device = trace.contexts()[index(made.context)].device;
      stream.name = name;
      stream.is_default = index(made.stream) == 0;
    }
    return all[at->second];
  };
  const auto counts = [&](const trace::Lifetime& lifetime) {
    return lifetime.what == trace::Lifetime::MemoryKind::device && lifetime.size > 0 &&
           lifetime.birth < trace.size() && trace[lifetime.birth].op == Op::memalloc;
  };
  const auto is_full = [](const PoolPlan::Stream& stream) {
    return stream.count() == PoolPlan::kRequestsMost;
  };
  lifetimes.walk(
      [&](std::uint32_t, AllocId id) {
        const auto& lifetime = lifetimes[id];
        if (!counts(lifetime)) return;
        auto& requests = of(lifetime);
        if (is_full(requests.stream)) return;
        requests.live[id] = requests.stream.count();
        requests.stream.sizes.push_back(lifetime.size);
        requests.stream.ends.push_back(PoolPlan::kNever);
      },
      [&](std::uint32_t, AllocId id) {
        const auto& lifetime = lifetimes[id];
        if (!counts(lifetime)) return;
        auto& requests = of(lifetime);
        const auto request = requests.live.find(id);
        if (request == requests.live.end()) return;
        requests.stream.ends[request->second] = requests.stream.count();
        requests.live.erase(request);
      },
      [&](std::uint32_t at) {
        const auto& event = trace[at];
        const bool is_one = asked == trace::CountedRequests::all && trace::is_refused(event) &&
                            event.op == Op::memalloc && event.size > 0;
        if (!is_one) return;
        auto& stream = of(event).stream;
        if (is_full(stream)) return;
        stream.sizes.push_back(event.size);
        stream.ends.push_back(stream.count());
      });
  std::vector<PoolPlan::Stream> streams;
  for (auto& requests : all) {
    requests.stream.period_begin = requests.stream.count();
    streams.push_back(std::move(requests.stream));
  }
  return streams;
}

/// What is to be placed.
struct Places {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<Buffer> buffers;
  std::vector<std::uint32_t> of;  // each request's buffer; kNone where it lies elsewhere
};

Places places_of(const PoolPlan::Stream& stream, std::uint64_t alignment) {
  const auto count = stream.count();
  const auto length = count - stream.period_begin;
  const auto is_carried = [&](std::uint32_t request) {
    return request >= stream.period_begin && request < count && stream.ends[request] > count &&
           !stream.lies_elsewhere(request);
  };
  Places places{.buffers = {}, .of = std::vector<std::uint32_t>(count, Places::kNone)};
  for (std::uint32_t request = 0; request < count; ++request) {
    if (stream.lies_elsewhere(request) || places.of[request] != Places::kNone) continue;
    const auto end = stream.ends[request];
    Buffer buffer{.lower = request,
                  .upper = std::min(end, count),
                  .size = bounds::align_up(stream.sizes[request], alignment)};
    buffer.alignment = alignment;
    places.of[request] = static_cast<std::uint32_t>(places.buffers.size());
    // What a period carries over has its place all the time.
    if (is_carried(request)) buffer.lower = stream.period_begin, buffer.upper = count;
    // What the first period finds there already, of the same request, has that place, too.
    const auto again = std::uint64_t{request} + length;
    if (stream.repeats() && request < stream.period_begin && again < count &&
        is_carried(static_cast<std::uint32_t>(again)) &&
        stream.sizes[request] == stream.sizes[again] && end > stream.period_begin && end <= again) {
      places.of[again] = places.of[request];
      buffer.upper = count;
    }
    places.buffers.push_back(buffer);
  }
  return places;
}

std::uint64_t peak_of(const PoolPlan::Stream& stream) {
  return bounds::requested_bound(places_of(stream, 1).buffers);
}

/// A run of requests [begin, end) that repeats `length` requests.
struct Period {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
  std::uint32_t end = 0;
};

/// The period of the first `n` requests that leaves the fewest of them to plan; it comes at least
/// twice at their end.
std::optional<Period> period_of(const std::vector<std::uint64_t>& sizes, std::size_t n) {
  // The longest border of each prefix of the reversed requests (Knuth, Morris, Pratt). A prefix of
  // n requests with a border of b repeats n - b requests.
  const auto at = [&](std::size_t i) { return sizes[n - 1 - i]; };
  std::vector<std::uint32_t> border(n + 1, 0);
  std::optional<Period> best;
  std::size_t fewest = n;
  for (std::size_t i = 1, b = 0; i < n; ++i) {
    while (b > 0 && at(i) != at(b)) b = border[b];
    if (at(i) == at(b)) ++b;
    border[i + 1] = static_cast<std::uint32_t>(b);
    const auto run = i + 1;
    const auto length = run - b;
    if (2 * length > run || n - run + length >= fewest) continue;
    fewest = n - run + length;
    best = {.begin = static_cast<std::uint32_t>(n - run),
            .length = static_cast<std::uint32_t>(length),
            .end = static_cast<std::uint32_t>(n)};
  }
  return best;
}

/// The period of a stream. A program may make some more requests after its last step, when it looks
/// at what it computed; those are left out where the rest repeats for at least half of the stream.
std::optional<Period> period_of(const std::vector<std::uint64_t>& sizes) {
  constexpr std::size_t kTailMost = 256;
  constexpr std::size_t kComparedMost = std::size_t{1} << 26;  // requests; took 0.05 to 0.1 s
  const auto count = sizes.size();
  const auto tails = std::min(kTailMost, kComparedMost / std::max<std::size_t>(count, 1));
  auto best = period_of(sizes, count);
  const auto unrepeated = [&](const Period& period) {
    return count - (period.end - period.begin) + period.length;
  };
  for (std::size_t tail = 1; tail <= tails && tail < count; ++tail) {
    const auto found = period_of(sizes, count - tail);
    if (!found || 2 * (found->end - found->begin) < count) continue;
    if (!best || unrepeated(*found) < unrepeated(*best)) best = found;
  }
  return best;
}

/// The stream without the requests from `end` on.
PoolPlan::Stream until(PoolPlan::Stream stream, std::uint32_t end) {
  stream.sizes.resize(end);
  stream.ends.resize(end);
  for (auto& each : stream.ends) {
    if (each > end) each = PoolPlan::kNever;
  }
  stream.period_begin = end;
  return stream;
}

/// How many requests the memory of this one outlives, as far as the recording tells.
std::optional<std::uint32_t> age_at_end(const PoolPlan::Stream& all, std::uint32_t request) {
  const auto end = all.ends[request];
  return end == PoolPlan::kNever ? std::nullopt : std::optional(end - request);
}

/// Does the memory outlive two periods, or the recording by as much?
bool outlives(const PoolPlan::Stream& all, const Period& period, std::uint32_t request) {
  const auto age = age_at_end(all, request).value_or(period.end - request);
  return age / 2 >= period.length;
}

/// The period where it begins by its lifetimes, too: what comes before it may have the same sizes
/// by chance, as the state of an optimizer has those of the gradients.
Period trimmed(const PoolPlan::Stream& all, Period period) {
  const auto first = period.begin;
  for (auto request = first; request < first + period.length; ++request) {
    const auto age_of_next = age_at_end(all, request + period.length);
    if (outlives(all, period, request) && age_of_next && *age_of_next / 2 < period.length)
      period.begin = request + 1;
  }
  return period;
}

/// By its place in the period: does the memory of this request outlive two periods? A loss does
/// that a program keeps of each step. All false where such memory is more than a hundredth of the
/// peak: a plan that leaves it out would not save memory.
std::vector<bool> outliving(const PoolPlan::Stream& all, const Period& period) {
  std::vector<bool> is_kept(period.length, false);
  const auto place_of = [&](std::uint32_t request) {
    return (request - period.begin) % period.length;
  };
  for (auto request = period.begin; request < period.end; ++request) {
    if (outlives(all, period, request)) is_kept[place_of(request)] = true;
  }
  std::uint64_t bytes = 0;
  for (auto request = period.begin; request < period.end; ++request) {
    if (is_kept[place_of(request)]) bytes += all.sizes[request];
  }
  if (bytes > all.peak_live_bytes / 100) is_kept.assign(period.length, false);
  return is_kept;
}

/// The requests that come again and again.
struct Repeated {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> ages;  // how many requests the memory outlives; at most all of them

  /// Where the period should begin. What it carries over keeps its place all the time, so that at
  /// some beginnings it needs more memory than at others; of those that need the least, the one
  /// that carries the least.
  std::uint32_t best_begin() const {
    constexpr std::size_t kTriedMost = 256;
    constexpr std::size_t kStepsMost = std::size_t{1} << 26;  // requests looked at
    const auto length = sizes.size();
    const auto tries =
        std::clamp<std::size_t>(kStepsMost / length, 1, std::min(length, kTriedMost));
    std::vector<std::int64_t> change(length + 1);
    std::uint32_t best = 0;
    std::pair<std::int64_t, std::int64_t> least{};  // needed, carried: bytes
    for (std::size_t tried = 0; tried < tries; ++tried) {
      const auto begin = length * tried / tries;
      std::fill(change.begin(), change.end(), 0);
      std::int64_t carried = 0;
      for (std::size_t at = 0; at < length; ++at) {
        const auto place = (begin + at) % length;
        const auto size = static_cast<std::int64_t>(sizes[place]);
        const auto end = at + ages[place];
        if (end > length) {
          carried += size;
        } else {
          change[at] += size;
          change[end] -= size;
        }
      }
      auto live = carried, most = carried;
      for (const auto each : change) most = std::max(most, live += each);
      if (tried > 0 && std::pair(most, carried) >= least) continue;
      least = {most, carried};
      best = static_cast<std::uint32_t>(begin);
    }
    return best;
  }
};

/// The stream as a beginning and one period, or as many as its memory lives for. Requests
/// that `is_kept` names have no place in it. Nothing if other memory lives longer. REQUIRES: the
/// stream ends with `period`.
std::optional<PoolPlan::Stream> once(const PoolPlan::Stream& all, const Period& period,
                                     const std::vector<bool>& is_kept) {
  const auto count = all.count();
  const auto is_placed = [&](std::uint32_t request) {
    return request < period.begin || !is_kept[(request - period.begin) % period.length];
  };
  // A place comes again after a period, and its memory must have been freed by then.
  std::uint32_t longest = 1;
  for (auto request = period.begin; request < count; ++request) {
    if (is_placed(request)) longest = std::max(longest, age_at_end(all, request).value_or(0));
  }
  const auto times = (longest + period.length - 1) / period.length;
  if (std::uint64_t{times} * period.length * 2 > count - period.begin) return {};
  const auto length = period.length * times;
  for (auto request = period.begin; request < count; ++request) {
    const bool is_left = all.ends[request] == PoolPlan::kNever && count - request > length;
    if (is_left && is_placed(request)) return {};
  }

  Repeated repeated{
      .sizes = {all.sizes.begin() + period.begin, all.sizes.begin() + period.begin + length},
      .ages = std::vector<std::uint32_t>(length, 0)};
  for (auto request = period.begin; request < count; ++request) {
    auto& age = repeated.ages[(request - period.begin) % length];
    age = std::max(age, age_at_end(all, request).value_or(0));
  }
  for (std::uint32_t place = 0; place < length; ++place) {
    if (repeated.ages[place] == 0) repeated.ages[place] = length;
    if (!is_placed(period.begin + place)) repeated.sizes[place] = 0;
  }
  const auto begin = period.begin + repeated.best_begin();
  auto stream = all;  // what ends some day keeps its end: it is not what every period begins with
  stream.sizes.resize(begin + length);
  stream.ends.resize(begin + length);
  stream.period_begin = begin;
  for (auto request = begin; request < stream.count(); ++request) {
    const auto age = repeated.ages[(request - period.begin) % length];
    stream.ends[request] = is_placed(request) ? request + age : PoolPlan::kNever;
  }
  return stream;
}

/// The stream as a beginning and one period. Nothing if it does not repeat.
std::optional<PoolPlan::Stream> repeating(const PoolPlan::Stream& stream) {
  auto found = period_of(stream.sizes);
  if (!found || stream.peak_live_bytes > kBytesMost) return {};
  auto all = until(stream, found->end);
  if (peak_of(all) < stream.peak_live_bytes) {  // what comes last is what needs the memory
    found = period_of(stream.sizes, stream.count());
    if (!found) return {};
    all = until(stream, found->end);
  }
  const auto period = trimmed(all, *found);
  return once(all, period, outliving(all, period));
}

struct Timer {
  const Clock& clock;
  std::uint64_t end_ns;
  std::uint64_t left() const {
    const auto now = clock.now_ns();
    return end_ns - std::min(end_ns, now);
  }
};

/// Gives the stream its offsets. False if it takes more than a plan may have.
bool place(PoolPlan::Stream& stream, std::uint64_t alignment, std::uint64_t search_ns,
           const Clock& clock) {
  const auto places = places_of(stream, alignment);
  const auto& buffers = places.buffers;
  const auto lower = std::max<std::uint64_t>(bounds::requested_bound(buffers), 1);
  // The end of the last page is no loss that a search could avoid.
  const auto gap =
      std::max(kPlanGap, static_cast<double>(PoolPlan::kPage / 2) / static_cast<double>(lower));
  auto bracket = bounds::minimal_capacity(buffers, gap, {.clock = &clock, .time_ns = search_ns});
  if (bracket.upper > kBytesMost) return false;
  for (const auto buffer : places.of)
    stream.offsets.push_back(buffer == Places::kNone ? 0 : bracket.layout.offsets[buffer]);
  stream.bytes = bounds::align_up(std::max<std::uint64_t>(bracket.upper, 1), PoolPlan::kPage);
  return true;
}

bool is_thrifty(const PoolPlan::Stream& stream) {
  return stream.bytes <= stream.peak_live_bytes + stream.peak_live_bytes / 100 + PoolPlan::kPage;
}

}  // namespace

Planned plan(const trace::Lifetimes& lifetimes, const Clock& clock, std::uint64_t search_ns,
             std::uint64_t alignment, trace::CountedRequests asked) {
  auto streams = requests_of(lifetimes, asked);
  Planned planned;
  planned.plan.trace = lifetimes.trace().source();
  planned.plan.alignment = alignment;
  const Timer timer{clock, clock.now_ns() + search_ns};
  for (std::size_t at = 0; at < streams.size(); ++at) {
    auto& all = streams[at];
    const auto share = [&] { return timer.left() / (streams.size() - at); };
    all.peak_live_bytes = peak_of(all);
    const Planned::Stream of{.requests = all.count()};
    auto chosen = repeating(all);
    const bool repeats = chosen && place(*chosen, alignment, share(), clock);
    if (!repeats || !is_thrifty(*chosen)) {
      const bool is_placed = place(all, alignment, share(), clock);
      if (!is_placed && !repeats) continue;
      if (is_placed && (!repeats || all.bytes < chosen->bytes)) chosen = std::move(all);
    }
    planned.streams.push_back(of);
    planned.plan.streams.push_back(*std::move(chosen));
  }
  return planned;
}

std::string to_text(const Planned& planned) {
  if (planned.plan.streams.empty())
    return "The recording has no request for device memory: there is nothing to "
           "plan.\n";
  std::vector<std::vector<std::string>> rows{
      {"stream", "requests", "planned", "repeats", "peak live", "planned memory", "over"}};
  for (std::size_t at = 0; at < planned.streams.size(); ++at) {
    const auto& stream = planned.plan.streams[at];
    const auto over =
        100 * (static_cast<double>(stream.bytes) / static_cast<double>(stream.peak_live_bytes) - 1);
    rows.push_back(
        {planned.plan.streams.front().device == planned.plan.streams.back().device
             ? stream.name
             : text::format("{} of device {}", stream.name, stream.device),
         text::grouped(planned.streams[at].requests), text::grouped(stream.count()),
         stream.repeats()
             ? text::format("the last {}", text::grouped(stream.count() - stream.period_begin))
             : std::string("no"),
         units::bytes(stream.peak_live_bytes), units::bytes(stream.bytes),
         text::format("{} %", text::fixed(over, 2))});
  }
  return format::columns("lrrlrrr", rows);
}

}  // namespace emm::inspect
