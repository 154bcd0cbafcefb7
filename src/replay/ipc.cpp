#include "replay/run.hpp"

namespace emm::replay {
namespace {

constexpr std::uint64_t kEdge =
    4096;  ///< Looked at from both processes, at either end of what is exported.

/// What is written at `offset` of an allocation to be looked at from another process: it differs
/// from word to word, so that content from elsewhere in the same allocation is other content.
std::vector<std::byte> marked(Pattern pattern, std::uint64_t offset, std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  pattern.fill(bytes, offset);
  for (std::size_t i = 0; i < count; ++i) bytes[i] ^= static_cast<std::byte>((offset + i) / 4 * 37);
  return bytes;
}

}  // namespace

void Run::get_ipc_handle(const Event& event) {
  const auto slot = live_.slot(event.id);
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const auto number = trace_.detail(event).handle;
  if (slot == LiveSet::kNone) {
    exports_[number].outcome = refused_outcome(event.id);
    return unmade(event);
  }
  const auto& memory = live_[slot].memory;
  // `offset` and `size` are the part that is exported; without them it is all of it.
  const auto start = trace_.detail(event).offset;
  const auto stop = event.size != 0 ? start + event.size : memory.size();
  const auto part =
      MemoryView{.device_pointer = memory.device_pointer(), .size = memory.size()}.view(start,
                                                                                        stop);
  Times times{.begin_ns = now(), .end_ns = 0};
  auto handle = part ? lane->context().get_ipc_handle(*part) : Result<IpcHandle>(part.error());
  times.end_ns = now();
  const auto outcome = handle ? Outcome::ok : outcome_of(handle.error());
  auto& exported = exports_[number];
  exported.of = event.id;
  exported.context = event.context;
  exported.start = start;
  exported.outcome = outcome;
  exported.handle.reset();
  if (handle) {
    if (options_.checks && handle->fields().size != part->size) {
      violation(log::Violation::Kind::wrong_size,
                text::format("the handle of {} says {} bytes", described(live_[slot]),
                             handle->fields().size));
    }
    exported.handle = std::move(*handle);
  }
  record(event, outcome, times, memory.device_pointer().value, live_[slot].size);
  settle(event, outcome, handle ? nullptr : &handle.error());
}

Result<Peer*> Run::peer(std::uint32_t process, std::uint32_t device) {
  auto& found = peers_[{process, device}];
  if (!found) {
    auto started = stack_.start_peer(device);
    if (!started) return std::move(started).error();
    found = std::move(*started);
  }
  return found.get();
}

Result<Run::Import> Run::open_import(const Event& event, Export& exported) {
  const auto& detail = trace_.detail(event);
  const auto& fields = exported.handle->fields();
  Import import{.handle = detail.handle, .size = fields.size};
  if (detail.process == 0) {
    auto view = exported.handle->open(lanes_[index(event.context)]->context());
    if (!view) return std::move(view).error();
    import.address = view->device_pointer.value;
    return import;
  }
  auto there = peer(detail.process, lanes_[index(exported.context)]->device());
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

void Run::open_ipc_handle(const Event& event) {
  const auto& detail = trace_.detail(event);
  const auto found = exports_.find(detail.handle);
  if (found == exports_.end() || !found->second.handle) {
    refused_[static_cast<std::uint32_t>(event.id)] = {};
    if (found == exports_.end() || found->second.outcome != Outcome::unsupported) {
      return unmade(event);
    }
    // What was declined at the export is not asked for again here, whatever `expect` says.
    return decline(event.op, "its handle was declined");
  }
  if (lane(event.context) == nullptr) return;
  Times times{.begin_ns = now(), .end_ns = 0};
  auto import = open_import(event, found->second);
  times.end_ns = now();
  // The other process is the harness's: what becomes of it says nothing of the manager.
  if (!import && import.error().code == Errc::io_error) return fatal(import.error());
  const auto outcome = import ? Outcome::ok : outcome_of(import.error());
  record(event, outcome, times, import ? import->address : 0, import ? import->size : 0);
  settle(event, outcome, import ? nullptr : &import.error());
  if (!import) {
    refused_[static_cast<std::uint32_t>(event.id)] = {.bytes = 0, .outcome = outcome};
    return;
  }
  if (detail.has_same_as) {
    const auto other = imports_.find(static_cast<std::uint32_t>(detail.same_as));
    if (other != imports_.end() && other->second.address != import->address) {
      violation(log::Violation::Kind::unexpected,
                text::format("{} is at {}, expected at {} like {}", trace_.name(event.id),
                             text::hex(import->address), text::hex(other->second.address),
                             trace_.name(detail.same_as)));
    }
  }
  if (options_.checks && import->peer != nullptr) exchange_content(found->second, *import);
  imports_.emplace(static_cast<std::uint32_t>(event.id), *import);
}

void Run::compare_exchanged(const Live& exporter, std::string_view who,
                            std::span<const std::byte> found, std::span<const std::byte> expected,
                            std::uint64_t at) {
  const auto [wrong, wanted] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (wrong == found.end()) return;
  violation(
      log::Violation::Kind::wrong_address,
      text::format("{} finds other content in {}: byte {} is {}, expected {}", who,
                   described(exporter), at + static_cast<std::uint64_t>(wrong - found.begin()),
                   text::hex(std::to_integer<std::uint64_t>(*wrong)),
                   text::hex(std::to_integer<std::uint64_t>(*wanted))));
}

void Run::exchange_content(const Export& exported, const Import& import) {
  const auto slot = live_.slot(exported.of);
  if (slot == LiveSet::kNone || live_[slot].ended) return;
  const Ours quiet(*this);
  const auto& exporter = live_[slot];
  auto& driver = lanes_[index(exporter.context)]->driver();
  const auto ptr = exporter.memory.device_pointer();
  const auto start = exported.start;
  const auto size = std::min(import.size, exporter.size - start);
  const Pattern ours(exported.of);
  const auto theirs = Pattern::of_peer(exported.of);

  const auto exchange = [&](std::uint64_t offset, std::uint64_t count) -> Status {
    const auto at = start + offset;  // here; the other process counts from what was exported
    auto bytes = marked(ours, at, count);
    if (auto written = driver.memcpy_htod(ptr + at, bytes); !written) return written;
    auto read = import.peer->read(import.opening, offset, count);
    if (!read) return std::move(read).error();
    compare_exchanged(exporter, "the other process", *read, bytes, at);

    const auto answer = marked(theirs, at, count);
    if (auto written = import.peer->write(import.opening, offset, answer); !written) return written;
    if (auto copied = driver.memcpy_dtoh(bytes, ptr + at); !copied) return copied;
    compare_exchanged(exporter, "after the other process wrote, this one", bytes, answer, at);

    ours.fill(bytes, at);
    return driver.memcpy_htod(ptr + at, bytes);
  };
  // Work that runs still would spread what is written here.
  auto exchanged = driver.ctx_synchronize();
  if (exchanged) exchanged = exchange(0, std::min(size, kEdge));
  if (exchanged && size > kEdge)
    exchanged = exchange(std::max(kEdge, size - kEdge), std::min(kEdge, size - kEdge));
  if (!exchanged && exchanged.error().code == Errc::io_error) return fatal(exchanged.error());
  if (!exchanged) {
    violation(log::Violation::Kind::wrong_address,
              text::format("{} cannot be used from both processes: {}", described(exporter),
                           describe(exchanged.error())));
  }
}

Status Run::close_import(Import& import) {
  if (import.peer != nullptr) return import.peer->close(import.opening);
  return exports_.at(import.handle).handle->close();
}

void Run::close_ipc_handle(const Event& event) {
  const auto found = imports_.find(static_cast<std::uint32_t>(event.id));
  if (found == imports_.end()) return unmade(event);
  const auto size = found->second.size;
  const auto address = found->second.address;
  Times times{.begin_ns = now(), .end_ns = 0};
  const auto closed = close_import(found->second);
  times.end_ns = now();
  imports_.erase(found);
  if (!closed && closed.error().code == Errc::io_error) return fatal(closed.error());
  const auto outcome = closed ? Outcome::ok : outcome_of(closed.error());
  record(event, outcome, times, address, size, Op::open_ipc_handle);
  settle(event, outcome, closed ? nullptr : &closed.error());
}

}  // namespace emm::replay
