#include "exchange/exporters/requests.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

/// Numbers for named ids start here, above the numbers that a trace's own ids are likely to have.
constexpr std::uint64_t kNamed = 1'000'000'000;

bool refused(const Operation& operation) {
  const auto said = operation.result.outcome != Outcome::none ? operation.result.outcome
                                                              : operation.expect.outcome;
  return said != Outcome::none && said != Outcome::ok && said != Outcome::any;
}

}  // namespace

Status RequestExport::on_header(const Header& header) {
  default_thread_ = header.default_thread;
  default_context_ = header.default_context;
  return begin(header);
}

Status RequestExport::on_operation(const Operation& operation) {
  if (operation.layer == Layer::request) {
    switch (operation.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
        return request(operation);
      case Op::free:
        return free(operation);
      case Op::reset:
      case Op::context_destroy:
        return end_context(operation);
      default:
        break;
    }
  }
  auto written = other(operation);
  if (!written) return std::move(written).error();
  if (!*written && operation.op != Op::end) ++left_out_;
  return {};
}

Result<bool> RequestExport::other(const Operation&) { return false; }

Status RequestExport::request(const Operation& operation) {
  if (refused(operation)) return fails(operation);
  if (operation.size == 0) {
    ++no_bytes_;
    return {};
  }
  kinds_ += operation.op != Op::memalloc ? 1 : 0;
  LiveRequest request{
      .order = requests_++, .size = operation.size, .context = context_of(operation)};
  if (auto written = starts(operation, request); !written) return written;
  if (operation.id.is_number()) {
    by_number_[operation.id.number] = request;
  } else {
    by_name_[std::string(operation.id.text)] = request;
  }
  return {};
}

Status RequestExport::free(const Operation& operation) {
  LiveRequest ended;
  if (operation.id.is_number()) {
    const auto found = by_number_.find(operation.id.number);
    if (found == by_number_.end()) return ++of_nothing_, Status();
    ended = found->second;
    by_number_.erase(found);
  } else {
    const auto found = by_name_.find(operation.id.text);
    if (found == by_name_.end()) return ++of_nothing_, Status();
    ended = found->second;
    by_name_.erase(found);
  }
  return ends(operation, ended);
}

Status RequestExport::end_context(const Operation& operation) {
  const auto context = context_of(operation);
  for (const auto& request : live()) {
    if (request.context != context) continue;
    ++by_reset_;
    if (auto written = ends(operation, request); !written) return written;
  }
  const auto of_context = [&](const auto& named) { return named.second.context == context; };
  std::erase_if(by_number_, of_context);
  std::erase_if(by_name_, of_context);
  return {};
}

std::vector<LiveRequest> RequestExport::live() const {
  std::vector<LiveRequest> all;
  for (const auto& [number, request] : by_number_) all.push_back(request);
  for (const auto& [name, request] : by_name_) all.push_back(request);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  return all;
}

void RequestExport::note_left_out() {
  note(left_out_, "operations have no place in the format: left out");
  note(no_bytes_, "allocations of 0 bytes are left out");
  note(of_nothing_, "frees are of what is not written: left out");
  note(kinds_,
       "allocations are of managed or host memory, which the format does not tell from device "
       "memory");
  note(by_reset_,
       "allocations are ended by a reset or their context's end: written as freed there");
}

std::uint64_t RequestExport::number_of(const Id& id, Texts& texts, std::uint64_t first) {
  if (id.is_number()) return id.number;
  if (id.text.starts_with("0x")) {
    if (const auto handle = text::to_u64(id.text)) return *handle;
  }
  return texts.emplace(id.text, first + texts.size()).first->second;
}

std::uint64_t RequestExport::thread_of(const Operation& operation) {
  if (operation.has(Member::thread)) return number_of(operation.thread, threads_, kNamed);
  return default_thread_.empty()
             ? 0
             : number_of(Id::of(std::string_view(default_thread_)), threads_, kNamed);
}

std::uint64_t RequestExport::stream_of(const Operation& operation) {
  if (!operation.has(Member::stream)) return 0;
  if (operation.stream.text == "legacy") return 1;
  if (operation.stream.text == "per_thread") return 2;
  return number_of(operation.stream, streams_, kNamed);
}

std::uint64_t RequestExport::context_of(const Operation& operation) {
  if (operation.has(Member::context)) return number_of(operation.context, contexts_, kNamed);
  if (!default_context_.empty())
    return number_of(Id::of(std::string_view(default_context_)), contexts_, kNamed);
  return 2 * kNamed + operation.device;
}

}  // namespace emm::trace
