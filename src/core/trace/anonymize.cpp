#include "trace/anonymize.hpp"

#include <vector>

#include "base/text_format.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

void Anonymizer::rename(Kind kind, Id& id) {
  constexpr std::uint64_t kNumbers = std::uint64_t{1} << 32;  // greater numbers may be addresses
  if (id.is_number() && id.number < kNumbers) return;
  if (kind == Kind::stream && (id.text == "legacy" || id.text == "per_thread")) return;
  auto& names = names_[static_cast<std::size_t>(kind)];
  const auto said = id.is_number() ? text::format("{}", id.number) : std::string(id.text);
  auto found = names.find(said);
  if (found == names.end())
    found = names.emplace(said, text::format("r{}", names.size() + 1)).first;
  id = Id{.text = found->second};
}

std::string Anonymizer::renamed(Kind kind, const std::string& name) {
  if (name.empty()) return {};
  auto id = Id::of(std::string_view(name));
  rename(kind, id);
  return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
}

Status Anonymizer::on_header(const Header& header) {
  Header kept = header;
  kept.name.clear();
  kept.description.clear();
  kept.clock_source.clear();
  kept.boot_id.clear();
  kept.clock_start_ns = kept.clock_start_realtime_ns = 0;
  kept.has_clock = false;
  kept.command.clear();
  kept.host.clear();
  kept.os.clear();
  kept.source_options.clear();
  kept.extensions.clear();
  for (auto& device : kept.devices) {
    device.name.clear();
    device.uuid.clear();
  }
  kept.default_context = renamed(Kind::context, header.default_context);
  kept.default_thread = renamed(Kind::thread, header.default_thread);
  kept.default_process = renamed(Kind::process, header.default_process);
  return to_.on_header(kept);
}

Status Anonymizer::on_operation(const Operation& operation) {
  if (operation.op == Op::define || operation.op == Op::extension) {
    ++left_out_;
    return {};
  }
  auto op = operation;
  if (op.op == Op::end && op.events >= left_out_) op.events -= left_out_;
  for (const auto member : {Member::addr, Member::site, Member::label, Member::api, Member::name,
                            Member::frames, Member::reason, Member::extension}) {
    op.members.remove(member);
  }
  if (operation.has(Member::extension) &&
      operation.extension.find("\"x-no_row\":true") != operation.extension.npos) {
    op.extension = "\"x-no_row\":true";  // reveals no origin, and readers count segments by it
    op.members.add(Member::extension);
  }
  op.result.name = {};
  if (op.has(Member::text)) op.text = "-";
  rename(op.op == Op::stream_create ? Kind::stream : Kind::allocation, op.id);
  rename(Kind::thread, op.thread);
  rename(Kind::process, op.process);
  rename(Kind::context, op.context);
  rename(Kind::stream, op.stream);
  rename(Kind::pool, op.pool);
  rename(Kind::handle, op.handle);
  rename(Kind::buffer, op.buffer);
  rename(Kind::record, op.record);
  rename(Kind::scope, op.scope);
  rename(Kind::graph, op.graph);
  rename(Kind::range, op.range);
  rename(Kind::allocation, op.expect.same_as);
  std::vector<Id> ids(op.ids.begin(), op.ids.end());
  for (auto& id : ids) rename(Kind::allocation, id);
  op.ids = ids;
  return to_.on_operation(op);
}

}  // namespace emm::trace
