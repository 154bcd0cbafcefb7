// What ONNX Runtime's arena logs at severity 0: how it grows and shrinks, and not what it gives
// out.
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/import_run.hpp"
#include "format/json_writer.hpp"
#include "format/log_line.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// A line of bfc_arena.cc.
struct ArenaRow {
  enum class Kind { other, created, extends, memory, reserves, shrinks, fails } kind = Kind::other;
  std::string_view arena{};  ///< "Cuda"
  std::uint64_t address = 0, size = 0;
};

std::string_view behind(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + word.size());
}

template <int kBase = 10>
std::optional<std::uint64_t> number_of(std::string_view text) {
  text = text::trim(text);
  if (kBase == 16 && text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, kBase);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

ArenaRow arena_row(std::string_view line) {
  using enum ArenaRow::Kind;
  const auto text = format::without_prefix(line).text;
  const auto name = [](std::string_view from) { return from.substr(0, from.find_first_of(". ")); };
  if (const auto made = behind(text, "Creating BFCArena for "); !made.empty())
    return {.kind = created, .arena = name(made)};
  if (const auto grows = behind(text, "Extending BFCArena for "); !grows.empty()) {
    auto asked = number_of(behind(grows, "num_bytes:"));
    if (!asked) asked = number_of(behind(grows, "rounded_bytes:"));
    return {.kind = extends, .arena = name(grows), .size = asked.value_or(0)};
  }
  if (const auto at = behind(text, "Allocated memory at "); !at.empty()) {
    const auto from = number_of<16>(at), to = number_of<16>(behind(at, " to "));
    if (from && to && *to > *from) return {.kind = memory, .address = *from, .size = *to - *from};
  }
  if (const auto what = behind(text, "Reserving memory in BFCArena for "); !what.empty())
    return {.kind = reserves,
            .arena = name(what),
            .size = number_of(behind(what, "size:")).value_or(0)};
  if (const auto by = behind(text, "BFC Arena shrunk by "); !by.empty())
    return {.kind = shrinks, .arena = name(text), .size = number_of(by).value_or(0)};
  for (const std::string_view words :
       {"Failed to allocate memory for requested buffer of size ",
        "is smaller than requested bytes of ", "BFC Arena ran out of memory trying to allocate "}) {
    if (const auto size = number_of(behind(text, words))) return {.kind = fails, .size = *size};
  }
  return {};
}

int sniff_ort_arena(std::string_view prefix) {
  constexpr std::size_t kLines = 4000;  // a program's log has other lines before the dump
  std::size_t grown = 0;
  first_lines(prefix, kLines, [&](std::string_view line) {
    const auto what = arena_row(line).kind;
    grown += what == ArenaRow::Kind::memory || what == ArenaRow::Kind::extends ? 1 : 0;
  });
  return grown > 0 ? 85 : 0;
}

class ArenaLog {
 public:
  explicit ArenaLog(ImportRun& run) noexcept : run_(run) {}

  Status row(const ArenaRow& row) {
    using enum ArenaRow::Kind;
    if (!row.arena.empty()) arena_ = row.arena;
    const bool on_host = arena_.starts_with("Cpu") || arena_.ends_with("Pinned");
    if (row.kind == other || row.kind == created || row.kind == extends) {
      asked_ = row.kind == extends ? row.size : asked_;
      run_.other();
      return {};
    }
    if (on_host) {
      ++host_;
      run_.other();
      return {};
    }
    switch (row.kind) {
      case memory:
        run_.used();
        return make(row.size, row.address);
      case reserves:
        if (row.size == 0) break;
        run_.used();
        return make(row.size, 0);
      case shrinks: {
        const auto found = regions_.find(row.size);
        if (found == regions_.end()) {
          run_.unmatched();
          return {};
        }
        Operation freed{.op = Op::free, .members = Members(Member::id)};
        freed.id = Id::of(found->second);
        regions_.erase(found);
        --live_;
        live_bytes_ -= row.size;
        run_.used();
        return run_.emit(freed);
      }
      case fails: {
        // The exception tells once more what the arena told.
        if (failed_ == row.size) {
          run_.duplicate();
          return {};
        }
        failed_ = row.size;
        Operation made{.op = Op::memalloc,
                       .members = Members(Member::id, Member::size, Member::result)};
        made.id = Id::of(run_.next_id());
        made.size = row.size;
        made.result.outcome = Outcome::oom;
        run_.used();
        return run_.emit(made);
      }
      default:
        break;
    }
    run_.other();
    return {};
  }

  Result<ImportCounts> finish() {
    run_.note(host_, "lines are of arenas in host memory");
    run_.counts().notes.emplace_back(
        "the log has what the arena asked of the device, and not what it gave out: what was live "
        "is "
        "not known");
    ByteSum bytes;
    bytes.add(live_bytes_);
    return run_.finish(live_, bytes);
  }

 private:
  Status make(std::uint64_t size, std::uint64_t address) {
    Operation made{.op = Op::memalloc, .members = Members(Member::id, Member::size)};
    const auto id = run_.next_id();
    made.id = Id::of(id);
    made.size = size;
    if (address != 0) {
      made.addr = address;
      made.members.add(Member::addr);
    }
    regions_.emplace(size, id);
    ++live_;
    live_bytes_ += size;
    failed_.reset();
    return run_.emit(made);
  }

  ImportRun& run_;
  std::multimap<std::uint64_t, std::uint64_t> regions_;  // by size: the id
  std::string arena_ = "Cuda";
  std::optional<std::uint64_t> failed_;
  std::uint64_t asked_ = 0, host_ = 0, live_ = 0, live_bytes_ = 0;
};

Result<ImportCounts> read_ort_arena(format::ByteSource& source, OperationSink& sink,
                                    const ImportOptions& options) {
  ImportRun run(source, sink, options);
  auto header = recording_header("onnxruntime", {}, Level::driver);
  header.complete = false;
  header.has_complete = true;
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  ArenaLog log(run);
  ArenaRow row;
  auto read = each_row(
      run,
      [&](std::string_view text) -> Result<std::optional<BadField>> {
        row = arena_row(text);
        return std::optional<BadField>{};
      },
      [&] { return log.row(row); });
  if (!read) return std::move(read).error();
  return log.finish();
}

}  // namespace

extern constinit const Importer ort_arena_importer{
    .name = "ort-arena",
    .summary = "how ONNX Runtime's arena grows, as it logs it at severity 0",
    .from_documentation = false,
    .sniff = sniff_ort_arena,
    .read = read_ort_arena,
    .is_also_log = true,
};

}  // namespace emm
