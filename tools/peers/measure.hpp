#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/prng.hpp"
#include "tools/peers/json_line.hpp"
#include "tools/peers/kernels.hpp"
#include "tools/peers/requests.hpp"
#include "tools/peers/ticks.hpp"

/// How an allocator is measured, the same for all. An Allocator is made anew for each list of
/// requests, frees everything when it ends, and has
///
/// - Memory: the type of what it hands out; can be moved; a default one holds nothing
/// - bool allocate(Memory&, size, stream): false where it cannot
/// - void free(Memory&, stream): frees what the memory holds, and makes it hold nothing
/// - void synchronize(): waits for the device
/// - std::uint64_t reserved_peak(): by its own account, since restart_peak(); 0 without one
/// - void restart_peak()
/// - std::optional<std::uint64_t> device_free(): free bytes of the device; nothing without one
/// - void* handle(stream): CUDA's stream, on which kernels are launched; not where it has no device
///
/// Stream 0 is the default stream.
namespace emm::peers {

/// How the passes after the first differ from it, as those of a program whose input differs.
enum class Differ {
  no,
  by_one,  ///< All sizes of a pass times one factor of 0.8 to 1.2.
  by_own,  ///< Each size times its own factor of 0.9 to 1.1.
};

struct Passes {
  unsigned warm = 15;    ///< Passes after the first; their median counts.
  unsigned latency = 5;  ///< Passes that time each request; the median of their p99.9 counts.
  Differ differ = Differ::no;
  std::optional<std::uint64_t> kernel_ns;  ///< A kernel of so long follows each allocation.
};

namespace detail {

template <class Allocator>
using Slots = std::vector<typename Allocator::Memory>;

/// Returns how many allocations failed.
template <class Allocator>
std::uint64_t walk(Allocator& allocator, const Requests& requests, Slots<Allocator>& slots) {
  std::uint64_t failed = 0;
  for (const auto& request : requests.all) {
    auto& memory = slots[request.slot];
    if (request.allocates) {
      failed += !allocator.allocate(memory, request.size, request.stream);
    } else {
      allocator.free(memory, request.stream);
    }
  }
  return failed;
}

/// The same, and a kernel follows each allocation on its stream. Returns the nanoseconds that the
/// launches took, too.
template <class Allocator>
[[gnu::noinline]] std::pair<std::uint64_t, std::uint64_t> walk_beside(const Kernels& kernels,
                                                                      std::uint64_t kernel_ns,
                                                                      Allocator& allocator,
                                                                      const Requests& requests,
                                                                      Slots<Allocator>& slots) {
  std::uint64_t failed = 0, launches_ns = 0;
  for (const auto& request : requests.all) {
    auto& memory = slots[request.slot];
    if (!request.allocates) {
      allocator.free(memory, request.stream);
    } else if (allocator.allocate(memory, request.size, request.stream)) {
      launches_ns += kernels.launch(allocator.handle(request.stream), kernel_ns);
    } else {
      ++failed;
    }
  }
  return {failed, launches_ns};
}

/// Frees what the program left alive.
template <class Allocator>
void free_left(Allocator& allocator, Slots<Allocator>& slots) {
  for (auto& memory : slots) allocator.free(memory, 0);
  allocator.synchronize();
}

struct Latency {
  double p50 = 0, p999 = 0, max = 0;
};
inline Latency latency_of(std::vector<std::uint64_t>& spans, const TickScale& scale) {
  if (spans.empty()) return {};
  return {.p50 = scale.ns(quantile(spans, 0.5)),
          .p999 = scale.ns(quantile(spans, 0.999)),
          .max = scale.ns(*std::max_element(spans.begin(), spans.end()))};
}

template <class Allocator>
std::pair<Latency, Latency> time_each(Allocator& allocator, const Requests& requests,
                                      Slots<Allocator>& slots, const TickScale& scale) {
  std::vector<std::uint64_t> allocations, frees;
  allocations.reserve(requests.allocations);
  frees.reserve(requests.all.size() - requests.allocations);
  for (const auto& request : requests.all) {
    auto& memory = slots[request.slot];
    const auto begin = ticks();
    if (request.allocates) {
      (void)allocator.allocate(memory, request.size, request.stream);
      allocations.push_back(ticks() - begin);
    } else {
      allocator.free(memory, request.stream);
      frees.push_back(ticks() - begin);
    }
  }
  free_left(allocator, slots);
  return {latency_of(allocations, scale), latency_of(frees, scale)};
}

/// The most by which the device had less free memory than before, asked at some hundreds of
/// requests and at the peak.
template <class Allocator>
std::optional<std::uint64_t> device_peak(Allocator& allocator, const Requests& requests,
                                         Slots<Allocator>& slots,
                                         std::optional<std::uint64_t> free_before) {
  if (!free_before) return std::nullopt;
  constexpr std::size_t kQuestions = 256;
  const auto every = requests.all.size() / kQuestions + 1;
  std::uint64_t least = *free_before;
  for (std::size_t at = 0; at < requests.all.size(); ++at) {
    const auto& request = requests.all[at];
    if (request.allocates) {
      (void)allocator.allocate(slots[request.slot], request.size, request.stream);
    } else {
      allocator.free(slots[request.slot], request.stream);
    }
    if (at % every == 0 || at == requests.peak_at)
      least = std::min(least, *allocator.device_free());
  }
  free_left(allocator, slots);
  return *free_before - least;
}

}  // namespace detail

/// The requests of a pass. The factors depend on the number of the pass alone, so that all
/// allocators meet the same.
inline Requests requests_of_pass(const Requests& first, Differ differ, unsigned pass) {
  Prng random(pass);
  const auto one = 0.8 + 0.4 * random.unit();
  return first.scaled([&] { return differ == Differ::by_one ? one : 0.9 + 0.2 * random.unit(); });
}

/// Measures one trace: a first pass, warm passes, passes that time each request, and a pass that
/// asks the device. False where kernels were asked for and cannot be launched, which stderr says.
template <class Make>
bool measure_trace(const std::string& peer, const Make& make, const Requests& requests,
                   const Passes& passes, const TickScale& scale) {
  auto allocator = make(requests.streams);
  if (!allocator) return true;
  using Allocator = typename decltype(allocator)::element_type;
  detail::Slots<Allocator> slots(requests.slots);
  const auto free_before = allocator->device_free();
  std::optional<Kernels> kernels;
  constexpr bool kHasStreams = requires { allocator->handle(0); };
  if (passes.kernel_ns && !kHasStreams) {
    std::fprintf(stderr, "--kernel: %s has no streams of a device\n", peer.c_str());
    return false;
  }
  if (passes.kernel_ns && !kernels.emplace()) return false;
  std::vector<double> ns, run_us;
  std::vector<std::uint64_t> reserved;
  std::uint64_t failed = 0, peak_live = requests.peak_live, need = requests.no_wait_need();
  Requests other;
  for (unsigned pass = 0; pass <= passes.warm; ++pass) {
    const bool differs = pass > 0 && passes.differ != Differ::no;
    if (differs) other = requests_of_pass(requests, passes.differ, pass);
    const auto& of_pass = differs ? other : requests;
    peak_live = std::max(peak_live, of_pass.peak_live);
    need = std::max(need, of_pass.no_wait_need());
    allocator->restart_peak();
    const auto begin = now_ns();
    std::uint64_t launches_ns = 0;
    if constexpr (kHasStreams) {
      if (kernels) {
        const auto [refused, launching] =
            detail::walk_beside(*kernels, *passes.kernel_ns, *allocator, of_pass, slots);
        failed += refused;
        launches_ns = launching;
      }
    }
    if (!kernels) failed += detail::walk(*allocator, of_pass, slots);
    ns.push_back(static_cast<double>(now_ns() - begin - launches_ns) /
                 static_cast<double>(requests.all.size()));
    if (kernels) {
      allocator->synchronize();
      run_us.push_back(static_cast<double>(now_ns() - begin) / 1e3);
    }
    reserved.push_back(allocator->reserved_peak());
    detail::free_left(*allocator, slots);
  }
  std::vector<double> alloc_p999, free_p999, alloc_p50, free_p50, most;
  for (unsigned pass = 0; pass < passes.latency && !kernels; ++pass) {
    const auto [allocations, frees] = detail::time_each(*allocator, requests, slots, scale);
    alloc_p50.push_back(allocations.p50);
    free_p50.push_back(frees.p50);
    alloc_p999.push_back(allocations.p999);
    free_p999.push_back(frees.p999);
    most.push_back(std::max(allocations.max, frees.max));
  }
  const auto on_device =
      kernels ? std::nullopt : detail::device_peak(*allocator, requests, slots, free_before);

  const std::vector<double> warm(ns.begin() + 1, ns.end());
  JsonLine line;
  line.text("peer", peer).text("trace", requests.name).bytes("requests", requests.all.size());
  line.bytes("failed", failed)
      .bytes("peak_live_bytes", peak_live)
      .bytes("no_wait_need_bytes", need)
      .number("first_ns", ns.front());
  if (kernels) {
    line.bytes("kernel_us", *passes.kernel_ns / 1'000).number("first_run_us", run_us.front());
    if (run_us.size() > 1) {
      line.number("warm_run_us", median(std::vector<double>(run_us.begin() + 1, run_us.end())));
    }
  }
  if (!warm.empty()) {
    line.number("warm_ns", median(warm)).numbers("warm_passes_ns", warm);
    if (passes.differ != Differ::no) {
      line.number("mean_pass_ns", std::accumulate(warm.begin(), warm.end(), 0.0) /
                                      static_cast<double>(warm.size()));
      line.number("worst_pass_ns", *std::max_element(warm.begin(), warm.end()));
    }
    if (reserved.front() != 0) {
      line.bytes("reserved_warm_bytes", *std::max_element(reserved.begin() + 1, reserved.end()));
    }
  }
  if (reserved.front() != 0) line.bytes("reserved_first_bytes", reserved.front());
  if (on_device) line.bytes("device_peak_bytes", *on_device);
  if (!alloc_p999.empty()) {
    line.number("alloc_p50_ns", median(alloc_p50)).number("free_p50_ns", median(free_p50));
    line.number("alloc_p999_ns", median(alloc_p999)).number("free_p999_ns", median(free_p999));
    line.number("max_ns", median(most)).number("clock_cost_ns", scale.cost_ns());
  }
  line.print();
  return true;
}

/// So many blocks are live. Each step frees one of them at random and allocates one of log-uniform
/// size in its place.
struct Scaling {
  std::vector<std::uint64_t> live{1'000, 100'000, 1'000'000};
  std::uint64_t min_size = 512, max_size = std::uint64_t{256} << 10;  ///< A million fit an H200.
  unsigned passes = 5;
  double enough_ns = 5'000;                ///< Once a request takes longer, no more are made live.
  std::uint64_t most_ns = 15'000'000'000;  ///< No pass begins later; each has its share.
  std::uint64_t seed = 1;
};

template <class Make>
void measure_scaling(const std::string& peer, const Make& make, const Scaling& scaling) {
  for (const auto live : scaling.live) {
    auto allocator = make(1);
    if (!allocator) return;
    using Allocator = typename decltype(allocator)::element_type;
    detail::Slots<Allocator> slots(live);
    Prng random(scaling.seed);
    const auto any_size = [&] { return random.log_uniform(scaling.min_size, scaling.max_size); };
    std::uint64_t failed = 0;
    for (auto& memory : slots) failed += !allocator->allocate(memory, any_size(), 0);
    std::vector<Request> replacements(std::max<std::uint64_t>(live, 200'000));
    std::vector<double> ns;
    const auto filled_ns = now_ns();
    for (unsigned pass = 0; pass <= scaling.passes; ++pass) {  // The first is not counted.
      if (!ns.empty() && now_ns() - filled_ns > scaling.most_ns) break;
      for (auto& each : replacements) {
        each.slot = static_cast<std::uint32_t>(random.below(live));
        each.size = any_size();
      }
      const auto begin = now_ns();
      std::uint64_t took = 0;
      std::size_t done = 0;
      while (done < replacements.size() && took < scaling.most_ns / scaling.passes) {
        for (const auto end = std::min(done + 1'000, replacements.size()); done < end; ++done) {
          auto& memory = slots[replacements[done].slot];
          allocator->free(memory, 0);
          failed += !allocator->allocate(memory, replacements[done].size, 0);
        }
        took = now_ns() - begin;
      }
      if (pass > 0) ns.push_back(static_cast<double>(took) / (2 * static_cast<double>(done)));
    }
    JsonLine line;
    line.text("peer", peer)
        .text("scaling", "random frees")
        .bytes("live", live)
        .number("ns", median(ns));
    line.numbers("passes_ns", ns).bytes("failed", failed).bytes("min_size", scaling.min_size);
    line.bytes("max_size", scaling.max_size);
    if (const auto reserved = allocator->reserved_peak()) line.bytes("reserved_bytes", reserved);
    line.print();
    detail::free_left(*allocator, slots);
    if (median(ns) > scaling.enough_ns) return;
  }
}

}  // namespace emm::peers
