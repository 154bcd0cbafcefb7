#include "trial/adversary.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/prng.hpp"
#include "base/text_format.hpp"
#include "replay/engine.hpp"
#include "trace/generate.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trial {
namespace {

using trace::Member;
using trace::Members;
using trace::Op;

constexpr std::size_t kKept = 12;  ///< Programs kept as starting points of changes.

/// Returns a capacity above anything that a sensible manager would reserve for the program.
std::uint64_t ample(const Program& program) {
  std::uint64_t bytes = 0;
  for (const auto& request : program) {
    bytes = std::min(bytes + 2 * (request.size / kStep + 2) * kStep, kCapacityMost);
  }
  return bytes;
}

/// Sizes near which managers change how they round or split.
constexpr std::array<std::uint64_t, 9> kEdges{512,      4096,     1 << 16,  1 << 20, 2 << 20,
                                              10 << 20, 16 << 20, 20 << 20, 32 << 20};

struct Scored {
  Program program;
  std::string begun_from;
  double ratio = 0;
  std::uint64_t peak_live = 0, peak_reserved = 0, found_at = 0;
};

class Search {
 public:
  Search(const Setting& setting, const AdversaryOptions& options)
      : setting_(setting), options_(options), random_(options.seed) {}

  Result<Adversary> run() {
    const auto patterns = std::max<std::uint64_t>(options_.trials / 4, 1);
    while (result_.trials < patterns && !ended()) {
      std::string name;
      auto program = pattern(name);
      if (auto tried = offer(std::move(program), std::move(name)); !tried) return tried.error();
    }
    if (!kept_.empty()) result_.pattern_ratio = worst().ratio;
    while (result_.trials < options_.trials && !ended()) {
      const auto& parent = tournament();
      auto child = parent.program;
      const auto changes = 1 + random_.below(4);
      for (std::uint64_t i = 0; i < changes; ++i) change(child);
      if (child.empty() || child == parent.program) continue;
      if (auto tried = offer(std::move(child), parent.begun_from); !tried) return tried.error();
    }
    if (!result_.failed && !kept_.empty()) take(worst());
    return std::move(result_);
  }

 private:
  bool ended() const { return result_.interrupted || result_.failed.has_value(); }

  void take(const Scored& scored) {
    result_.program = scored.program;
    result_.begun_from = scored.begun_from;
    result_.peak_live = scored.peak_live;
    result_.peak_reserved = scored.peak_reserved;
    result_.ratio = scored.ratio;
    result_.found_at = scored.found_at;
  }

  const Scored& worst() const { return *std::max_element(kept_.begin(), kept_.end(), milder); }
  static bool milder(const Scored& a, const Scored& b) { return a.ratio < b.ratio; }

  /// Picks the worst of three random programs, so that milder ones get a turn too.
  const Scored& tournament() {
    const auto* best = &kept_[static_cast<std::size_t>(random_.below(kept_.size()))];
    for (int i = 0; i < 2; ++i) {
      const auto& other = kept_[static_cast<std::size_t>(random_.below(kept_.size()))];
      if (other.ratio > best->ratio) best = &other;
    }
    return *best;
  }

  /// Generates a pattern on one stream, with random sizes and a random number of live blocks.
  Program pattern(std::string& name) {
    std::vector<std::string_view> kinds;
    for (const auto& kind : trace::generate_kinds()) {
      if (kind.threads == 1 && kind.streams == 1) kinds.push_back(kind.name);
    }
    trace::GenerateOptions made;
    made.kind = kinds[static_cast<std::size_t>(random_.below(kinds.size()))];
    made.events = 2 * options_.requests;
    made.seed = random_.next();
    const auto a = random_.log_uniform(1, options_.size_max);
    const auto b = random_.log_uniform(1, options_.size_max);
    made.min_size = std::min(a, b);
    made.max_size = std::max(a, b);
    made.live = 2 + random_.below(options_.requests);
    name = made.kind;
    trace::Trace trace;
    const auto generated = trace::generate(made, trace);
    EMM_ASSERT(generated.has_value());
    return program_of(trace);
  }

  Status offer(Program program, std::string begun_from) {
    trace::Trace trace;
    trace.set_source(text::format("trial {}", result_.trials + 1));
    const auto written = write(program, "trial", trace);
    EMM_ASSERT(written.has_value());
    auto summary = trial::run(trace, setting_, std::max(options_.capacity, ample(program)));
    if (!summary) return std::move(summary).error();
    if (summary->interrupted) {
      result_.interrupted = true;
      return {};
    }
    ++result_.trials;
    Scored scored{.program = std::move(program), .begun_from = std::move(begun_from)};
    scored.peak_live = summary->pass.peak_live_bytes;
    scored.peak_reserved = summary->pass.peak_reserved_bytes;
    scored.found_at = result_.trials;
    scored.ratio = static_cast<double>(scored.peak_reserved) /
                   static_cast<double>(std::max(scored.peak_live, options_.live_least));
    if (replay::exit_code(*summary) == 1 || summary->abnormal) {
      take(scored);
      result_.failed = std::move(*summary);
      return {};
    }
    keep(std::move(scored));
    if (options_.progress) options_.progress(result_.trials, worst().ratio);
    return {};
  }

  void keep(Scored scored) {
    if (kept_.size() < kKept) {
      kept_.push_back(std::move(scored));
      return;
    }
    const auto mildest = std::min_element(kept_.begin(), kept_.end(), milder);
    if (scored.ratio >= mildest->ratio) *mildest = std::move(scored);
  }

