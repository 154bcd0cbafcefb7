#include "exchange/check.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/byte_sum.hpp"
#include "base/text.hpp"
#include "trace/curve.hpp"
#include "trace/field.hpp"
#include "trace/header.hpp"
#include "trace/live_ids.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::trace {
namespace {

std::string said(const Id& id) {
  return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
}

/// Passes the operations on to a Trace, which checks what a replay relies on, and checks the other
/// rules itself.
class Checker final : public OperationSink {
 public:
  enum class Input { trace, recording };

  Checker(const std::string& source, CheckReport& report, std::size_t limit, Input of, bool streams)
      : source_(source), report_(report), limit_(limit), of_(of) {
    trace_.set_source(source);
    if (streams) trace_.keep_window(0);
    trace_.set_fault_handler([this](std::uint32_t line, const Error& fault, std::string_view id) {
      if (id.empty()) return leave_out(line, fault);
      if (!follows(line, id)) error(line, fault);
    });
  }

  /// An error in an operation that is left out.
  void leave_out(std::uint32_t line, const Error& fault) {
    if (left_out_++ == 0) first_left_out_ = line;
    error(line, fault);
  }

  void error(std::uint32_t line, const Error& fault) {
    ++report_.errors;
    if (errors_.size() < limit_) {
      errors_.push_back(
          {.severity = Finding::Severity::error, .line = line, .words = describe(fault)});
    }
  }

  Status on_header(const Header& header) override {
    header_ = header;
    begun_ = true;
    return trace_.on_header(header);
  }

  Status on_operation(const Operation& operation) override {
    ++operations_;
    last_line_ = operation.line;
    if (operation.op != Op::extension) {
      look_at_order(operation);
      const bool about_the_trace = operation.op == Op::define || operation.op == Op::mark ||
                                   operation.op == Op::gap || operation.op == Op::end;
      if (!about_the_trace) look_at_features(operation);
      if (!operation.has(Member::layer) || operation.layer == Layer::request)
        look_at_memory(operation);
    }
    return trace_.on_operation(operation);
  }

  Status finish() override {
    auto done = trace_.finish();
    look_at_end();
    return done;
  }

  bool begun() const noexcept { return begun_; }
  bool ended() const noexcept { return ended_; }
  bool needs_memory() const noexcept { return trace_.needs_memory(); }
  std::uint64_t operations() const noexcept { return operations_; }
  std::uint32_t last_line() const noexcept { return last_line_; }

  /// `whole`: the file was read to its end.
  void list_findings(bool whole) {
    if (!sorted_ || !whole || left_out_ != 0) {
      by_order_.clear();
      warnings_by_order_ = 0;
    }
    report_.warnings += warnings_by_order_;
    auto& all = report_.findings;
    for (auto* found : {&errors_, &by_order_, &others_}) {
      std::move(found->begin(), found->end(), std::back_inserter(all));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Finding& a, const Finding& b) { return a.line < b.line; });
    if (all.size() > limit_) all.resize(limit_);
  }

 private:
  /// Does a fault of this id follow from an operation that was left out? Each of those may explain
  /// one id.
  bool follows(std::uint32_t line, std::string_view id) {
    if (left_out_ == 0 || line < first_left_out_) return false;
    if (explained_.contains(id)) return true;
    if (explained_.size() == left_out_) return false;
    explained_.emplace(id);
    return true;
  }

  struct Memory {
    std::uint64_t size = 0;
    std::uint64_t addr = 0;
    std::uint64_t number = 0;  // of the id, if `text` is empty
    std::string text;          // of the id, or empty
    std::uint32_t line = 0;
    std::uint32_t owner = 0;  // index into owners_
    bool on_host = false;

    Id id() const noexcept { return {.number = number, .text = text}; }
  };
  struct Thread {
    std::uint64_t time_ns = 0;
    bool begun = false;
    bool acts = false;  // does more than the trace's own bookkeeping
  };
  using Owner = std::pair<std::string, std::string>;  // process, context
  struct AddressRange {
    std::uint64_t size;
    std::uint32_t index;
  };
  using Space = std::map<std::uint64_t, AddressRange>;

  template <class... Args>
  void warn(std::uint32_t line, std::string_view words, const Args&... args) {
    ++report_.warnings;
    add(others_, line, words, args...);
  }
  template <class... Args>
  void warn_by_order(std::uint32_t line, std::string_view words, const Args&... args) {
    ++warnings_by_order_;
    add(by_order_, line, words, args...);
  }
  template <class... Args>
  void add(std::vector<Finding>& to, std::uint32_t line, std::string_view words,
           const Args&... args) {
    if (to.size() >= limit_) return;
    to.push_back({.severity = Finding::Severity::warning,
                  .line = line,
                  .words = (line == 0 ? text::format("{}: ", source_)
                                      : text::format("{}:{}: ", source_, line)) +
                           text::format(words, args...)});
  }

