// The gap of recordings, reserved minus live, is the sum of its causes: after each event and at
// each request, against what the rows alone say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocators/pytorch/gap.hpp"
#include "cli/tee_sink.hpp"
#include "commands/known_blocks.hpp"
#include "exchange/importer.hpp"
#include "format/byte_source.hpp"
#include "inspect/gap.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

namespace fs = std::filesystem;
namespace pytorch = allocators::pytorch;
using trace::Member;
using trace::Op;

struct Held {
  std::uint64_t reserved = 0, live = 0;
  bool operator==(const Held&) const = default;
};

/// What the rows say is reserved and live after each event, of all devices and of each.
class Rows final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const trace::Operation& operation) override {
    if (operation.op == Op::define || operation.op == Op::end || operation.op == Op::extension)
      return {};
    const auto backing = operation.has(Member::layer) && operation.layer == trace::Layer::backing;
    const auto id = operation.id.is_number() ? std::to_string(operation.id.number)
                                             : "\"" + std::string(operation.id.text);
    if (operation.op == Op::memalloc && !operation.has(Member::result)) {
      all_[id] = {.size = operation.size, .device = operation.device, .backing = backing};
      count(all_[id], true);
    }
    if (operation.op == Op::free && !operation.has(Member::result)) {
      const auto found = all_.find(id);
      if (found != all_.end() && found->second.backing == backing) {
        count(found->second, false);
        all_.erase(found);
      }
    }
    held.push_back(now_);
    return {};
  }

  std::vector<std::map<std::uint32_t, Held>> held;  // by event and device

 private:
  struct Memory {
    std::uint64_t size = 0;
    std::uint32_t device = 0;
    bool backing = false;
  };
  void count(const Memory& memory, bool begins) {
    auto& of = now_[memory.device];
    auto& bytes = memory.backing ? of.reserved : of.live;
    bytes = begins ? bytes + memory.size : bytes - memory.size;
  }

  std::map<std::string, Memory> all_;
  std::map<std::uint32_t, Held> now_;
};

struct Read {
  inspect::Recording recording;
  pytorch::Recording of_pytorch;
  Rows rows;
};

std::unique_ptr<Read> read(const fs::path& path) {
  auto all = std::make_unique<Read>();
  auto source = format::ByteSource::open(path.string(), nullptr);
  EXPECT_TRUE(source) << path;
  const auto importer = trace::detect(**source);
  EXPECT_TRUE(importer) << path;
  cli::TeeSink models(all->of_pytorch, &all->rows);
  cli::TeeSink tee(all->recording, &models);
  EXPECT_TRUE((*importer)->read(**source, tee, {})) << path;
  return all;
}

