#include "tools/peers/requests_of.hpp"

#include <map>
#include <optional>
#include <vector>

#include "base/text_format.hpp"
#include "exchange/importer.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "trace/generate.hpp"
#include "trace/trace.hpp"

namespace emm::peers {
namespace {

class Slots {
 public:
  struct Slot {
    std::uint32_t number = 0;
    StreamId stream{};
  };

  std::uint32_t take(AllocId id, StreamId stream) {
    if (empty_.empty()) empty_.push_back(count_++);
    const auto slot = empty_.back();
    empty_.pop_back();
    taken_.emplace(id, Slot{.number = slot, .stream = stream});
    return slot;
  }
  /// Nothing where `id` has none.
  std::optional<Slot> release(AllocId id) {
    const auto found = taken_.find(id);
    if (found == taken_.end()) return std::nullopt;
    const auto slot = found->second;
    empty_.push_back(slot.number);
    taken_.erase(found);
    return slot;
  }
  std::vector<AllocId> taken() const {
    std::vector<AllocId> ids;
    for (const auto& [id, slot] : taken_) ids.push_back(id);
    return ids;
  }

 private:
  std::map<AllocId, Slot> taken_;
  std::vector<std::uint32_t> empty_;
  std::uint32_t count_ = 0;
};

std::string lines_of(const trace::Trace& trace) {
  std::string out;
  Slots slots;
  const auto free = [&](AllocId id) {
    const auto slot = slots.release(id);
    if (slot) out += text::format("f {} {}\n", slot->number, index(slot->stream));
  };
  std::uint32_t device = 0;
  bool seen = false;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    const auto of = trace.contexts()[index(event.context)].device;
    if (event.has(trace::event_flag::backing)) continue;
    switch (event.op) {
      case trace::Op::memalloc:
      case trace::Op::memallocmanaged:
        if (!seen) device = of;
        seen = true;
        if (of != device || event.size == 0 || event.recorded() == trace::Outcome::oom) break;
        out += text::format("a {} {} {}\n", slots.take(event.id, event.stream), event.size,
                            index(event.stream));
        break;
      case trace::Op::free:
        free(event.id);
        break;
      case trace::Op::reset:
        if (of != device) break;
        for (const auto id : slots.taken()) free(id);
        break;
      default:
        break;
    }
  }
  return out;
}

Status write_lines(const std::string& lines, const std::string& to) {
  auto sink = format::ByteSink::open(to);
  if (!sink) return std::move(sink).error();
  if (auto written = (*sink)->write(lines); !written) return written;
  return (*sink)->close();
}

}  // namespace

Status generate_requests(const std::string& kind, std::uint64_t streams, std::uint64_t events,
                         const std::string& to) {
  trace::Trace made;
  if (auto done = trace::generate({.kind = kind, .events = events, .streams = streams}, made);
      !done)
    return done;
  return write_lines(lines_of(made), to);
}

Status write_requests(const std::string& trace, const std::string& to) {
  auto source = format::ByteSource::open(trace);
  if (!source) return std::move(source).error();
  auto importer = trace::detect(**source);
  if (!importer) return std::move(importer).error();
  trace::Trace loaded;
  loaded.set_source((*source)->name());
  auto counts = (*importer)->read(**source, loaded, {});
  if (!counts) return std::move(counts).error();
  return write_lines(lines_of(loaded), to);
}

}  // namespace emm::peers