  bool worked(const Operation& operation) const {
    auto outcome = operation.has(Member::result) ? operation.result.outcome : Outcome::none;
    if (outcome == Outcome::none && operation.has(Member::expect))
      outcome = operation.expect.outcome;
    if (outcome == Outcome::none) outcome = header_.default_expect;
    return outcome == Outcome::none || outcome == Outcome::ok || outcome == Outcome::any;
  }

  std::string process_of(const Operation& operation) const {
    return operation.has(Member::process) ? said(operation.process) : header_.default_process;
  }
  std::string context_of(const Operation& operation) const {
    return operation.has(Member::context) ? said(operation.context) : header_.default_context;
  }
  /// Names what one reset ends: a context, or the unnamed context of a device.
  Owner owner_name(const Operation& operation) const {
    auto context = context_of(operation);
    if (context.empty()) {
      const auto otherwise = std::max<std::int64_t>(header_.default_device, 0);
      context =
          text::format("device {}", operation.has(Member::device) ? operation.device : otherwise);
    }
    return {process_of(operation), std::move(context)};
  }
  /// Caches the last answer, since most operations are on the thread of the one before.
  Thread& thread_of(const Operation& operation) {
    const bool named = operation.has(Member::thread);
    const bool same = last_thread_ != nullptr && named == last_named_ &&
                      (!named || (operation.thread.is_number() && last_number_ &&
                                  operation.thread.number == *last_number_));
    if (same) return *last_thread_;
    last_named_ = named;
    last_number_.reset();
    if (named && operation.thread.is_number()) last_number_ = operation.thread.number;
    last_thread_ = &threads_[named ? said(operation.thread) : header_.default_thread];
    return *last_thread_;
  }

  void look_at_order(const Operation& operation) {
    if (ended_)
      warn_by_order(operation.line, "{} after end: expected end to be the last operation",
                    name(operation.op));
    if (operation.has(Member::seq)) {
      sorted_ = sorted_ && (!any_seq_ || operation.seq > last_seq_);
      any_seq_ = true;
      last_seq_ = operation.seq;
    }
    if (operation.op == Op::end) look_at_counts(operation);
    if (operation.op == Op::defer_cleanup) ++deferred_[context_of(operation)];
    if (operation.op == Op::end_defer_cleanup) --deferred_[context_of(operation)];
    auto& thread = thread_of(operation);
    if (operation.has(Member::time_ns)) {
      if (operation.time_ns < thread.time_ns) {
        warn_by_order(operation.line,
                      "\"time_ns\" is {}, and was {} before in its thread: expected time to go on",
                      operation.time_ns, thread.time_ns);
      }
      thread.time_ns = operation.time_ns;
    }
    if (operation.op == Op::thread_begin && std::exchange(thread.begun, true)) {
      warn_by_order(operation.line,
                    "thread_begin of a thread that has begun: expected a thread_end between");
    }
    if (operation.op == Op::thread_end && !std::exchange(thread.begun, false)) {
      warn_by_order(operation.line,
                    "thread_end of a thread that has not begun: expected a thread_begin before");
    }
  }

  void look_at_features(const Operation& operation) {
    const auto uses = [&](std::size_t feature) { used_[feature] = true; };
    if (operation.has(Member::stream) || operation.op == Op::stream_create) uses(0);
    if (operation.has(Member::record)) uses(1);
    if (operation.has(Member::handle)) uses(2);
    if (operation.has(Member::pool)) uses(3);
    if (operation.has(Member::graph)) uses(7);
    if (operation.op == Op::host_function) uses(8);
    if (operation.has(Member::range)) uses(9);
    if (operation.has(Member::peer)) uses(10);
    if (operation.has(Member::process) || processes_.empty())
      processes_.insert(process_of(operation));
    thread_of(operation).acts = true;
  }

  void look_at_memory(const Operation& operation) {
    if (gives_memory_an_id(operation.op)) {
      make(operation);
    } else if (operation.op == Op::free || operation.op == Op::close_ipc_handle) {
      const auto index = ids_.find(operation.id);
      if (index != LiveIds::kNone) {
        end_memory(index);
      } else {
        note_used(operation.id);
      }
    } else if ((operation.op == Op::reset || operation.op == Op::context_destroy) &&
               worked(operation)) {
      const auto owner = owner_of(operation);
      std::vector<std::uint32_t> ended;
      for (const auto& [index, memory] : live_) {
        if (memory.owner == owner) ended.push_back(index);
      }
      for (const auto index : ended) end_memory(index);
    }
  }

