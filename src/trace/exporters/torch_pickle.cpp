#include "trace/exporters/torch_pickle.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace emm::trace {
namespace {

constexpr std::uint64_t kRounding = 512, kSegment = std::uint64_t{2} << 20;
constexpr std::uint64_t kFirstAddress = 0x7f0000000000, kStartUs = 1'700'000'000'000'000;
constexpr std::uint64_t kBatch = 1000;  // elements of one APPENDS, as Python's pickler does

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t to) { return (std::max(size, to) + to - 1) / to * to; }

std::string text_of(const Id& id) { return id.is_number() ? text::format("{}", id.number) : std::string(id.text); }

}  // namespace

TorchPickleWriter::TorchPickleWriter(format::ByteSink& out, const TorchFrames& frames)
    : pickle_(out),
      frames_(frames),
      random_(frames.seed),
      made_up_stacks_(frames.own ? 0 : frames.stacks),
      made_up_frames_(frames.frames),
      next_address_(kFirstAddress) {}

Status TorchPickleWriter::on_header(const Header&) {
  pickle_.dict();
  pickle_.mark();
  pickle_.text("device_traces");
  pickle_.list();
  pickle_.list();
  return {};
}

Status TorchPickleWriter::on_operation(const Operation& operation) {
  if (operation.has(Member::device) && operation.device != 0) {
    return fail(Errc::not_supported, "an operation on device {}: expected a trace of device 0 alone, for a snapshot",
                operation.device);
  }
  const auto request = operation.layer == Layer::request;
  if (operation.op == Op::memalloc && request) return memalloc(operation);
  if (operation.op == Op::free && request) return free(operation);
  if (operation.op == Op::define && operation.define_kind == DefineKind::site) {
    define(operation);
  } else if (operation.op != Op::end) {
    ++left_out_;
  }
  return {};
}

Status TorchPickleWriter::memalloc(const Operation& operation) {
  const auto stream = stream_of(operation);
  const auto site = operation.has(Member::site) ? text_of(operation.site) : std::string();
  if (operation.result.outcome == Outcome::oom) {
    return row({.action = "oom", .size = operation.size, .stream = stream}, operation, site);
  }
  const auto size = round_up(operation.size, kRounding);
  auto& kept = free_[size ^ (stream << 48)];
  std::size_t at = blocks_.size();
  if (kept.empty()) {
    const auto segment = round_up(size, kSegment);
    blocks_.push_back({.address = next_address_, .stream = stream});
    next_address_ += segment;
    const Row made{.action = "segment_alloc", .address = blocks_.back().address, .size = segment, .stream = stream};
    if (auto written = row(made, operation, site); !written) return written;
  } else {
    at = kept.back();
    kept.pop_back();
  }
  auto& block = blocks_[at];
  block.size = operation.size;
  block.live = true;
  live_.insert_or_assign(text_of(operation.id), at);
  return row({.action = "alloc", .address = block.address, .size = block.size, .stream = stream}, operation, site);
}

Status TorchPickleWriter::free(const Operation& operation) {
  const auto found = live_.find(text_of(operation.id));
  if (found == live_.end()) {
    ++left_out_;
    return {};
  }
  auto& block = blocks_[found->second];
  block.live = false;
  free_[round_up(block.size, kRounding) ^ (block.stream << 48)].push_back(found->second);
  live_.erase(found);
  for (const auto* action : {"free_requested", "free_completed"}) {
    const Row made{.action = action, .address = block.address, .size = block.size, .stream = block.stream};
    if (auto written = row(made, operation, {}); !written) return written;
  }
  return {};
}

void TorchPickleWriter::define(const Operation& operation) {
  auto& frames = sites_[text_of(operation.id)];
  for (const auto frame : operation.frames) frames.emplace_back(frame);
}

std::uint64_t TorchPickleWriter::stream_of(const Operation& operation) {
  if (!operation.has(Member::stream)) return 0;
  const auto name = text_of(operation.stream);
  if (const auto number = text::to_u64(name)) return *number;
  return streams_.try_emplace(name, streams_.size() + 1).first->second;
}

Status TorchPickleWriter::row(const Row& row, const Operation& operation, std::string_view site) {
  if (batch_ == 0) pickle_.mark();
  pickle_.dict();
  pickle_.mark();
  pickle_.member("action", row.action);
  pickle_.member(row.action == "oom" ? "device_free" : "addr", row.address);
  pickle_.member("size", row.size);
  pickle_.member("stream", row.stream);
  pickle_.member("time_us", kStartUs + (operation.has(Member::time_ns) ? operation.time_ns / 1000 : rows_));
  pickle_.member("compile_context", std::string_view("N/A"));
  pickle_.member("user_metadata", std::string_view());
  pickle_.text("frames");
  if (site.empty() && frames_.stacks + (frames_.own ? 1 : 0) != 0 && row.action == "alloc") {
    put_made_up_stack();
  } else {
    put_stack(site);
  }
  pickle_.setitems();
  ++rows_;
  if (++batch_ == kBatch) {
    pickle_.appends();
    batch_ = 0;
  }
  return pickle_.flush_some();
}

