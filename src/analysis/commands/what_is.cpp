#include "cli/what_is.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/shell_word.hpp"
#include "base/text_format.hpp"
#include "exchange/importer.hpp"
#include "format/printed_lines.hpp"
#include "inspect/statistics.hpp"
#include "message/message.hpp"
#include "trace/curve.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::cli {
namespace {

constexpr std::size_t kPrefix = std::size_t{64} << 10;  // what file_kind() is shown

/// The beginning of a file: what it is has to be said at once, also of many gigabytes.
class Beginning final : public format::ByteSource {
 public:
  explicit Beginning(std::unique_ptr<format::ByteSource> source) : source_(std::move(source)) {}
  const std::string& name() const noexcept override { return source_->name(); }
  Result<std::string_view> peek(std::size_t size) override { return source_->peek(size); }
  Result<std::string_view> next() override {
    if (is_cut_) return std::string_view();
    auto bytes = source_->next();
    if (!bytes) return bytes;
    is_cut_ = bytes->size() > left_;
    const auto taken = bytes->substr(0, left_);
    left_ -= taken.size();
    return taken;
  }
  std::uint64_t consumed() const noexcept override { return source_->consumed(); }
  std::uint64_t total() const noexcept override { return source_->total(); }
  bool truncated() const noexcept override { return source_->truncated(); }
  /// Is there more of the file?
  bool is_cut() const noexcept { return is_cut_; }

 private:
  std::unique_ptr<format::ByteSource> source_;
  std::size_t left_ = std::size_t{64} << 20;
  bool is_cut_ = false;
};

constexpr std::string_view kCut =
    " Only its first 64 MiB were read: what comes after them is not known.";

struct Suggestion {
  std::string command, what;
};

FileAnswer listed(std::string what, const std::vector<Suggestion>& asked) {
  FileAnswer answer{.what = std::move(what), .lines = "\nAsk of it:\n"};
  for (const auto& [command, question] : asked)
    answer.lines += text::format("  emmctl {}\n      {}\n", command, question);
  return answer;
}

/// The schema ("emmctl.compare/2") of a result that a command wrote with --json. Empty for any
/// other file.
std::string schema_of(std::string_view begin) {
  const auto key = begin.find("\"schema\"");
  if (!begin.starts_with('{') || key == std::string_view::npos) return {};
  const auto open = begin.find('"', key + 8);
  if (open == std::string_view::npos) return {};
  const auto close = begin.find('"', open + 1);
  const auto value = begin.substr(open + 1, close - open - 1);
  return value.starts_with("emmctl.") ? std::string(value) : std::string();
}

FileAnswer of_result(const std::string& path, const std::string& schema) {
  const auto shown = text::shell_word(path);
  if (schema.starts_with("emmctl.config/")) {
    return {.what = text::format(
                "{} holds defaults of options ({}); `emmctl doctor` says what is in effect.", path,
                schema)};
  }
  const auto command = schema.substr(7, schema.find_first_of("/-", 7) - 7);
  std::vector<Suggestion> asked{
      {text::format("report {} -o page.html", shown), "Makes a page of it."}};
  if (command == "compare") {
    asked.push_back(
        {text::format("compare TRACE --baseline {} --fail-if 'reserved > 1.02x'", shown),
         "Says whether a manager reserves more than it did then."});
  }
  return listed(
      text::format("{} is the answer of `emmctl {}` as JSON ({}).", path, command, schema), asked);
}

FileAnswer of_library(const std::string& path) {
  const auto shown = text::shell_word(path.find('/') == std::string::npos ? "./" + path : path);
  return listed(
      text::format("{} is a shared object or a program.", path),
      {{text::format("list managers {}", shown), "Lists the memory managers in it."},
       {text::format("conformance --manager {}", shown), "Judges its manager by the contract."},
       {text::format("record -o run.jsonl -- {}", shown),
        "Records it, where it is a program that uses CUDA."}});
}

/// What a recording has beside what was live.
enum class RecordedExtent : std::uint8_t {
  requests,  ///< It can be replayed.
  state,     ///< One moment.
  curve,     ///< What was live, and not which block was freed.
};

/// Reads a recording until it has a request.
class FirstRequest final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header& header) override {
    has_begun_ = true;
    if (trace::curve_of(header) != trace::Curve::none) extent_ = RecordedExtent::curve;
    return extent_ == RecordedExtent::curve ? enough() : Status();
  }
  Status on_operation(const trace::Operation& operation) override {
    if (operation.preexisting) {
      extent_ = RecordedExtent::state;
      return {};
    }
    const auto asks =
        trace::asks_for_device_memory(operation.op) && operation.layer != trace::Layer::backing;
    if (!asks) return {};
    extent_ = RecordedExtent::requests;
    has_request_ = true;
    return enough();
  }
  Status finish() override { return {}; }
  RecordedExtent extent() const noexcept { return extent_; }
  bool has_begun() const noexcept { return has_begun_; }
  bool has_request() const noexcept { return has_request_; }

 private:
  static Status enough() { return Error{.code = Errc::interrupted}; }
  RecordedExtent extent_ = RecordedExtent::requests;
  bool has_begun_ = false, has_request_ = false;
};

