#include "trial/late_frees.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "allocators/pytorch/policy.hpp"
#include "base/counted.hpp"
#include "base/text.hpp"

namespace emm::trial {
namespace {

using pytorch::Call;

bool is_request(const Call& call) {
  return call.kind == Call::Kind::alloc || call.kind == Call::Kind::refused;
}

/// Completes each late free once `waits` requests have been made since.
pytorch::Program completed_after(const pytorch::Program& program, std::uint64_t waits) {
  auto made = program;
  made.calls.clear();
  std::vector<bool> is_late(program.allocations, false);
  std::deque<std::pair<std::uint64_t, Call>> due;  // The first request that may notice it.
  std::uint64_t requests = 0;
  for (const auto& call : program.calls) {
    // A free from before the first row completes as recorded.
    if (call.kind == Call::Kind::complete && is_late[call.allocation]) continue;
    if (is_request(call)) {
      for (; !due.empty() && due.front().first <= requests; due.pop_front())
        made.calls.push_back(due.front().second);
      ++requests;
    }
    made.calls.push_back(call);
    if (call.kind != Call::Kind::free_later) continue;
    is_late[call.allocation] = true;
    due.emplace_back(requests + waits, call);
    due.back().second.kind = Call::Kind::complete;
  }
  return made;
}

std::uint64_t largest_segment(const pytorch::Program& program, const pytorch::Settings& settings) {
  std::uint64_t most = 0;
  for (const auto& call : program.calls) {
    if (is_request(call)) most = std::max(most, call.size);
  }
  return segment_size(settings, round_size(settings, most));
}

void add(Reserved& reserved, std::uint64_t bytes) {
  reserved.low = std::min(reserved.low, bytes);
  reserved.high = std::max(reserved.high, bytes);
}

}  // namespace

Lateness lateness_of(const pytorch::Program& program) {
  Lateness found;
  std::unordered_map<std::uint32_t, std::uint64_t> waiting;
  std::uint64_t requests = 0;
  for (const auto& call : program.calls) {
    requests += is_request(call) ? 1 : 0;
    if (call.kind == Call::Kind::free) ++found.frees;
    if (call.kind == Call::Kind::free_later) {
      ++found.frees;
      ++found.late;
      waiting[call.allocation] = requests;
    }
    if (call.kind != Call::Kind::complete) continue;
    const auto since = waiting.find(call.allocation);
    if (since == waiting.end()) continue;
    found.longest_requests = std::max(found.longest_requests, requests - since->second);
    waiting.erase(since);
  }
  for (const auto& [allocation, since] : waiting)
    found.longest_requests = std::max(found.longest_requests, requests - since);
  return found;
}

std::string why_range(const Lateness& lateness) {
  if (lateness.late == 0) return {};
  return text::format(
      "{} of {} frees completed late, up to {} requests after they were asked for: other streams "
      "still used the blocks. With another setting that may be sooner or later, so figures are "
      "ranges, from the next request to {} requests later.",
      text::grouped(lateness.late), text::grouped(lateness.frees),
      text::grouped(lateness.longest_requests), text::grouped(lateness.longest_requests));
}

std::string why_range_briefly(const Lateness& lateness, std::uint64_t caught) {
  std::string words;
  if (lateness.late != 0) {
    words = text::format("{} of {} frees wait for other streams, which decides what is reserved.",
                         text::grouped(lateness.late), text::grouped(lateness.frees));
  } else if (caught != 0) {
    words = text::format("The program caught {}: which requests fail decides what it reserves.",
                         text::counted(caught, "failure"));
  }
  return words;
}

std::uint64_t caught_failures(const pytorch::Program& program) {
  std::uint64_t caught = 0, refused = 0;
  for (const auto& call : program.calls) {
    if (call.kind == Call::Kind::refused) ++refused;
    if (call.kind == Call::Kind::alloc) caught = refused;
  }
  return caught;
}

std::vector<pytorch::Program> as_late(const pytorch::Program& program) {
  std::vector<pytorch::Program> all;
  const auto lateness = lateness_of(program);
  if (lateness.late == 0) return all;
  std::vector<std::uint64_t> waits{0};
  // What is free at another moment is not always more or less: an allocator may reserve most in
  // between.
  for (const auto part : {16, 4, 1}) {
    const auto next = lateness.longest_requests / static_cast<std::uint64_t>(part);
    if (next > waits.back()) waits.push_back(next);
  }
  for (const auto each : waits) all.push_back(completed_after(program, each));
  return all;
}

Reserved reserved_of(const std::vector<pytorch::Program>& late, const pytorch::RunOptions& options,
                     const pytorch::Program& program, const pytorch::Outcome& as_recorded,
                     std::uint64_t limit_below) {
  const auto peak = as_recorded.counts.peak_reserved;
  Reserved reserved{.low = peak, .high = peak};
  const auto limit = std::min(options.capacity, options.settings.limit());
  const auto reaches = [&](const pytorch::Allocator::Counts& counts) {
    return limit != pytorch::kNoLimit && counts.retries + counts.ooms != 0;
  };
  if (as_recorded.differs && reaches(as_recorded.counts) && caught_failures(program) != 0) {
    reserved.low = std::min(peak, as_recorded.peak_until_differs);
    // A memory fraction is compared with what is asked for; the last piece may reach beyond it.
    const auto beyond = options.settings.expandable_segments && limit < options.capacity
                            ? options.settings.large_segment_size
                            : 0;
    reserved.high = std::max(peak, std::max(limit, limit_below) + beyond);
  }
  if (late.empty()) return reserved;
  const auto largest = largest_segment(late.front(), options.settings);
  const auto take = [&](const pytorch::Allocator::Counts& counts) {
    add(reserved, counts.peak_reserved);
    if (!reaches(counts)) return;
    add(reserved, limit - std::min(limit, largest));
    add(reserved, limit);
  };
  take(as_recorded.counts);
  for (const auto& each : late) take(run(each, options).counts);
  if (limit != pytorch::kNoLimit) return reserved;
  const auto held = run(program, {.settings = program.settings}).counts.peak_reserved;
  auto tightest = options;
  tightest.settings.known_limit = held;
  const auto counts = run(late.front(), tightest).counts;
  reserved.low = std::min(reserved.low, counts.peak_reserved);
  if (counts.retries + counts.ooms != 0)
    reserved.low = std::min(reserved.low, held - std::min(held, largest));
  return reserved;
}

Reserved reserved_after(const std::vector<pytorch::Program>& late,
                        const pytorch::RunOptions& options, const pytorch::Outcome& as_recorded) {
  Reserved reserved{.low = as_recorded.reserved, .high = as_recorded.reserved};
  for (const auto& each : late) add(reserved, run(each, options).reserved);
  return reserved;
}

void write(format::JsonWriter& json, const Reserved& reserved) {
  json.member("peak_reserved_low_bytes", reserved.low);
  json.member("peak_reserved_high_bytes", reserved.high);
}

}  // namespace emm::trial
