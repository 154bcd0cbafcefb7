#include "trial/rewrite.hpp"

#include <set>

#include "base/assert.hpp"
#include "base/text_format.hpp"
#include "trace/extensions.hpp"
#include "trace/header.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"

namespace emm::trial {
namespace {

using trace::Member;
using trace::Members;
using trace::Op;
using trace::Operation;

// Members that only a minimized trace has; a reader that does not know them passes them by.
constexpr std::string_view kNote = "x-minimized", kRecordedSize = "x-recorded_size",
                           kStandsFor = "x-stands_for";

std::string said(const trace::Id& id) {
  return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
}

/// Answers whether a Trace keeps operations of this kind.
bool is_event(Op op) noexcept { return op != Op::define && op != Op::end && op != Op::extension; }

/// Passes every operation to `each`, with its index among those that a Trace keeps.
template <class Each>
class Counting final : public trace::OperationSink {
 public:
  explicit Counting(Each each) : each_(std::move(each)) {}
  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const Operation& operation) override {
    const auto place = count_;
    if (is_event(operation.op)) ++count_;
    return each_(operation, place);
  }

 private:
  Each each_;
  std::uint32_t count_ = 0;
};

/// A Trace whose lines are places in the file, so that an event's index leads to its place there.
class FileOrder final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header& header) override { return trace_.on_header(header); }
  Status on_operation(const Operation& operation) override {
    if (!is_event(operation.op)) return trace_.on_operation(operation);
    auto placed = operation;
    placed.line = count_++;
    return trace_.on_operation(placed);
  }
  Status finish() override { return trace_.finish(); }
  const trace::Trace& trace() const noexcept { return trace_; }

 private:
  trace::Trace trace_;
  std::uint32_t count_ = 0;
};

class Rewriter {
 public:
  Rewriter(const Rewriting& rewriting, trace::OperationSink& to) : what_(rewriting), to_(to) {}

  Status run() {
    if (auto placed = place(); !placed) return placed;
    if (auto begun = write_header(); !begun) return begun;
    Counting names([&](const Operation& operation, std::uint32_t place) -> Status {
      if (is_event(operation.op) && step_at(place) != nullptr) note_names(operation);
      return {};
    });
    if (auto read = what_.read(names); !read) return read;
    Counting writing([&](const Operation& operation, std::uint32_t place) -> Status {
      if (operation.op == Op::define) return define(operation);
      if (!is_event(operation.op)) return {};
      const auto* step = step_at(place);
      return step == nullptr ? Status() : write(operation, *step);
    });
    if (auto read = what_.read(writing); !read) return read;
    if (auto ended = write_end(); !ended) return ended;
    return to_.finish();
  }

 private:
  const Step* step_at(std::uint32_t place) const { return steps_[place]; }

  /// Finds the step of each event by its place in the file. The order by seq may be another.
  Status place() {
    FileOrder in_file;
    if (auto read = what_.read(in_file); !read) return read;
    const auto& numbered = in_file.trace();
    EMM_ASSERT(numbered.size() == what_.trace.size());
    steps_.resize(numbered.size());
    for (const auto& step : what_.draft.steps) {
      steps_[numbered[step.event].line] = &step;
      const auto& event = what_.trace[step.event];
      if (event.op <= Op::open_ipc_handle && event.op >= Op::memalloc) {
        kept_.insert(what_.trace.name(event.id));
      }
    }
    return {};
  }

  Status write_header() {
    auto header = what_.trace.header();
    if (what_.capacity != 0) {
      for (const auto device : what_.trace.devices()) {
        auto found = header.devices.begin();
        while (found != header.devices.end() && found->id != device) ++found;
        if (found == header.devices.end()) {
          found = header.devices.emplace(found);
          found->id = device;
        }
        found->capacity = what_.capacity;
        found->free_at_start = 0;
      }
    }
    auto note = what_.note;
    if (const auto before = trace::extension(header.extensions, kNote); !before.empty()) {
      note.insert(note.rfind('}'), text::format(",\"before\":{}", before));
    }
    trace::set_extension(header.extensions, kNote, note);
    return to_.on_header(header);
  }