  void make(const Operation& operation) {
    const bool again = ids_.was_used(operation.id);
    if (operation.has(Member::size) && operation.size == 0 && !operation.has(Member::expect)) {
      warn(operation.line, "{} of 0 bytes: expected a size that every manager serves",
           name(operation.op));
    }
    if (again) return;  // a fault that the Trace reports
    if (!worked(operation)) return note_used(operation.id);
    const auto index = made_++;
    ids_.add(operation.id, index);
    ++report_.allocations;
    auto& memory = live_[index];
    memory = {.size = operation.has(Member::size) ? operation.size : 0,
              .addr = operation.has(Member::addr) ? operation.addr : 0,
              .number = operation.id.number,
              .text = std::string(operation.id.text),
              .line = operation.line,
              .owner = owner_of(operation),
              .on_host = operation.op == Op::memhostalloc || operation.op == Op::mempin};
    live_bytes_.add(memory.size);
    report_.peak_live_bytes = std::max(report_.peak_live_bytes, live_bytes_.value());
    const bool opaque =
        operation.has(Member::kind) && operation.kind != Kind::device;  // has no address of its own
    if (memory.addr == 0 || memory.size == 0 || opaque || operation.op == Op::open_ipc_handle) {
      memory.addr = 0;
      return;
    }
    auto& space = space_of(memory);
    auto next = space.lower_bound(memory.addr);
    // Compares differences, since address plus size may overflow in a faulty file.
    if (next != space.begin() &&
        std::prev(next)->second.size > memory.addr - std::prev(next)->first)
      --next;
    const bool meets = next != space.end() &&
                       (next->first <= memory.addr || next->first - memory.addr < memory.size);
    if (meets) {
      const auto& other = next->second;
      warn_by_order(operation.line,
                    "id {} is recorded at {}, where id {} of line {} lives: expected free memory",
                    said(operation.id), text::hex(memory.addr), said(live_.at(other.index).id()),
                    live_.at(other.index).line);
      memory.addr = 0;
      return;
    }
    space.emplace(memory.addr, AddressRange{memory.size, index});
  }

  /// Marks the id as used and not live.
  void note_used(const Id& id) {
    if (ids_.was_used(id)) return;
    ids_.add(id, 0);
    ids_.remove(id);
  }

  std::uint32_t owner_of(const Operation& operation) {
    const bool unnamed = !operation.has(Member::context) && !operation.has(Member::device) &&
                         !operation.has(Member::process);
    if (unnamed && unnamed_owner_) return *unnamed_owner_;
    const auto [known, added] = owner_numbers_.try_emplace(
        owner_name(operation), static_cast<std::uint32_t>(owners_.size()));
    if (added) owners_.push_back(&known->first);
    if (unnamed) unnamed_owner_ = known->second;
    return known->second;
  }

  Space& space_of(const Memory& memory) {
    return spaces_[{owners_[memory.owner]->first, memory.on_host}];
  }

  void end_memory(std::uint32_t index) {
    const auto found = live_.find(index);
    if (found == live_.end()) return;
    const auto& memory = found->second;
    live_bytes_.subtract(memory.size);
    if (memory.addr != 0) space_of(memory).erase(memory.addr);
    ids_.remove(memory.id());
    live_.erase(found);
  }

