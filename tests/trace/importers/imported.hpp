#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "exchange/importer.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// An operation in one line, with the members that importers make: "free id=1 time_ns=7 @3" is of
/// line 3.
inline std::string one_line(const Operation& op, bool with_line = true) {
  std::string out(name(op.op));
  const auto id = [&](Member member, const Id& value) {
    if (!op.has(member)) return;
    out += text::format(" {}=", name(member));
    if (value.is_number()) {
      text::append(out, value.number);
    } else {
      out += value.text;
    }
  };
  const auto number = [&](Member member, std::uint64_t value) {
    if (op.has(member)) out += text::format(" {}={}", name(member), value);
  };
  const auto flag = [&](Member member, bool value) {
    if (op.has(member) && value) out += text::format(" {}", name(member));
  };
  if (op.has(Member::layer))
    out += text::format(" {}", kLayerNames[static_cast<std::size_t>(op.layer)]);
  if (op.has(Member::kind) && op.op == Op::memalloc) {
    out += text::format(" {}", kKindNames[static_cast<std::size_t>(op.kind)]);
  }
  if (op.has(Member::kind) && op.op == Op::define) {
    out += text::format(" {}", kDefineKindNames[static_cast<std::size_t>(op.define_kind)]);
  }
  id(Member::id, op.id);
  number(Member::size, op.size);
  id(Member::buffer, op.buffer);
  number(Member::offset, op.offset);
  number(Member::page_offset, op.page_offset);
  id(Member::handle, op.handle);
  flag(Member::mapped, op.mapped);
  flag(Member::portable, op.portable);
  flag(Member::wc, op.wc);
  if (op.has(Member::attach)) out += op.attach_global ? " global" : " host";
  if (op.has(Member::addr)) out += text::format(" addr={}", text::hex(op.addr));
  number(Member::granted, op.granted);
  flag(Member::preexisting, op.preexisting);
  id(Member::stream, op.stream);
  id(Member::record, op.record);
  id(Member::thread, op.thread);
  number(Member::device, op.device);
  if (op.has(Member::cause))
    out += text::format(" {}", kCauseNames[static_cast<std::size_t>(op.cause)]);
  number(Member::seq, op.seq);
  number(Member::time_ns, op.time_ns);
  number(Member::duration_ns, op.duration_ns);
  number(Member::free, op.free);
  number(Member::total, op.total);
  number(Member::count, op.count);
  number(Member::bytes, op.bytes);
  if (op.has(Member::text)) out += text::format(" {}", op.text);
  if (op.has(Member::phase))
    out += text::format(" {}", kPhaseNames[static_cast<std::size_t>(op.phase)]);
  if (op.has(Member::label)) out += text::format(" \"{}\"", op.label);
  if (op.has(Member::reason)) out += text::format(" {}", op.reason);
  if (op.has(Member::frames)) out += text::format(" [{}]", text::join(op.frames));
  id(Member::site, op.site);
  if (op.has(Member::result)) out += text::format(" {}", name(op.result.outcome));
  if (op.has(Member::extension)) out += text::format(" {}", op.extension);
  number(Member::events, op.events);
  number(Member::live, op.live);
  number(Member::live_bytes, op.live_bytes);
  if (with_line && op.op != Op::end && op.line != 0) out += text::format(" @{}", op.line);
  return out;
}

/// What an importer made of a file.
struct Imported : OperationSink {
  Header header;
  std::vector<std::string> operations;
  ImportCounts counts;
  std::string error;
  bool finished = false;
  bool with_lines = true;

  Status on_header(const Header& given) override {
    header = given;
    return {};
  }
  Status on_operation(const Operation& operation) override {
    operations.push_back(one_line(operation, with_lines));
    return {};
  }
  Status finish() override {
    finished = true;
    return {};
  }
  std::string text() const { return text::join(operations, "\n"); }
};

/// `file` is named run.log in messages.
inline Imported import_text(std::string_view format, std::string_view file, bool partial = false) {
  Imported imported;
  const auto importer = find_importer(format);
  EMM_ASSERT(importer);
  const auto source = format::ByteSource::memory(file, "run.log");
  auto counts = (*importer)->read(*source, imported, {.partial = partial});
  if (counts) {
    imported.counts = *std::move(counts);
  } else {
    imported.error = counts.error().message;
  }
  return imported;
}

/// "rows 3: used 2, unmatched 1"
inline std::string summary(const ImportCounts& counts) {
  auto out = text::format("rows {}:", counts.rows);
  const auto add = [&](std::uint64_t count, std::string_view word) {
    if (count != 0) out += text::format("{} {} {}", out.ends_with(':') ? "" : ",", word, count);
  };
  add(counts.used, "used");
  add(counts.unmatched, "unmatched");
  add(counts.duplicate, "duplicate");
  add(counts.other, "other");
  add(counts.truncated, "truncated");
  return out;
}

}  // namespace emm::trace