Result<FileAnswer> of_recording(const std::string& path, const trace::Importer& importer,
                                Beginning& source) {
  const auto shown = text::shell_word(path);
  const auto prefix = source.peek(kPrefix);
  if (!prefix) return prefix.error();
  const std::string begin(*prefix);
  FirstRequest first;
  // A damaged recording tells what it is, too, but not one of which nothing can be read.
  const auto read = importer.read(source, first, {.partial = true});
  const bool is_cut =
      source.is_cut() && !first.has_request() && first.extent() != RecordedExtent::curve;
  if (!read && !first.has_begun() && !is_cut) {
    auto answer = file_kind(begin, path);
    answer.what = std::string(read.error().message);
    return answer;
  }
  const auto what = text::format("{} is in the format {}: {}.{}", path, importer.name,
                                 importer.summary, is_cut ? kCut : "");
  if (first.extent() != RecordedExtent::requests && !is_cut) {
    const bool is_state = first.extent() == RecordedExtent::state;
    std::vector<Suggestion> asked{
        {text::format("inspect {}", shown),
         is_state ? "Shows what was live, and where." : "Shows the curve and the peak."}};
    if (is_state) {
      asked.push_back({text::format("explain {} --capacity SIZE", shown),
                       "Says what is returnable, what is stuck, and the largest request that "
                       "would be served."});
    }
    asked.push_back({text::format("report {} -o page.html", shown), "Makes a page for a browser."});
    return listed(what + (is_state ? " It has one moment and no request: nothing to replay."
                                   : " It does not tell which block was freed: nothing to replay."),
                  asked);
  }
  std::vector<Suggestion> asked{
      {text::format("inspect {}", shown), "Shows sizes, lifetimes, the peak and leaks."},
      {text::format("explain {}", shown), "Says why it ran out of memory, if it did."},
      {text::format("tune {}", shown),
       "Finds the setting of PyTorch's allocator that takes the least memory."},
      {text::format("replay {} --manager pool", shown), "Says whether the pool serves it."},
      {text::format("compare {} --manager pool --manager pytorch", shown),
       "Shows which manager reserves less."},
      {text::format("report {} -o page.html", shown), "Makes a page for a browser."},
  };
  if (importer.name != "emm") {
    asked.push_back({text::format("convert {} run.jsonl", shown), "Makes a trace of it."});
  } else {
    asked.push_back({text::format("check {}", shown), "Says whether it is sound."});
  }
  return listed(what, asked);
}