  std::uint64_t any_size() { return random_.log_uniform(1, options_.size_max); }
  std::uint32_t any_lifetime(const Program& program) {
    return static_cast<std::uint32_t>(random_.log_uniform(1, program.size() + 1));
  }
  std::size_t any_place(const Program& program) {
    return static_cast<std::size_t>(random_.below(program.size()));
  }
  std::uint64_t fitting(std::uint64_t size) const {
    return std::clamp<std::uint64_t>(size, 1, options_.size_max);
  }

  void change(Program& program) {
    if (program.empty()) return;
    auto& request = program[any_place(program)];
    switch (random_.below(10)) {
      case 0:
        request.size = any_size();
        break;
      case 1:
        request.size = fitting(random_.below(2) == 0 ? request.size / 2 : request.size * 2);
        break;
      case 2: {  // just below, at or just above an edge
        const auto edge = kEdges[static_cast<std::size_t>(random_.below(kEdges.size()))];
        request.size = fitting(edge + random_.below(3) - 1);
        break;
      }
      case 3:
        request.size = program[any_place(program)].size;
        break;
      case 4:
        request.lifetime = any_lifetime(program);
        break;
      case 5: {  // until another request, or until the program's end
        const auto ends = random_.below(2) == 0 ? any_place(program) : program.size();
        const auto at = static_cast<std::size_t>(&request - program.data());
        request.lifetime = static_cast<std::uint32_t>(ends > at ? ends - at : 1);
        break;
      }
      case 6:
        program.erase(program.begin() + (&request - program.data()));
        break;
      case 7:
        if (program.size() < options_.requests) {
          program.insert(program.begin() + (&request - program.data()),
                         {.size = any_size(), .lifetime = any_lifetime(program)});
        }
        break;
      case 8:
        change_stretch(program);
        break;
      case 9:
        copy_stretch(program);
        break;
    }
  }

  /// Changes every request, or every second one, of a stretch in the same way.
  void change_stretch(Program& program) {
    const auto begin = any_place(program);
    const auto length = static_cast<std::size_t>(random_.log_uniform(1, program.size() - begin));
    const auto every = 1 + static_cast<std::size_t>(random_.below(2));
    const auto size = any_size();
    const auto lifetime = any_lifetime(program);
    const auto what = random_.below(3);
    for (auto at = begin; at < begin + length; at += every) {
      if (what == 0) program[at].size = size;
      if (what == 1) program[at].lifetime = lifetime;
      if (what == 2) program[at].lifetime = static_cast<std::uint32_t>(begin + length - at);
    }
  }

  void copy_stretch(Program& program) {
    const auto from = any_place(program);
    const auto length = static_cast<std::size_t>(random_.log_uniform(1, program.size() - from));
    const Program stretch(program.begin() + static_cast<std::ptrdiff_t>(from),
                          program.begin() + static_cast<std::ptrdiff_t>(from + length));
    const auto to = any_place(program);
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(to), stretch.begin(),
                   stretch.end());
    if (program.size() > options_.requests) program.resize(options_.requests);
  }

  const Setting& setting_;
  const AdversaryOptions& options_;
  Prng random_;
  std::vector<Scored> kept_;
  Adversary result_;
};

}  // namespace

Status write(const Program& program, const std::string& name, trace::OperationSink& sink) {
  trace::Header header;
  header.name = name;
  header.level = trace::Level::synthetic;
  header.complete = header.has_complete = true;
  header.tool = "emmctl adversary";
  if (auto begun = sink.on_header(header); !begun) return begun;
  std::uint64_t given = 0;
  std::multimap<std::size_t, std::uint64_t> ends;  // by the request before which they come
  const auto free_before = [&](std::size_t at) -> Status {
    for (; !ends.empty() && ends.begin()->first <= at; ends.erase(ends.begin())) {
      trace::Operation op{.op = Op::free, .members = Members(Member::id)};
      op.id = trace::Id::of(ends.begin()->second);
      ++given;
      if (auto done = sink.on_operation(op); !done) return done;
    }
    return {};
  };
  for (std::size_t at = 0; at < program.size(); ++at) {
    if (auto freed = free_before(at); !freed) return freed;
    trace::Operation op{.op = Op::memalloc, .members = Members(Member::id, Member::size)};
    op.id = trace::Id::of(std::uint64_t{at + 1});
    op.size = program[at].size;
    ends.emplace(std::min(at + program[at].lifetime, program.size()), at + 1);
    ++given;
    if (auto done = sink.on_operation(op); !done) return done;
  }
  if (auto freed = free_before(program.size()); !freed) return freed;
  trace::Operation end{
      .op = Op::end,
      .members = Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
  end.events = given;
  if (auto done = sink.on_operation(end); !done) return done;
  return sink.finish();
}

Program program_of(const trace::Trace& trace) {
  Program program;
  std::map<AllocId, std::size_t> live;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (event.op == Op::memalloc && index(event.context) == 0 && event.size > 0) {
      live.emplace(event.id, program.size());
      program.push_back({.size = event.size, .lifetime = 0});
    } else if (event.op == Op::free) {
      const auto born = live.find(event.id);
      if (born == live.end()) continue;
      program[born->second].lifetime =
          static_cast<std::uint32_t>(std::max<std::size_t>(program.size() - born->second, 1));
      live.erase(born);
    }
  }
  for (const auto& [id, born] : live) {
    program[born].lifetime = static_cast<std::uint32_t>(program.size() - born);
  }
  return program;
}

Result<Adversary> find_adversary(const Setting& setting, const AdversaryOptions& options) {
  EMM_ASSERT(options.trials > 0 && options.requests > 1 && options.size_max > 0);
  return Search(setting, options).run();
}

}  // namespace emm::trial
