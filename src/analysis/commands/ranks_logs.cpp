#include "commands/ranks_logs.hpp"

#include <algorithm>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "cli/file_kind.hpp"
#include "commands/explain_log.hpp"
#include "fleet/rank_files.hpp"
#include "format/brief.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "message/answer.hpp"

namespace emm::cli {
namespace {

constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what file_kind() is shown

/// A failure of one rank.
struct Failed {
  std::string rank, path;
  message::Message message;
};

/// What the logs of one run say.
struct RunLogs {
  std::string name{};
  std::vector<std::string> ranks{};  ///< All of them, by their files.
  std::uint64_t lines = 0;
  std::vector<Failed> failed{};

  std::vector<std::string> failed_ranks() const {
    std::vector<std::string> out;
    for (const auto& each : failed) {
      if (std::find(out.begin(), out.end(), each.rank) == out.end()) out.push_back(each.rank);
    }
    return out;
  }
};

Result<RunLogs> read_logs(Console& console, const fleet::RankSet& set) {
  RunLogs logs{.name = text::printable(set.name, 200)};
  for (const auto& rank : set.ranks) {
    auto source = format::ByteSource::open(rank.path);
    if (!source) return std::move(source).error();
    auto messages = message::find_messages(**source);
    if (!messages) return std::move(messages).error();
    const auto label = text::printable(rank.label, 60);
    logs.ranks.push_back(label);
    logs.lines += messages->lines;
    for (auto& each : messages->all) {
      // One log may be of several ranks.
      const bool is_named = set.ranks.size() == 1 && !each.writer.empty();
      const auto writer = is_named ? text::printable(each.writer, 60) : label;
      logs.failed.push_back({writer, rank.path, std::move(each)});
    }
    console.progress("ranks", logs.ranks.size(), set.ranks.size());
  }
  console.end_progress();
  return logs;
}

std::string words_of_run(const RunLogs& logs, bool more) {
  const auto ranks = logs.failed_ranks();
  const auto& first = logs.failed.front();
  const auto answer = message::answer(first.message);
  format::Brief brief;
  const auto them = text::join(ranks);
  const auto order = ranks.size() > 1 ? " Which was the first, the logs do not tell." : "";
  brief.answer = {logs.ranks.size() > 1 ? text::format("{} of {} ranks ran out of memory: {}.{}",
                                                       ranks.size(), logs.ranks.size(), them, order)
                                        : text::format("Out of memory: rank{} {}.",
                                                       ranks.size() > 1 ? "s" : "", them),
                  text::format("Rank {}: {}", first.rank, answer.lead.front()),
                  answer.lead.size() > 1 ? answer.lead[1] : std::string()};
  brief.command = text::format("emmctl explain {}{}", text::shell_word(first.path),
                               logs.failed.size() > 1 && logs.ranks.size() == 1
                                   ? text::format(" --event {}", first.message.line)
                                   : std::string());
  brief.sides = "llrrrl";
  brief.rows = {{"rank", "log", "line", "GPU", "asked for", "cause"}};
  for (const auto& each : logs.failed) {
    const auto& asked = each.message[message::Meaning::asked];
    auto cause = std::string(inspect::name(message::answer(each.message).cause));
    std::replace(cause.begin(), cause.end(), '_', ' ');
    brief.rows.push_back({each.rank, text::printable(format::file_name(each.path), 40),
                          text::format("{}", each.message.line),
                          each.message.device ? text::format("{}", *each.message.device) : "-",
                          asked ? asked->printed : "-", cause});
  }
  brief.more = "all failures";
  if (!more) {
    brief.rows.resize(std::min(brief.rows.size(), format::Brief::kRows + 1));
    return format::to_text(brief);
  }
  std::string out = logs.name + '\n';
  for (const auto& sentence : brief.answer) out += sentence + '\n';
  out += text::format("Next: {}\n\n", brief.command);
  return out + format::columns(brief.sides, brief.rows);
}

std::string json_of(const std::vector<RunLogs>& runs) {
  format::JsonAnswer json("emmctl.ranks-log/1");
  json.objects("runs", runs, [&](const RunLogs& logs) {
    json.member("name", logs.name).member("lines", logs.lines).member("ranks", logs.ranks);
    json.objects("failed", logs.failed, [&](const auto& each) {
      const auto answer = message::answer(each.message);
      const auto asked = each.message.bytes(message::Meaning::asked);
      const auto bytes = asked.value_or(message::Range());
      json.member("rank", each.rank).member("log", each.path);
      json.member("line", each.message.line).member("device", each.message.device);
      json.member("framework", message::framework(each.message.wording->speaker));
      json.member("cause", answer.cause).member("certain", answer.is_certain);
      json.member_or_null("asked_least_bytes", asked.has_value(), bytes.least);
      json.member_or_null("asked_most_bytes", asked.has_value(), bytes.most);
      json.member("words", text::join(answer.lead, " ")).member("text", each.message.text);
    });
  });
  return json.finish();
}

}  // namespace

bool are_logs(const std::vector<std::string>& files) {
  bool has_text = false;
  for (const auto& path : files) {
    const auto source = format::ByteSource::open(path);
    if (!source || !is_log(**source, {})) return false;
    const auto prefix = (*source)->peek(kPrefixBytes);
    if (!prefix) return false;
    if (prefix->empty()) continue;  // A rank that printed nothing.
    if (!file_kind(*prefix, path).may_have_messages) return false;
    has_text = true;
  }
  return has_text;
}

Result<ExitCode> ranks_of_logs(Console& console, const std::vector<std::string>& files,
                               const std::string& json, bool more) {
  std::vector<RunLogs> runs;
  for (const auto& set : fleet::sets_of(files)) {
    auto logs = read_logs(console, set);
    if (!logs) return std::move(logs).error();
    runs.push_back(*std::move(logs));
  }
  std::string text;
  for (const auto& logs : runs) {
    if (logs.failed.empty()) continue;
    if (!text.empty()) text += '\n';
    text += words_of_run(logs, more);
  }
  if (auto written = console.write_if(json, [&] { return json_of(runs); }); !written)
    return written.error();
  if (text.empty()) {
    console.say(text::format("no out-of-memory message in {} log{}", files.size(),
                             files.size() == 1 ? "" : "s"));
    return ExitCode::inconclusive;
  }
  if (json != "-") console.result(text);
  return ExitCode::fine;
}

}  // namespace emm::cli