  void note_names(const Operation& operation) {
    const auto note = [&](Member member, trace::DefineKind kind, const trace::Id& id) {
      if (operation.has(member)) names_.emplace(kind, said(id));
    };
    note(Member::site, trace::DefineKind::site, operation.site);
    note(Member::thread, trace::DefineKind::thread, operation.thread);
    note(Member::process, trace::DefineKind::process, operation.process);
    note(Member::context, trace::DefineKind::context, operation.context);
  }

  Status define(const Operation& operation) {
    if (!names_.contains({operation.define_kind, said(operation.id)})) return {};
    return put(operation);
  }

  Status put(const Operation& operation) {
    ++written_;
    return to_.on_operation(operation);
  }

  Status write(Operation operation, const Step& step) {
    const auto& event = what_.trace[step.event];
    if (what_.draft.plain_stream[index(event.stream)] && operation.op != Op::stream_create) {
      if (!trace::rule(operation.op).required.has(Member::stream))
        operation.members.remove(Member::stream);
    }
    if (what_.draft.one_thread) operation.members.remove(Member::thread);
    if (step.event == what_.target && trace::is_refused(event)) {
      operation.members.remove(Member::result);
    }
    if (operation.has(Member::size) && step.size != operation.size) {
      operation.size = step.size;
      operation.members.remove(Member::addr);
      operation.members.remove(Member::granted);
      extension_ =
          operation.has(Member::extension) ? std::string(operation.extension) : std::string();
      // A trace that was minimized before already says the recorded size of a request. For requests
      // that were merged now, only the sum is known.
      const bool is_said =
          step.stands_for == 1 && !trace::extension(extension_, kRecordedSize).empty();
      if (!is_said) {
        trace::set_extension(extension_, kRecordedSize, text::format("{}", step.whole));
        trace::set_extension(
            extension_, kStandsFor,
            step.stands_for > 1 ? text::format("{}", step.stands_for) : std::string());
      }
      operation.members.add(Member::extension);
      operation.extension = extension_;
    }
    if (operation.op == Op::use) {
      uses_.clear();
      for (const auto& id : operation.ids) {
        if (kept_.contains(said(id))) uses_.push_back(id);
      }
      if (uses_.empty()) return {};
      operation.ids = uses_;
    }
    return put(operation);
  }

  /// Writes an `end` that counts what is live at the draft's end.
  Status write_end() {
    DraftBuilder builder(what_.trace);
    const auto built = builder.build(what_.draft);
    if (!built) return built.error();
    Operation end{.op = Op::end,
                  .members = Members(Member::events, Member::live, Member::live_bytes)};
    end.events = written_;
    const auto count_live = [&](std::uint64_t size) {
      ++end.live;
      end.live_bytes += size;
    };
    for (const auto& step : what_.draft.steps) {
      const bool asked_again =
          step.event == what_.target && trace::is_refused(what_.trace[step.event]);
      if (asked_again) count_live(step.size);
    }
    using MemoryKind = trace::Lifetime::MemoryKind;
    const trace::Lifetimes lifetimes(*built);
    for (const auto& lifetime : lifetimes.all()) {
      if (lifetime.what == MemoryKind::nothing || lifetime.what == MemoryKind::backing ||
          lifetime.death != trace::kNever)
        continue;
      count_live(lifetime.size);
    }
    return to_.on_operation(end);
  }

  const Rewriting& what_;
  trace::OperationSink& to_;
  std::vector<const Step*> steps_;
  std::set<std::string> kept_;
  std::set<std::pair<trace::DefineKind, std::string>> names_;
  std::vector<trace::Id> uses_;
  std::string extension_;
  std::uint64_t written_ = 0;
};

}  // namespace

Status rewrite(const Rewriting& rewriting, trace::OperationSink& to) {
  return Rewriter(rewriting, to).run();
}

}  // namespace emm::trial