FileAnswer of_statistics(const std::string& path, const inspect::StatisticsReader& reader) {
  return listed(text::format("{} is in the format {}: {}. It has figures and no events.", path,
                             reader.name, reader.summary),
                {{text::format("explain {}", text::shell_word(path)),
                  "Says what the figures mean, and what they cannot tell."}});
}

/// A log with messages: what to ask of it.
FileAnswer of_messages(const message::Messages& messages, const std::string& path, bool is_cut) {
  const auto shown = text::shell_word(path);
  const auto& first = messages.all.front();
  std::vector<Suggestion> asked{
      {text::format("explain {}", shown), "Says why memory ran out, and what to record next."}};
  if (first.chunks) {
    asked.push_back(
        {text::format("inspect {} --from bfc-dump", shown), "Shows the allocator's chunks."});
    asked.push_back({text::format("report {} --from bfc-dump -o page.html", shown),
                     "Makes a page for a browser, with their map."});
  }
  return listed(text::format("{} is a log of {} with {}, the first "
                             "at line {} ({}).{}",
                             path, text::counted(messages.lines, "line"),
                             text::counted(messages.count, "out-of-memory message"), first.line,
                             message::framework(first.wording->speaker), is_cut ? kCut : ""),
                asked);
}

/// A text that is no recording.
Result<FileAnswer> of_log(format::ByteSource& source, const Beginning& file,
                          const std::string& path, FileAnswer kind) {
  if (!kind.may_have_messages) return kind;
  auto messages = message::find_messages(source);
  if (!messages) return std::move(messages).error();
  if (!messages->all.empty()) return of_messages(*messages, path, file.is_cut());
  if (kind.is_text) {
    kind.what +=
        text::format(", with no out-of-memory message in {}{}", file.is_cut() ? "its first " : "",
                     text::counted(messages->lines, "line"));
  }
  if (file.is_cut()) kind.what += text::format(".{} `emmctl explain` reads all", kCut);
  return kind;
}

}  // namespace

Result<FileAnswer> what_is(const std::string& path) {
  const auto shown = text::shell_word(path);
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (std::filesystem::is_directory(status)) {
    return listed(text::format("{} is a folder.", path),
                  {{text::format("ranks {}", shown),
                    "Compares the recordings, or the logs, in it as the ranks of one run."}});
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return listed(text::format("{} is no file but a pipe or a device, which is read once.", path),
                  {{text::format("explain - < {}", shown),
                    "Says why memory ran out, of a log that comes through it."}});
  }
  std::ifstream file(path, std::ios::binary);
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  constexpr char kCore = 4, kGpu = static_cast<char>(190);  // e_type and e_machine of ELF
  if (begin.starts_with("\x7f"
                        "ELF") &&
      begin.size() > 20 && begin[16] != kCore && begin[18] != kGpu)
    return of_library(path);
  if (const auto schema = schema_of(begin); !schema.empty()) return of_result(path, schema);
  auto opened = format::ByteSource::open(path);
  if (!opened) return std::move(opened).error();
  auto source = std::make_unique<Beginning>(*std::move(opened));
  const auto importer = trace::detect(*source);
  if (importer && !(*importer)->is_also_log) return of_recording(path, **importer, *source);
  if (importer) {
    // Without a message in it, it is a recording like others.
    auto messages = message::find_messages(*source);
    if (!messages) return std::move(messages).error();
    if (!messages->all.empty()) return of_messages(*messages, path, source->is_cut());
    opened = format::ByteSource::open(path);
    if (!opened) return std::move(opened).error();
    Beginning again(*std::move(opened));
    return of_recording(path, **importer, again);
  }
  const auto& file_itself = *source;
  const auto printed = format::printed_lines(std::move(source));
  const auto statistics = inspect::detect_statistics(*printed);
  if (statistics && *statistics) return of_statistics(path, **statistics);
  const auto prefix = printed->peek(kPrefix);
  if (!prefix) return prefix.error();
  return of_log(*printed, file_itself, path, file_kind(*prefix, path));
}

}  // namespace emm::cli
