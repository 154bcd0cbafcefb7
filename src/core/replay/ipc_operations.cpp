#include "replay/ipc_operations.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;
using trace::Outcome;

/// The exporter and the importer exchange this many bytes at either end of the exported memory.
constexpr std::uint64_t kComparedEdge = 4096;

/// The content that another process must find at `offset` of an allocation. It differs from word to
/// word, so that content from elsewhere in the allocation does not match.
std::vector<std::byte> marked(Pattern pattern, std::uint64_t offset, std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  pattern.fill(bytes, offset);
  for (std::size_t i = 0; i < count; ++i) bytes[i] ^= static_cast<std::byte>((offset + i) / 4 * 37);
  return bytes;
}

}  // namespace

void IpcOperations::get_handle(const Event& event) {
  const auto slot = core_.held.live.slot(event.id);
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const auto number = core_.state.trace.detail(event).handle;
  if (slot == LiveSet::kNone) {
    exports_[number].outcome = core_.held.refused_outcome(event.id);
    return core_.judge.skip_unmade(event);
  }
  const auto& memory = core_.held.live[slot].memory;
  // `offset` and `size` give the exported part; without them the whole is exported.
  const auto start = core_.state.trace.detail(event).offset;
  const auto stop = event.size != 0 ? start + event.size : memory.size();
  const auto part =
      MemoryView{.device_pointer = memory.device_pointer(), .size = memory.size()}.view(start,
                                                                                        stop);
  Times times{.begin_ns = core_.now(), .end_ns = 0};
  auto handle = part ? context->context().get_ipc_handle(*part) : Result<IpcHandle>(part.error());
  times.end_ns = core_.now();
  const auto outcome = outcome_of(handle);
  auto& exported = exports_[number];
  exported.of = event.id;
  exported.context = event.context;
  exported.start = start;
  exported.outcome = outcome;
  exported.handle.reset();
  if (handle) {
    if (core_.state.options.checks && handle->fields().size != part->size) {
      core_.judge.add_violation(
          log::Violation::Kind::wrong_size,
          text::format("the handle of {} says {} bytes",
                       describe(core_.state.trace, core_.held.live[slot]), handle->fields().size));
    }
    exported.handle = std::move(*handle);
  }
  core_.log.add(event, outcome, times, memory.device_pointer().value, core_.held.live[slot].size);
  core_.judge.judge(event, outcome, error_of(handle));
}

Result<Peer*> IpcOperations::peer(std::uint32_t process, std::uint32_t device) {
  auto& found = peers_[{process, device}];
  if (!found) {
    auto started = stack_.start_peer(device);
    if (!started) return std::move(started).error();
    found = std::move(*started);
  }
  return found.get();
}

Result<Import> IpcOperations::open(const Event& event, Export& exported) {
  const auto& detail = core_.state.trace.detail(event);
  const auto& fields = exported.handle->fields();
  Import import{.handle = detail.handle, .size = fields.size};
  if (detail.process == 0) {
    auto view = exported.handle->open(core_.contexts[event.context].context());
    if (!view) return std::move(view).error();
    import.address = view->device_pointer.value;
    return import;
  }
  auto there = peer(detail.process, core_.contexts[exported.context].device());
  if (!there) return std::move(there).error();
  auto opening = (*there)->open(fields);
  if (!opening) return std::move(opening).error();
  import.peer = *there;
  import.opening = *opening;
  auto address = (*there)->address(*opening);
  if (!address) return std::move(address).error();
  import.address = *address;
  return import;
}

void IpcOperations::open_handle(const Event& event) {
  const auto& detail = core_.state.trace.detail(event);
  const auto found = exports_.find(detail.handle);
  if (found == exports_.end() || !found->second.handle) {
    core_.held.refused[static_cast<std::uint32_t>(event.id)] = {};
    if (found == exports_.end() || found->second.outcome != Outcome::unsupported) {
      return core_.judge.skip_unmade(event);
    }
    // If the manager declined the handle, opening it counts as declined too, whatever `expect`
    // says.
    return core_.judge.count_declined(event.op, "its handle was declined");
  }
  if (core_.contexts.use(event.context) == nullptr) return;
  Times times{.begin_ns = core_.now(), .end_ns = 0};
  auto import = open(event, found->second);
  times.end_ns = core_.now();
  // An io_error comes from the peer, which belongs to the harness. It says nothing about the
  // manager.
  if (!import && import.error().code == Errc::io_error) return core_.state.end_with(import.error());
  const auto outcome = outcome_of(import);
  core_.log.add(event, outcome, times, import ? import->address : 0, import ? import->size : 0);
  core_.judge.judge(event, outcome, error_of(import));
  if (!import) {
    core_.held.refused[static_cast<std::uint32_t>(event.id)] = {.bytes = 0, .outcome = outcome};
    return;
  }
  if (detail.has_same_as) {
    const auto other = core_.held.imports.find(static_cast<std::uint32_t>(detail.same_as));
    if (other != core_.held.imports.end() && other->second.address != import->address) {
      core_.judge.add_violation(
          log::Violation::Kind::unexpected,
          text::format("{} is at {}, expected at {} like {}", core_.state.trace.name(event.id),
                       text::hex(import->address), text::hex(other->second.address),
                       core_.state.trace.name(detail.same_as)));
    }
  }
  if (core_.state.options.checks && import->peer != nullptr)
    exchange_content(found->second, *import);
  core_.held.imports.emplace(static_cast<std::uint32_t>(event.id), *import);
}