void TorchPickleWriter::put_stack(std::string_view site) {
  const auto frames = sites_.find(site);
  if (frames == sites_.end()) {
    const auto written = stacks_.find(site);
    if (written != stacks_.end()) return pickle_.again(written->second);
    if (no_frames_ != 0) return pickle_.again(no_frames_ - 1);
    no_frames_ = pickle_.list() + 1;
    return;
  }
  stacks_.emplace(site, pickle_.list());
  pickle_.mark();
  for (const std::string_view frame : frames->second) {
    const auto place = frame.substr(0, frame.find(' '));
    const auto colon = std::min(place.rfind(':'), place.size());
    const auto line = text::to_u64(place.substr(std::min(colon + 1, place.size()))).value_or(0);
    pickle_.dict();
    put_frame(line == 0 ? place : place.substr(0, colon), line, frame.substr(std::min(place.size() + 1, frame.size())));
  }
  pickle_.appends();
  sites_.erase(frames);
}

void TorchPickleWriter::put_made_up_stack() {
  const auto stack = frames_.stacks == 0 ? stacks_made_++ : random_.below(frames_.stacks);
  if (frames_.own) {
    pickle_.list();
  } else {
    auto& written = made_up_stacks_[stack];
    if (written != 0) return pickle_.again(written - 1);
    written = pickle_.list() + 1;
  }
  Prng of_stack(frames_.seed ^ (stack + 1) << 20);  // the same frames each time that the stack is written
  pickle_.mark();
  for (std::uint64_t i = 0; i < frames_.depth; ++i) {
    if (frames_.frames == 0) {
      put_made_up_frame(stack * frames_.depth + i);
      continue;
    }
    const auto number = of_stack.below(frames_.frames);
    if (made_up_frames_[number] != 0) {
      pickle_.again(made_up_frames_[number] - 1);
    } else {
      put_made_up_frame(number);
    }
  }
  pickle_.appends();
}

void TorchPickleWriter::put_made_up_frame(std::uint64_t number) {
  const auto memo = pickle_.dict();
  if (number < made_up_frames_.size()) made_up_frames_[number] = memo + 1;
  put_frame(text::format("/opt/model/layer_{}.py", number % 100), 1 + number % 5000, text::format("forward_{}", number));
}

/// Of the dict that was just begun.
void TorchPickleWriter::put_frame(std::string_view file, std::uint64_t line, std::string_view name) {
  pickle_.mark();
  pickle_.text("name");
  pickle_.text_once(name);
  pickle_.member("filename", file);
  pickle_.member("line", line);
  pickle_.setitems();
}

Status TorchPickleWriter::finish() {
  note(left_out_, "operations have no place in the format: left out");
  if (batch_ != 0) pickle_.appends();
  pickle_.append();
  put_segments();
  pickle_.text("allocator_settings");
  pickle_.dict();
  pickle_.mark();
  pickle_.member("PYTORCH_CUDA_ALLOC_CONF", std::string_view());
  pickle_.text("max_split_size");
  pickle_.negative(-1);
  pickle_.text("garbage_collection_threshold");
  pickle_.real(0);
  pickle_.member("expandable_segments", false);
  pickle_.setitems();
  pickle_.text("external_annotations");
  pickle_.list();
  pickle_.setitems();
  return pickle_.end();
}

void TorchPickleWriter::put_segments() {
  pickle_.text("segments");
  pickle_.list();
  pickle_.mark();
  for (const auto& block : blocks_) {
    const auto size = round_up(block.size, kRounding), total = round_up(size, kSegment);
    const auto active = block.live ? size : 0, requested = block.live ? block.size : 0;
    pickle_.dict();
    pickle_.mark();
    pickle_.member("device", 0);
    pickle_.member("address", block.address);
    pickle_.member("total_size", total);
    pickle_.member("allocated_size", active);
    pickle_.member("active_size", active);
    pickle_.member("requested_size", requested);
    pickle_.member("stream", block.stream);
    pickle_.member("segment_type", std::string_view(total == kSegment ? "small" : "large"));
    pickle_.text("segment_pool_id");
    pickle_.number(0);
    pickle_.number(0);
    pickle_.pair();
    pickle_.member("is_expandable", false);
    pickle_.text("frames");
    put_stack({});
    pickle_.text("blocks");
    pickle_.list();
    pickle_.mark();
    const auto put = [&](std::uint64_t address, std::uint64_t bytes, std::uint64_t asked, std::string_view state) {
      pickle_.dict();
      pickle_.mark();
      pickle_.member("address", address);
      pickle_.member("size", bytes);
      pickle_.member("requested_size", asked);
      pickle_.member("state", state);
      pickle_.text("frames");
      put_stack({});
      pickle_.setitems();
    };
    if (block.live) put(block.address, size, block.size, "active_allocated");
    if (total != active) put(block.address + active, total - active, 0, "inactive");
    pickle_.appends();
    pickle_.setitems();
  }
  pickle_.appends();
}

}  // namespace emm::trace

namespace emm {

extern constinit const trace::Exporter torch_pickle_exporter{
    .name = "torch-pickle",
    .summary = "a PyTorch snapshot, for its memory viewer: device allocations of device 0",
    .open = [](format::ByteSink& out) -> std::unique_ptr<trace::ExportSink> {
      return std::make_unique<trace::TorchPickleWriter>(out);
    },
};

}  // namespace emm
