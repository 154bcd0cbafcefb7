// The file that the recorder writes while it records a program: record/raw.hpp.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text_format.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/raw_session.hpp"
#include "raw/raw.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;
using record::BlockHeader;
using record::Call;
using record::CallRecord;
using record::FileHeader;

int sniff_emm_raw(std::string_view prefix) {
  return prefix.starts_with(std::string_view(record::kMagic, sizeof record::kMagic)) ? 100 : 0;
}

/// Terminates the text and replaces the characters that a trace's text may not have.
template <std::size_t kSize>
void make_text(char (&text)[kSize]) {
  text[kSize - 1] = '\0';
  for (char* at = text; *at != '\0'; ++at) {
    if (*at < ' ' || *at > '~') *at = '?';
  }
}

/// Parses a file as it arrives: header, blocks, records.
class RawFile {
 public:
  explicit RawFile(format::ByteSource& source) : source_(source) {}

  Status read() {
    for (;;) {
      auto more = source_.next();
      if (!more) return std::move(more).error();
      if (more->empty()) break;
      auto bytes = *more;
      while (!bytes.empty()) {
        const auto wanted = !header_read_ ? record::kHeaderBytes : sizeof(CallRecord);
        const auto taken = std::min(wanted - held_.size(), bytes.size());
        held_.append(bytes.substr(0, taken));
        bytes.remove_prefix(taken);
        if (held_.size() < wanted) continue;
        if (auto good = header_read_ ? take_record() : take_header(); !good) return good;
        held_.clear();
      }
    }
    if (!header_read_) {
      return fail(Errc::parse_error, "{}: the file ends inside its header: expected a recording",
                  source_.name());
    }
    // Blocks hold runs of one thread each. Their calls are in order except for the few that
    // overlapped.
    std::stable_sort(calls_.begin(), calls_.end(), [](const RawCall& a, const RawCall& b) {
      return std::tie(a.record.seq, a.thread) < std::tie(b.record.seq, b.thread);
    });
    if (has_copies_) {
      // A reader of a file that is still written to may take part of a block for another thread's.
      const auto copy = [](const RawCall& a, const RawCall& b) {
        return std::memcmp(&a.record, &b.record, sizeof(CallRecord)) == 0;
      };
      calls_.erase(std::unique(calls_.begin(), calls_.end(), copy), calls_.end());
    }
    // Calls get even numbers and requests odd ones. Several threads may have read the same clock
    // value.
    std::uint64_t before = 0;
    for (auto& call : calls_) {
      call.record.seq = std::max(call.record.seq * 2, before + 2);
      before = call.record.seq;
    }
    return {};
  }

  const FileHeader& header() const noexcept { return header_; }
  std::vector<RawCall>& calls() noexcept { return calls_; }
  std::uint64_t dropped() const noexcept { return dropped_; }
  const RawSites& sites() const noexcept { return sites_; }
  /// Was recording off at some time before the end?
  bool began_late() const noexcept { return began_late_; }

 private:
  Status take_header() {
    std::memcpy(&header_, held_.data(), sizeof header_);
    header_read_ = true;
    if (header_.version < 1 || header_.version > record::kVersion ||
        header_.header_bytes != record::kHeaderBytes ||
        header_.block_bytes != record::kBlockBytes || header_.record_bytes != sizeof(CallRecord)) {
      return fail(
          Errc::parse_error,
          "{}: a recording of version {}: expected version 1 to {}, which this program reads",
          source_.name(), header_.version, record::kVersion);
    }
    make_text(header_.boot_id);
    make_text(header_.program);
    make_text(header_.driver);
    for (auto& device : header_.devices) make_text(device.name);
    return {};
  }

  Status take_record() {
    const auto at = place_++ % (record::kBlockRecords + 1);
    if (at == 0) {
      BlockHeader block;
      std::memcpy(&block, held_.data(), sizeof block);
      in_block_ = block.magic == record::kBlockMagic;
      if (!in_block_) return {};
      dropped_ += block.dropped;
      // A recorder that is killed while it copies a block leaves it twice.
      if (block.turn != 0 && !turns_.insert(block.turn).second) has_copies_ = true;
      return {};
    }
    RawCall call;
    std::memcpy(&call.record, held_.data(), sizeof call.record);
    if (!in_block_ || call.record.seq == 0) return {};
    switch (call.record.call) {
      case Call::thread:
        thread_ = static_cast<std::uint32_t>(call.record.address);
        site_ = 0;
        request_ = 0;
        return {};
      case Call::frame_text:
        take_text(call.record);
        return {};
      case Call::stack:
        take_stack(call.record);
        return {};
      case Call::about:
        site_ = static_cast<std::uint32_t>(call.record.address);
        request_ = call.record.size;
        return {};
      default:
        break;
    }
    call.thread = thread_;
    call.site = std::exchange(site_, 0);
    call.request = std::exchange(request_, 0);
    if (call.record.call == Call::window) began_late_ = true;
    calls_.push_back(call);
    return {};
  }