  void look_at_counts(const Operation& operation) {
    ended_ = true;
    const std::array<std::pair<Member, std::uint64_t>, 3> counts{
        {{Member::events, operations_ - 1},
         {Member::live, live_.size()},
         {Member::live_bytes, live_bytes_.value()}}};
    const std::array<std::uint64_t, 3> stated{operation.events, operation.live,
                                              operation.live_bytes};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto [member, counted] = counts[i];
      if (operation.has(member) && stated[i] != counted) {
        warn_by_order(operation.line, "end says \"{}\" is {}: expected {}", name(member), stated[i],
                      counted);
      }
    }
  }

  void look_at_end() {
    report_.of_requests = is_of_requests(header_);
    report_.leaked = live_.size();
    report_.leaked_bytes = live_bytes_.value();
    if (!live_.empty()) {
      const auto first =
          std::min_element(live_.begin(), live_.end(), [](const auto& a, const auto& b) {
            return a.first < b.first;
          })->first;
      warn_by_order(
          live_.at(first).line,
          "{} allocations of {} bytes are never freed, id {} first: expected a free of each",
          live_.size(), live_bytes_.value(), said(live_.at(first).id()));
    }
    for (const auto& [thread, state] : threads_) {
      if (state.begun)
        warn_by_order(last_line_, "thread {} has no thread_end: expected one", thread);
    }
    for (const auto& [context, depth] : deferred_) {
      if (depth > 0) {
        warn_by_order(last_line_,
                      "{} defer_cleanup left open in context {}: expected end_defer_cleanup", depth,
                      context.empty() ? "without name" : context);
      }
    }
    if (of_ == Input::recording) return;
    if (header_.has_complete && header_.complete && !ended_) {
      warn_by_order(last_line_,
                    "no end in a trace that says it is complete: expected the operation end");
    }
    used_[4] = trace_.device_count() > 1;
    used_[5] = processes_.size() > 1;
    used_[6] = std::count_if(threads_.begin(), threads_.end(),
                             [](const auto& t) { return t.second.acts; }) > 1;
    for (std::size_t i = 0; i < kFeatures.size(); ++i) {
      const auto& known = header_.requires_;
      if (used_[i] && std::find(known.begin(), known.end(), kFeatures[i]) == known.end()) {
        report_.unnamed_features.push_back(kFeatures[i]);
        warn(1, "\"requires\" lacks \"{}\", which the trace uses: expected it to be named",
             kFeatures[i]);
      }
    }
  }

  const std::string& source_;
  CheckReport& report_;
  std::size_t limit_;
  Input of_;
  Trace trace_;
  Header header_;
  std::vector<Finding> errors_, by_order_, others_;
  std::uint64_t warnings_by_order_ = 0;
  std::uint64_t left_out_ = 0;  // operations
  std::uint32_t first_left_out_ = 0;
  std::set<std::string, std::less<>> explained_;
  std::uint64_t operations_ = 0;
  std::uint32_t last_line_ = 1;

  bool sorted_ = true;
  bool any_seq_ = false;
  bool begun_ = false;
  bool ended_ = false;
  std::uint64_t last_seq_ = 0;
  std::map<std::string, Thread> threads_;
  std::map<std::string, std::int64_t> deferred_;
  std::set<std::string> processes_;
  std::array<bool, kFeatures.size()> used_{};

  Thread* last_thread_ = nullptr;
  bool last_named_ = false;
  std::optional<std::uint64_t> last_number_;  // of the last thread, if it is a number

  LiveIds ids_;
  std::uint32_t made_ = 0;
  std::optional<std::uint32_t> unnamed_owner_;
  std::map<Owner, std::uint32_t> owner_numbers_;
  std::vector<const Owner*> owners_;
  std::unordered_map<std::uint32_t, Memory> live_;  // by index
  ByteSum live_bytes_;
  std::map<std::pair<std::string, bool>, Space> spaces_;
};

}  // namespace

Result<CheckReport> check(format::ByteSource& source, const ReadOptions& options, std::size_t limit,
                          bool streams) {
  CheckReport report;
  Checker checker(source.name(), report, limit, Checker::Input::trace, streams);
  auto tolerant = options;
  tolerant.on_fault = [&](std::uint32_t line, const Error& fault) {
    checker.leave_out(line, fault);
  };
  tolerant.partial = true;
  auto summary = read(source, checker, tolerant);
  const bool whole = summary && !summary->torn;
  if (summary) {
    if (summary->torn && !options.partial) {
      checker.error(checker.last_line(),
                    Error{.code = Errc::parse_error, .message = summary->torn_where});
    }
    report.summary = std::move(*summary);
  } else {
    if (!checker.begun()) return std::move(summary).error();
    if (checker.needs_memory()) {
      report.needs_memory = true;
      return report;
    }
    checker.error(checker.last_line() + 1, summary.error());
    if (auto done = checker.finish(); !done) return std::move(done).error();
  }
  checker.list_findings(whole);
  return report;
}

Result<CheckReport> check(format::ByteSource& source, const Importer& importer,
                          const ImportOptions& options, std::size_t limit) {
  CheckReport report;
  Checker checker(source.name(), report, limit, Checker::Input::recording, false);
  auto counts = importer.read(source, checker, options);
  if (counts) {
    report.summary.torn = !checker.ended();  // importers write `end` only for a whole file
    report.rows = *std::move(counts);
  } else {
    if (!checker.begun()) return std::move(counts).error();
    checker.error(checker.last_line() + 1, counts.error());
    if (auto done = checker.finish(); !done) return std::move(done).error();
  }
  report.summary.operations = checker.operations();
  checker.list_findings(report.rows.has_value());
  return report;
}

}  // namespace emm::trace