void IpcOperations::compare_content(const Live& exporter, std::string_view who,
                                    std::span<const std::byte> found,
                                    std::span<const std::byte> expected, std::uint64_t at) {
  const auto [wrong, wanted] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (wrong == found.end()) return;
  core_.judge.add_violation(log::Violation::Kind::wrong_address,
                            text::format("{} finds other content in {}: byte {} is {}, expected {}",
                                         who, describe(core_.state.trace, exporter),
                                         at + static_cast<std::uint64_t>(wrong - found.begin()),
                                         text::hex(std::to_integer<std::uint64_t>(*wrong)),
                                         text::hex(std::to_integer<std::uint64_t>(*wanted))));
}

void IpcOperations::exchange_content(const Export& exported, const Import& import) {
  const auto slot = core_.held.live.slot(exported.of);
  if (slot == LiveSet::kNone || core_.held.live[slot].ended) return;
  const EngineWork work(core_.clock);
  const auto& exporter = core_.held.live[slot];
  auto& driver = core_.contexts[exporter.context].driver();
  const auto ptr = exporter.memory.device_pointer();
  const auto start = exported.start;
  const auto size = std::min(import.size, exporter.size - start);
  const Pattern ours(exported.of);
  const auto theirs = Pattern::of_peer(exported.of);

  const auto exchange = [&](std::uint64_t offset, std::uint64_t count) -> Status {
    const auto at = start + offset;  // in this process; the other one counts from the exported part
    auto bytes = marked(ours, at, count);
    if (auto written = driver.memcpy_htod(ptr + at, bytes); !written) return written;
    auto read = import.peer->read(import.opening, offset, count);
    if (!read) return std::move(read).error();
    compare_content(exporter, "the other process", *read, bytes, at);

    const auto answer = marked(theirs, at, count);
    if (auto written = import.peer->write(import.opening, offset, answer); !written) return written;
    if (auto copied = driver.memcpy_dtoh(bytes, ptr + at); !copied) return copied;
    compare_content(exporter, "after the other process wrote, this one", bytes, answer, at);

    ours.fill(bytes, at);
    return driver.memcpy_htod(ptr + at, bytes);
  };
  // Running work could copy what is written here.
  auto exchanged = driver.ctx_synchronize();
  if (exchanged) exchanged = exchange(0, std::min(size, kComparedEdge));
  if (exchanged && size > kComparedEdge)
    exchanged = exchange(std::max(kComparedEdge, size - kComparedEdge),
                         std::min(kComparedEdge, size - kComparedEdge));
  if (!exchanged && exchanged.error().code == Errc::io_error)
    return core_.state.end_with(exchanged.error());
  if (!exchanged) {
    core_.judge.add_violation(
        log::Violation::Kind::wrong_address,
        text::format("{} cannot be used from both processes: {}",
                     describe(core_.state.trace, exporter), describe(exchanged.error())));
  }
}

Status IpcOperations::close(const Import& import) {
  if (import.peer != nullptr) return import.peer->close(import.opening);
  return exports_.at(import.handle).handle->close();
}

void IpcOperations::close_handle(const Event& event) {
  const auto found = core_.held.imports.find(static_cast<std::uint32_t>(event.id));
  if (found == core_.held.imports.end()) return core_.judge.skip_unmade(event);
  const auto size = found->second.size;
  const auto address = found->second.address;
  Times times{.begin_ns = core_.now(), .end_ns = 0};
  const auto closed = close(found->second);
  times.end_ns = core_.now();
  core_.held.imports.erase(found);
  if (!closed && closed.error().code == Errc::io_error) return core_.state.end_with(closed.error());
  const auto outcome = outcome_of(closed);
  core_.log.add(event, outcome, times, address, size, Op::open_ipc_handle);
  core_.judge.judge(event, outcome, error_of(closed));
}

}  // namespace emm::replay