std::vector<fs::path> recordings(const fs::path& root, std::initializer_list<const char*> folders) {
  std::vector<fs::path> found;
  for (const auto* const folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / folder, ignored)) {
      if (entry.path().extension() == ".gz") found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Held sum(const std::map<std::uint32_t, Held>& devices) {
  Held all;
  for (const auto& [device, held] : devices) {
    all.reserved += held.reserved;
    all.live += held.live;
  }
  return all;
}

/// After each event, by device: no cause is negative, and they sum.
void expect_sums_after_each_event(const fs::path& path, const Read& read,
                                  const trace::Lifetimes& lifetimes,
                                  const inspect::KnownBlocks& known) {
  const auto& devices = read.recording.trace().devices();
  inspect::GapWalk walk(read.recording, lifetimes, known);
  std::uint64_t wrong = 0;
  walk.walk([&](std::uint32_t event, const inspect::BeyondByDevice& bytes) {
    // What stays of a segment follows in an event of its own: after that one memory is as it was.
    if (read.recording.with_what_stays(event) != event || wrong > 3) return;
    for (std::size_t place = 0; place < bytes.size(); ++place) {
      const auto device = place < devices.size() ? devices[place] : 0;
      const auto found = read.rows.held[event].find(device);
      const auto rows = found == read.rows.held[event].end() ? Held{} : found->second;
      std::int64_t causes = 0;
      for (std::size_t cause = 0; cause < inspect::kBeyondCauses; ++cause) {
        causes += bytes[place][cause];
        if (bytes[place][cause] >= 0) continue;
        ++wrong;
        ADD_FAILURE() << path << ": " << bytes[place][cause] << " bytes "
                      << name(static_cast<inspect::Beyond>(cause)) << " after event " << event;
      }
      if (causes == static_cast<std::int64_t>(rows.reserved - rows.live)) continue;
      ++wrong;
      ADD_FAILURE() << path << ": " << causes << " bytes after event " << event << ", of "
                    << rows.reserved << " reserved and " << rows.live << " live";
    }
  });
}

/// As `inspect --gap` tells it, by call site, at some events.
void expect_parts(const fs::path& path, const Read& read, const trace::Lifetimes& lifetimes,
                  const inspect::KnownBlocks& known) {
  constexpr std::uint32_t kLooks = 20;
  const auto events = static_cast<std::uint32_t>(read.recording.trace().size());
  for (std::uint32_t i = 0; i < kLooks; ++i) {
    const auto event = static_cast<std::uint32_t>(std::uint64_t{events} * i / kLooks);
    const auto gap = gap_after(read.recording, lifetimes, known, event);
    ASSERT_TRUE(gap) << path << ": " << event;
    const auto rows = sum(read.rows.held[read.recording.with_what_stays(event)]);
    EXPECT_EQ(gap->reserved, rows.reserved) << path << ": " << event;
    EXPECT_EQ(gap->live, rows.live) << path << ": " << event;
    std::uint64_t bytes = 0;
    for (const auto& part : gap->parts) bytes += part.bytes;
    EXPECT_EQ(bytes, rows.reserved - rows.live) << path << ": " << event;
  }
}

/// As `explain` tells it, at each request, after what was released for it.
void expect_sums_at_each_request(const fs::path& path, const Read& read) {
  std::map<std::uint64_t, pytorch::Gap> last;
  each_gap(read.of_pytorch, read.of_pytorch.settings(), [&](const pytorch::Gap& gap) {
    std::uint64_t bytes = 0;
    for (const auto& part : gap.parts) bytes += part.bytes;
    EXPECT_EQ(bytes, gap.reserved - gap.live) << path << ": " << gap.event;
    last[gap.event] = {.event = gap.event, .reserved = gap.reserved, .live = gap.live, .parts = {}};
  });
  EXPECT_FALSE(last.empty()) << path;
  const auto device = read.of_pytorch.device();
  std::uint64_t wrong = 0;
  // The rows have the segments for a request in front of it: seen from the request they are new.
  std::uint64_t segments = 0;
  for (const auto& step : read.of_pytorch.steps()) {
    using Kind = pytorch::Step::Kind;
    if (step.kind == Kind::segment_begin) segments += step.size;
    if (step.kind != Kind::alloc && step.kind != Kind::refused) continue;
    const auto asked = std::exchange(segments, 0);
    const auto found = last.find(step.event);
    if (found == last.end() || step.preexisting || step.event == 0) continue;
    const auto rows = read.rows.held[step.event - 1].at(device);
    const Held said{.reserved = found->second.reserved + asked, .live = found->second.live};
    if (said == rows || ++wrong > 3) continue;
    ADD_FAILURE() << path << ": " << said.reserved << " reserved and " << said.live
                  << " live at the request of event " << step.event << ", not " << rows.reserved
                  << " and " << rows.live;
  }
}

void expect_exact_gap(const fs::path& path) {
  const auto all = read(path);
  const trace::Lifetimes lifetimes(all->recording.trace());
  ASSERT_EQ(all->rows.held.size(), all->recording.trace().size()) << path;
  const auto known = cli::known_blocks(all->recording, lifetimes, all->of_pytorch);
  EXPECT_FALSE(known.blocks.empty()) << path << ": the model does not follow it";
  expect_sums_after_each_event(path, *all, lifetimes, known);
  expect_parts(path, *all, lifetimes, known);
  expect_sums_at_each_request(path, *all);
}

TEST(GapOfRecordings, IsTheSumOfItsCausesAtEveryEvent) {
  const auto paths = recordings(fs::path(EMM_SOURCE_DIR) / "traces", {"torch"});
  ASSERT_EQ(paths.size(), 2u);
  for (const auto& path : paths) expect_exact_gap(path);
}

TEST(GapOfCollectedRecordings, IsTheSumOfItsCausesAtEveryEvent) {
  const auto paths = recordings(EMM_EXTRA_TRACES, {"torch", "torch-settings", "torch-ranks"});
  if (std::string_view(EMM_EXTRA_TRACES).empty() || paths.empty())
    GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  // All where tests may take long, else one of seven.
  for (std::size_t i = 0; i < paths.size(); i += EMM_LONG != 0 ? 1 : 7) expect_exact_gap(paths[i]);
}

}  // namespace
}  // namespace emm
