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

std::vector<Buffer> buffers_of(const PoolPlan::Stream& stream, std::uint64_t alignment) {
  std::vector<Buffer> buffers;
  const std::uint64_t count = stream.count();
  for (std::uint64_t request = 0; request < count; ++request) {
    const auto end = stream.ends[request];
    const std::uint64_t last = end == PoolPlan::kNever ? count : end;
    Buffer buffer{.lower = request,
                  .upper = last,
                  .size = bounds::align_up(stream.sizes[request], alignment)};
    buffer.alignment = alignment;
    // What a period carries over has its place all the time.
    if (stream.repeats() && last > count) buffer.lower = stream.period_begin, buffer.upper = count;
    buffers.push_back(buffer);
  }
  return buffers;
}

/// A run of requests at the end of the stream, from `begin` on, that repeats `length` requests.
struct Period {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
};

/// The period that leaves the fewest requests to plan; it comes at least twice.
std::optional<Period> period_of(const std::vector<std::uint64_t>& sizes) {
  // The longest border of each prefix of the reversed requests (Knuth, Morris, Pratt). A prefix of
  // n requests with a border of b repeats n - b requests.
  const auto n = sizes.size();
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
    best = {static_cast<std::uint32_t>(n - run), static_cast<std::uint32_t>(length)};
  }
  return best;
}

/// How many requests the memory of this one outlives, as far as the recording tells.
std::optional<std::uint32_t> age_at_end(const PoolPlan::Stream& all, std::uint32_t request) {
  const auto end = all.ends[request];
  return end == PoolPlan::kNever ? std::nullopt : std::optional(end - request);
}

/// The stream as a beginning and one period. Nothing if it does not repeat.
std::optional<PoolPlan::Stream> repeating(const PoolPlan::Stream& all) {
  auto period = period_of(all.sizes);
  if (!period) return {};
  const auto count = all.count();
  const auto run = count - period->begin;
  // A place comes again after a period, and its memory must have been freed by then.
  std::uint32_t longest = 1;
  for (auto request = period->begin; request < count; ++request)
    longest = std::max(longest, age_at_end(all, request).value_or(0));
  const auto times = (longest + period->length - 1) / period->length;
  if (std::uint64_t{times} * period->length * 2 > run) return {};
  period->length *= times;
  const auto length = period->length;
  for (auto request = period->begin; request < count; ++request) {
    if (all.ends[request] == PoolPlan::kNever && count - request > length) return {};
  }

  // The period begins where the least is live: what it carries over keeps its place all the time.
  std::vector<std::uint64_t> live(std::size_t{count} + 1, 0);
  std::vector<std::uint64_t> ended(std::size_t{count} + 1, 0);
  for (std::uint32_t request = 0; request < count; ++request) {
    if (all.ends[request] != PoolPlan::kNever) ended[all.ends[request]] += all.sizes[request];
  }
  for (std::uint32_t request = 0; request < count; ++request)
    live[request + 1] = live[request] - ended[request] + all.sizes[request];
  const auto live_before = [&](std::uint32_t request) { return live[request] - ended[request]; };
  auto begin = period->begin;
  for (auto at = begin; at < period->begin + length; ++at) {
    if (live_before(at) < live_before(begin)) begin = at;
  }

  PoolPlan::Stream once = all;
  once.period_begin = begin;
  const auto planned = begin + length;
  once.sizes.resize(planned);
  once.ends.resize(planned);
  for (std::uint32_t request = 0; request < begin; ++request) {
    if (once.ends[request] > planned) once.ends[request] = PoolPlan::kNever;
  }
  for (auto request = begin; request < planned; ++request) {
    auto longest_age = std::uint32_t{0};
    for (auto again = request - (request - period->begin) / length * length; again < count;
         again += length)
      longest_age = std::max(longest_age, age_at_end(all, again).value_or(0));
    once.ends[request] = request + (longest_age == 0 ? length : longest_age);
  }
  return once;
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
  const auto buffers = buffers_of(stream, alignment);
  const auto lower = std::max<std::uint64_t>(bounds::requested_bound(buffers), 1);
  // The end of the last page is no loss that a search could avoid.
  const auto gap =
      std::max(kPlanGap, static_cast<double>(PoolPlan::kPage / 2) / static_cast<double>(lower));
  auto bracket = bounds::minimal_capacity(buffers, gap, {.clock = &clock, .time_ns = search_ns});
  if (bracket.upper > kBytesMost) return false;
  stream.offsets = std::move(bracket.layout.offsets);
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
    all.peak_live_bytes = bounds::requested_bound(buffers_of(all, 1));
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