  // Limits, since a damaged file may have any value.
  static constexpr std::uint32_t kTextMost = 256, kFramesMost = 128;

  void take_text(const CallRecord& record) {
    constexpr std::size_t kPiece = 32;  // bytes of a text in a record
    const auto at = record.flags * std::uint64_t{kPiece};
    if (record.duration > kTextMost || at >= record.duration) return;
    auto& text = sites_.texts[static_cast<std::uint32_t>(record.ticks)];
    if (text.size() != record.duration) text.assign(record.duration, '?');
    std::memcpy(text.data() + at, &record.address, std::min(kPiece, record.duration - at));
  }
  void take_stack(const CallRecord& record) {
    constexpr std::size_t kPiece = 8;  // frames of a stack in a record
    const auto at = record.flags * std::uint64_t{kPiece};
    if (record.duration > kFramesMost || at >= record.duration) return;
    auto& stack = sites_.stacks[static_cast<std::uint32_t>(record.ticks)];
    if (stack.size() != record.duration) stack.assign(record.duration, 0);
    std::memcpy(stack.data() + at, &record.address,
                std::min(kPiece, record.duration - at) * sizeof stack[0]);
  }

  format::ByteSource& source_;
  std::string held_;
  FileHeader header_{};
  bool header_read_ = false, in_block_ = false, began_late_ = false;
  std::unordered_set<std::uint64_t> turns_;  ///< The turns of the blocks that were read.
  bool has_copies_ = false;                  ///< Two blocks had the same turn.
  std::uint64_t place_ = 0, dropped_ = 0;
  std::uint32_t thread_ = 0, site_ = 0;
  std::uint64_t request_ = 0;
  RawSites sites_;
  std::vector<RawCall> calls_;
};

/// The features that a replay of the recording needs.
std::vector<std::string> required_by(const std::vector<RawCall>& calls) {
  bool streams = false, events = false, ipc = false, pools = false, threads = false;
  bool graphs = false, functions = false, ranges = false, peers = false;
  std::uint64_t devices = 0;
  for (const auto& [record, thread, site, request] : calls) {
    switch (record.call) {
      case Call::stream_create:
      case Call::mem_alloc_async:
      case Call::mem_free_async:
      case Call::stream_synchronize:
        streams = true;
        break;
      case Call::event_record:
      case Call::stream_wait_event:
      case Call::event_synchronize:
        streams = events = true;
        break;
      case Call::ipc_get_mem_handle:
        ipc = true;
        break;
      case Call::pool_create:
      case Call::pool_trim:
      case Call::pool_destroy:
        pools = true;
        break;
      case Call::capture_begin:
      case Call::graph_launch:
        graphs = true;
        break;
      case Call::host_function:
        functions = true;
        break;
      case Call::mem_address_reserve:
        ranges = true;
        break;
      case Call::peer_enable:
        peers = true;
        break;
      default:
        break;
    }
    threads = threads || thread != calls.front().thread;
    if (record.device < 64) devices |= std::uint64_t{1} << record.device;
    const bool names_device = record.call == Call::mem_create || record.call == Call::pool_create;
    if (names_device && record.stream < 64) devices |= std::uint64_t{1} << record.stream;
  }
  std::vector<std::string> names;
  const auto add = [&](bool used, const char* name) {
    if (used) names.emplace_back(name);
  };
  add(streams, "streams");
  add(events, "events");
  add(ipc, "ipc");
  add(pools, "pools");
  add((devices & (devices - 1)) != 0, "multi-device");
  add(threads, "threads");
  add(graphs, "graphs");
  add(functions, "host-functions");
  add(ranges, "virtual-memory");
  add(peers, "peers");
  return names;
}

