#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "message/answer.hpp"

namespace emm::message {
namespace {

using format::columns;
using format::wrapped;
using text::format;

constexpr std::size_t kWidth = 80;   // columns of prose
constexpr std::size_t kListed = 20;  // messages

std::string exact(Range range) {
  return range.is_exact()
             ? text::grouped(range.least)
             : format("{} to {}", text::grouped(range.least), text::grouped(range.most));
}

std::string place(const Message& message, std::string_view path) {
  auto out =
      format("line {}{}", message.line, path == "-" ? std::string() : format(" of {}", path));
  if (message.device) out += format(", GPU {}", *message.device);
  if (!message.writer.empty())
    out += message.writer.starts_with("pid=") ? ", " + message.writer : ", rank " + message.writer;
  return out;
}

std::string evidence(const Message& message, const Answer& answer) {
  std::vector<std::vector<std::string>> rows{{"", "printed", "bytes"}};
  for (std::size_t i = 0; i < kFigures; ++i) {
    const auto& figure = message.figures[i];
    if (figure)
      rows.push_back({std::string(describe(static_cast<Meaning>(i))),
                      figure->printed.ends_with(" bytes") ? "" : figure->printed,
                      exact(figure->bytes)});
  }
  for (const auto& each : message.processes)
    rows.push_back(
        {format("process {} holds", each.pid), each.held.printed, exact(each.held.bytes)});
  if (message.chunks) {
    const auto& chunks = *message.chunks;
    rows.push_back({format("in {} chunks in use", text::grouped(chunks.in_use)), "",
                    text::grouped(chunks.in_use_bytes)});
    rows.push_back({format("in {} free chunks", text::grouped(chunks.free)), "",
                    text::grouped(chunks.free_bytes)});
    rows.push_back({"the largest of them", "", text::grouped(chunks.largest_free)});
  }
  const auto derived = [&](std::string_view words, const std::optional<Range>& range) {
    if (range) rows.push_back({std::string(words), "", exact(*range)});
  };
  if (!message[Meaning::idle] && !message.chunks) derived("so idle in it", answer.idle);
  derived("so there without holes", answer.available);
  if (answer.lacking && answer.lacking->most > 0) derived("so short by", answer.lacking);
  if (answer.spare && answer.spare->most > 0) derived("so to spare", answer.spare);
  derived("so outside of it", answer.outside);
  derived("of that other processes", answer.others);
  return rows.size() == 1 ? std::string() : columns("lrr", rows);
}

}  // namespace

std::vector<Record> what_to_record(Speaker speaker, std::string_view given_path) {
  const std::string path(given_path);
  const Record driver{"Without a change of the program, what it asks of the driver:",
                      {"emmctl record -o run.emmb -- python train.py", "emmctl explain run.emmb"}};
  switch (speaker) {
    case Speaker::torch:
    case Speaker::vllm:
    case Speaker::sglang:
      return {{"In the program, before its first use of the device:",
               {"import torch", "torch.cuda.memory._record_memory_history(max_entries=1000000)"}},
              {"and where it fails:",
               {"except torch.cuda.OutOfMemoryError:",
                "    torch.cuda.memory._dump_snapshot(\"oom.pickle\"); raise"}},
              {"Then:", {"emmctl explain oom.pickle", "emmctl tune oom.pickle"}}};
    case Speaker::cupy:
    case Speaker::numba:
      return {{"What Python asked for, without a change of the program:",
               {"emmctl record --level request -o run.emmb -- python program.py",
                "emmctl explain run.emmb"}}};
    case Speaker::rmm:
      return {{"In the program, after its resource is set:",
               {"import rmm", "rmm.enable_logging(log_file_name=\"rmm.csv\")"}},
              {"Then:", {"emmctl explain rmm.dev0.csv", "emmctl inspect rmm.dev0.csv"}}};
    case Speaker::xla:
    case Speaker::tensorflow:
      return {{"The dump of chunks comes with the message at this level of the log:",
               {"TF_CPP_MIN_LOG_LEVEL=0 python train.py 2> train.log", "emmctl explain train.log"}},
              driver};
    case Speaker::onnxruntime:
      return {{"The arena writes its dump and its growth at this level of the log:",
               {"session_options.log_severity_level = 0"}},
              driver};
    case Speaker::nccl:
      return {{"What NCCL allocates beside the framework:",
               {"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALLOC python train.py"}},
              driver};
    case Speaker::host:
      return {{"What the job may use of the host's memory:",
               {"ulimit -v; cat /sys/fs/cgroup/memory.max", "free -g"}}};
    default:
      return {driver};
  }
}

format::Brief brief(const Messages& messages, std::size_t which, std::string_view path) {
  const auto& message = messages.all[which];
  const auto answer = message::answer(message);
  format::Brief made;
  made.answer = answer.lead;
  if (message.chunks && path != "-") {
    made.command = format("emmctl inspect {} --from bfc-dump", text::shell_word(std::string(path)));
  } else {
    // A line of a shell. What belongs into a program, at two places of it, is shown by --more.
    for (const auto& record : what_to_record(message.wording->speaker, path)) {
      if (made.command.empty() && record.lines.front().starts_with("emmctl record"))
        made.command = record.lines.front();
    }
  }
  made.sides = "lr";
  made.rows = {{place(message, path == "-" ? path : format::file_name(path)), ""}};
  const auto row = [&](std::string_view words, std::string bytes) {
    if (made.rows.size() <= format::Brief::kRows)
      made.rows.push_back({std::string(words), std::move(bytes)});
  };
  for (std::size_t i = 0; i < kFigures; ++i) {
    const auto& figure = message.figures[i];
    if (!figure) continue;
    row(describe(static_cast<Meaning>(i)),
        figure->printed.ends_with(" bytes") ? words_of(figure->bytes) : figure->printed);
  }
  if (!message[Meaning::idle] && answer.idle) row("so idle in it", words_of(*answer.idle));
  if (answer.outside) row("so outside of it", words_of(*answer.outside));
  made.more = "the figures in bytes, what they cannot tell, and what to record";
  if (messages.count > 1)
    made.more = format("{} other failure{} in {} lines, ", text::grouped(messages.count - 1),
                       messages.count == 2 ? "" : "s", text::grouped(messages.lines)) +
                made.more;
  return made;
}

std::string to_text(const Messages& messages, std::size_t which, std::string_view path) {
  const auto& message = messages.all[which];
  const auto answer = message::answer(message);
  std::string out;
  for (const auto& sentence : answer.lead) out += wrapped(sentence, kWidth);
  out += format("\nEvidence ({}, {})\n", framework(message.wording->speaker), place(message, path));
  const auto table = evidence(message, answer);
  out += table.empty() ? "  " + message.text + "\n" : table;
  for (const auto& note : answer.notes) out += '\n' + wrapped(note, kWidth);
  if (!answer.not_told.empty())
    out += '\n' + wrapped("Not told: " + text::join(answer.not_told, "; ") + ".", kWidth);
  if (messages.count > 1 || message.printed > 1) {
    out += format("\n{} in {} lines", text::counted(messages.count, "failure"),
                  text::grouped(messages.lines));
    if (message.printed > 1) out += format("; this one is printed {} times", message.printed);
    out += '\n';
  }
  if (messages.count > 1) {
    std::vector<std::vector<std::string>> rows{{"line", "rank", "GPU", "asked for", "cause"}};
    for (std::size_t i = 0; i < messages.all.size() && i < kListed; ++i) {
      const auto& each = messages.all[i];
      const auto asked = each[Meaning::asked];
      rows.push_back({format("{}", each.line), each.writer.empty() ? "-" : each.writer,
                      each.device ? format("{}", *each.device) : "-", asked ? asked->printed : "-",
                      std::string(name(message::answer(each).cause))});
      std::replace(rows.back().back().begin(), rows.back().back().end(), '_', ' ');
    }
    out += columns("rllrl", rows);
    if (messages.count > kListed) out += format("  ... and {} more\n", messages.count - kListed);
    if (messages.by_writer.size() > 1) {
      std::vector<std::string> counts;
      for (const auto& [writer, count] : messages.by_writer)
        counts.push_back(format("{}: {}", writer.empty() ? "no rank" : writer, count));
      counts.resize(std::min(counts.size(), kListed));
      out += wrapped("By rank: " + text::join(counts) + ".", kWidth);
    }
    out += format("Another of them: emmctl explain {} --event LINE\n",
                  path == "-" ? std::string("FILE") : text::shell_word(std::string(path)));
  }
  if (messages.not_failures > 0)
    out += '\n' + wrapped(format("A library asked {}, was refused, and went on without: no "
                                 "failure, as the log says.",
                                 text::counted(messages.not_failures, "time")),
                          kWidth);
  out += "\nTo know more\n";
  if (message.chunks && path != "-") {
    const auto shown = text::shell_word(std::string(path));
    out += format(
        "  The chunks, as a map and as a page:\n"
        "    emmctl inspect {} --from bfc-dump\n"
        "    emmctl report {} --from bfc-dump -o page.html\n",
        shown, shown);
  }
  for (const auto& record : what_to_record(message.wording->speaker, path)) {
    out += "  " + record.words + '\n';
    for (const auto& line : record.lines) out += "    " + line + '\n';
  }
  return out;
}

std::string to_json(const Messages& messages, std::size_t which, std::string_view path) {
  format::JsonAnswer json("emmctl.explain-message/1");
  const auto bytes = [&](const Range& range) {
    json.member("least_bytes", range.least).member("most_bytes", range.most);
  };
  json.member("log", path).member("lines", messages.lines);
  json.member("failure_count", messages.count).member("not_failures", messages.not_failures);
  json.member("explained", which);
  json.objects("by_rank", messages.by_writer, [&](const auto& each) {
    json.member_or_null("rank", !each.first.empty(), each.first);
    json.member("failure_count", each.second);
  });
  json.objects("failures", messages.all, [&](const Message& message) {
    const auto answer = message::answer(message);
    json.member("line", message.line);
    json.member_or_null("rank", !message.writer.empty(), message.writer);
    json.member("device", message.device);
    json.member("framework", framework(message.wording->speaker));
    json.member("text", message.text).member("printed_count", message.printed);
    json.member("cause", answer.cause).member("certain", answer.is_certain);
    json.member("words", text::join(answer.lead, " ")).key("figures").begin_array();
    for (std::size_t i = 0; i < kFigures; ++i) {
      const auto& figure = message.figures[i];
      if (!figure) continue;
      json.begin_object()
          .member("name", static_cast<Meaning>(i))
          .member("printed", figure->printed);
      bytes(figure->bytes);
      json.end_object();
    }
    json.end_array().objects("processes", message.processes, [&](const Process& each) {
      json.member("pid", each.pid).member("printed", each.held.printed);
      bytes(each.held.bytes);
    });
    json.object("chunks", message.chunks, [&](const Chunks& chunks) {
      json.member("in_use_count", chunks.in_use).member("in_use_bytes", chunks.in_use_bytes);
      json.member("free_count", chunks.free).member("free_bytes", chunks.free_bytes);
      json.member("largest_free_bytes", chunks.largest_free);
    });
    json.object("idle", answer.idle, bytes).object("available", answer.available, bytes);
    json.object("lacking", answer.lacking, bytes).object("spare", answer.spare, bytes);
    json.object("outside", answer.outside, bytes).object("others", answer.others, bytes);
    json.member("notes", answer.notes).member("not_told", answer.not_told);
    json.objects("record", what_to_record(message.wording->speaker, path),
                 [&](const Record& record) {
                   json.member("words", record.words).member("to_paste", record.lines);
                 });
  });
  return json.finish();
}

}  // namespace emm::message
