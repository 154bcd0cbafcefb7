#include "inspect/recording.hpp"

#include <string_view>

#include "base/text.hpp"
#include "inspect/extension_members.hpp"
#include "inspect/report_parts.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

using trace::Member;

constexpr std::uint64_t kEventBytesMost = 64;  // as trace::Trace promises

void put(std::vector<std::uint64_t>& values, AllocId id, std::uint64_t value) {
  if (values.size() <= index(id)) values.resize(index(id) + 1);
  values[index(id)] = value;
}

}  // namespace

std::optional<std::uint64_t> number_of(std::string_view members, std::string_view name) {
  const auto key = text::format("\"{}\":", name);
  const auto found = members.find(key);
  if (found == std::string_view::npos) return std::nullopt;
  const auto rest = members.substr(found + key.size());
  const auto begin = rest.find_first_not_of(" \"");
  if (begin == std::string_view::npos) return std::nullopt;
  const auto end = rest.find_first_of(",} \"", begin);
  return text::to_u64(rest.substr(begin, end == std::string_view::npos ? end : end - begin));
}

bool says(std::string_view members, std::string_view name) {
  return members.find(text::format("\"{}\":true", name)) != std::string_view::npos;
}

bool says_what_stays(const trace::Operation& operation) {
  return operation.op == trace::Op::memalloc && operation.has(Member::layer) &&
         operation.layer == trace::Layer::backing && operation.has(Member::extension) &&
         says(operation.extension, "x-no_row");
}

bool Recording::count_stack() {
  if (!many_ && stacks_++ % kLookEvery == 0) {
    many_ = trace_.memory_bytes() > stack_bytes_most_ + kEventBytesMost * trace_.size();
  }
  return many_;
}

Status Recording::on_operation(const trace::Operation& operation) {
  if (operation.op == trace::Op::define && operation.frames.size() > kFramesKept && count_stack()) {
    auto cut = operation;
    const auto kept = telling_part(operation.frames, kFramesKept);
    cut.frames = kept;
    ++stacks_cut_;
    return trace_.on_operation(cut);
  }
  const auto before = trace_.size();
  if (auto taken = trace_.on_operation(operation); !taken) return taken;
  if (categories_.may_tell(operation)) {
    const bool has_memory = trace_.size() != before && !trace::is_refused(trace_[before]);
    categories_.take(operation, static_cast<std::uint32_t>(before),
                     has_memory ? std::optional(trace_[before].id) : std::nullopt);
  }
  if (trace_.size() == before) return {};
  if (operation.has(Member::extension) && says(operation.extension, "x-no_row")) {
    rowless_.insert(static_cast<std::uint32_t>(before));
    if (before != 0 && says_what_stays(operation)) {
      stays_.insert(static_cast<std::uint32_t>(before));
    }
  }
  if (operation.op == trace::Op::free || !operation.has(Member::id)) return {};
  const auto id = trace_[before].id;
  if (operation.has(Member::kind) && operation.kind == trace::Kind::physical) {
    if (mapped_.size() <= index(id)) mapped_.resize(index(id) + 1);
    mapped_[index(id)] = true;
  }
  if (operation.has(Member::addr)) put(addresses_, id, operation.addr);
  if (operation.has(Member::granted)) put(granted_, id, operation.granted);
  if (operation.has(Member::extension) && operation.result.outcome == trace::Outcome::oom) {
    if (const auto free = number_of(operation.extension, "x-device_free")) {
      device_free_[static_cast<std::uint32_t>(index(id))] = *free;
    }
  }
  return {};
}

std::optional<std::uint64_t> Recording::device_free(AllocId id) const {
  const auto found = device_free_.find(static_cast<std::uint32_t>(index(id)));
  return found == device_free_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace emm::inspect