Header header_of(const FileHeader& file, const std::vector<RawCall>& calls, bool complete) {
  auto header = recording_header("", required_by(calls), Level::driver);
  header.complete = complete;
  header.tool = "emmctl record";
  header.command = file.program;
  if (file.run_capacity != 0)
    header.source_options = "{\"run_capacity\":" + text::format("{}", file.run_capacity) + "}";
  header.clock_source = "CLOCK_MONOTONIC";
  header.clock_start_ns = file.start_ns;
  header.clock_start_realtime_ns = file.start_realtime_ns;
  header.boot_id = file.boot_id;
  header.has_clock = true;
  if (file.driver_version > 0) header.driver_version = file.driver_version;
  if (!calls.empty()) header.default_thread = text::format("{}", calls.front().thread);
  for (std::size_t i = 0; i < std::min<std::size_t>(file.device_count, record::kDevicesMost); ++i) {
    const auto& known = file.devices[i];
    DeviceInfo device;
    device.id = static_cast<std::uint32_t>(i);
    device.name = known.name;
    // With a limit of `emmctl run` the program sees a smaller device, and is refused by it.
    const auto most = file.run_capacity != 0 ? file.run_capacity : ~std::uint64_t{0};
    device.capacity = std::min(known.capacity, most);
    device.free_at_start = std::min(known.free_at_start, most);
    header.devices.push_back(std::move(device));
  }
  return header;
}

/// Why calls were not recorded.
std::string why_stopped(std::int32_t stopped) {
  if (stopped == record::kNobodyCollects)
    return "emmctl record was killed, and the program went on";
  return std::strerror(stopped);
}

Result<ImportCounts> read_raw(format::ByteSource& source, OperationSink& sink,
                              const ImportOptions& options) {
  RawFile file(source);
  if (auto read = file.read(); !read) return std::move(read).error();
  const auto& header = file.header();
  const auto& calls = file.calls();
  const auto lost = header.lost + file.dropped();
  ImportRun run(source, sink, options);
  const bool complete = lost == 0 && header.stopped == 0 && !file.began_late() &&
                        header.only_windows == 0 && header.cut == 0 && header.bypassed == 0 &&
                        header.unkept == 0 && header.unnumbered == 0;
  if (auto begun = run.header(header_of(header, calls, complete)); !begun)
    return std::move(begun).error();
  RawSession session(run, header, file.sites());
  if (options.requests != nullptr) session.go_beneath(*options.requests);
  if (lost != 0) {
    const std::string reason = header.stopped != 0 ? why_stopped(header.stopped)
                               : header.lost == 0  ? "older calls were overwritten"
                                                   : "no room";
    if (auto told = session.gap(lost, reason); !told) return std::move(told).error();
  }
  const auto say_gap = [&](std::string_view reason) {
    Operation gap{.op = Op::gap, .members = Members(Member::reason)};
    gap.reason = reason;
    return run.emit(gap);
  };
  if (header.bypassed != 0) {
    if (auto told = say_gap("functions that are not recorded were called"); !told)
      return std::move(told).error();
  }
  if (header.unkept != 0) {
    if (auto told = say_gap("what lived before recording began is not known"); !told)
      return std::move(told).error();
  }
  if (header.unnumbered != 0) {
    if (auto told = say_gap("more contexts lived at once than are told apart"); !told)
      return std::move(told).error();
  }
  for (const auto& call : calls) {
    if (auto taken = session.take(call); !taken) return std::move(taken).error();
  }
  if (header.cut != 0 && header.only_windows == 0) {
    if (auto told = say_gap("recording ended, and the process went on"); !told)
      return std::move(told).error();
  }
  run.note(file.dropped(), "calls were overwritten, as --max-file-size says");
  run.note(header.lost,
           header.stopped != 0
               ? text::format("calls were not recorded: {}", why_stopped(header.stopped))
               : std::string("calls were not recorded: there was no room"));
  run.note(header.bypassed,
           "functions were handed to the program by another address than their symbol's, and are "
           "not recorded");
  run.note(header.unkept,
           "allocations were not kept account of, for want of memory: those of them that were live "
           "when recording began are missing");
  run.note(header.unnumbered,
           text::format("times a thread entered a context beyond the {} that are told apart: what "
                        "ended with such a context has no end in the trace",
                        record::kContextsMost));
  return session.finish(lost);
}

}  // namespace

extern constinit const Importer emm_raw_importer{
    .name = "emm-raw",
    .summary = "what `emmctl record` writes while a program runs: left where it was killed",
    .from_documentation = false,
    .sniff = sniff_emm_raw,
    .read = read_raw,
};

}  // namespace emm
