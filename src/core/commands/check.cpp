#include "exchange/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/run_files.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/gates.hpp"
#include "cli/load.hpp"
#include "format/json_writer.hpp"
#include "format/whole_file.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

std::string_view name(trace::Finding::Severity severity) {
  return severity == trace::Finding::Severity::error ? "error" : "warning";
}

std::string check_to_json(const std::string& source, const trace::Importer& importer,
                          const trace::CheckReport& report) {
  format::JsonAnswer json("emmctl.check/1");
  json.member("trace", source).member("format", importer.name);
  if (report.rows) json.object("rows", [&] { put_counts(json, *report.rows); });
  json.member("operations", report.summary.operations);
  json.member("extensions", report.summary.extensions).member("allocations", report.allocations);
  json.member("leaked", report.leaked).member("leaked_bytes", report.leaked_bytes);
  json.member("peak_live_bytes", report.peak_live_bytes).member("errors", report.errors);
  json.member("warnings", report.warnings).member("torn", report.summary.torn);
  json.objects("findings", report.findings, [&](const auto& finding) {
    json.member("severity", name(finding.severity)).member("line", finding.line);
    json.member("words", finding.words);
  });
  return json.finish();
}

std::string to_text(const std::string& source, const trace::CheckReport& report) {
  std::string out;
  for (const auto& finding : report.findings)
    out += text::format("{}: {}\n", name(finding.severity),
                        text::printable(finding.words, std::string::npos));
  const auto found = report.errors + report.warnings;
  if (found > report.findings.size())
    out += text::format("... and {} more\n", found - report.findings.size());
  out += text::format("{}: {} operations, {} allocations, peak live {}; {} errors, {} warnings\n",
                      text::printable(source, std::string::npos),
                      text::grouped(report.summary.operations), text::grouped(report.allocations),
                      units::bytes(report.peak_live_bytes), text::grouped(report.errors),
                      text::grouped(report.warnings));
  if (report.summary.torn && report.errors == 0) {
    out += text::format(
        "{}: the file was cut: what is there was judged, and what is missing could not be\n",
        text::printable(source, std::string::npos));
  }
  return out;
}

constexpr MeasureName kCheckMeasures[] = {
    {"leaked"}, {"leaked_bytes", true}, {"peak", true}, {"errors"}, {"warnings"}};
/// "run.jsonl.gz" becomes "run.fixed.jsonl.gz".
std::string fixed_path(const std::string& path) {
  const auto name = path.rfind('/') + 1;  // without a slash npos + 1 is 0
  const auto dot = std::min(path.find('.', name + 1), path.size());
  return path.substr(0, dot) + ".fixed" + path.substr(dot);
}

/// Passes a trace on with more features in its header.
class NamingSink final : public trace::OperationSink {
 public:
  NamingSink(trace::OperationSink& to, const std::vector<std::string_view>& features)
      : to_(to), features_(features) {}

  Status on_header(const trace::Header& header) override {
    auto named = header;
    named.requires_.insert(named.requires_.end(), features_.begin(), features_.end());
    return to_.on_header(named);
  }
  Status on_operation(const trace::Operation& operation) override {
    return to_.on_operation(operation);
  }
  Status finish() override { return to_.finish(); }

 private:
  trace::OperationSink& to_;
  const std::vector<std::string_view>& features_;
};

class Check final : public CommandRun {
 public:
  explicit Check(Arguments& arguments) {
    trace_.offer(arguments);
    gates_.offer(arguments, "leaked > 0");
    arguments.under(OptionHeading::shown).count("--top", top_, "How many findings to list");
    arguments.output("--json", json_, "Writes the findings as JSON (emmctl.check/1)");
    arguments.flag("--fix", fix_,
                   "If \"requires\" lacks a feature that the trace uses, write a corrected copy "
                   "beside it: run.fixed.json of run.json");
    arguments.footer(
        "Exit codes: 0 no errors, though there may be warnings; 1 a condition of --fail-if holds; "
        "3 no errors in the part of a cut "
        "file that is there (--partial); 4 errors.");
  }

  Result<ExitCode> run(Console& console) override {
    if (auto parsed = gates_.parse(); !parsed) return parsed.error();
    auto source = format::ByteSource::open(trace_.path, &interrupted());
    if (!source) return std::move(source).error();
    auto importer = choose_importer(**source, trace_.format);
    if (!importer) return std::move(importer).error();
    const auto is_trace = (*importer)->name == kTraceFormat;
    // Only a file can be read a second time, which is needed if its operations are out of order.
    const bool streams = is_trace && (*source)->total() != 0;
    const trace::ReadOptions options{.partial = trace_.partial};
    auto report = is_trace ? trace::check(**source, options, top_, streams)
                           : trace::check(**source, **importer, {.partial = trace_.partial}, top_);
    if (report && report->needs_memory) {
      source = format::ByteSource::open(trace_.path, &interrupted());
      if (!source) return std::move(source).error();
      report = trace::check(**source, options, top_);
    }
    if (!report) return std::move(report).error();
    if (report->rows) {
      console.say(describe(**importer, *report->rows));
      for (const auto& note : report->rows->notes) console.say(note);
    }
    const auto& name = (*source)->name();
    if (auto written =
            console.write_if(json_, [&] { return check_to_json(name, **importer, *report); });
        !written)
      return written.error();
    if (json_ != "-") console.result(to_text(name, *report));
    if (fix_) {
      if (auto fixed = fix(console, **importer, *report); !fixed) return fixed.error();
    } else if (!report->unnamed_features.empty() && report->errors == 0 && has_name(trace_.path)) {
      console.say(text::format("emmctl check {} --fix writes {}, whose \"requires\" is whole",
                               text::shell_word(trace_.path),
                               text::shell_word(fixed_path(trace_.path))));
    }
    if (report->errors > 0) return ExitCode::damaged;
    return gates_.judge(console, report->summary.torn ? ExitCode::inconclusive : ExitCode::fine,
                        {report->leaked, report->leaked_bytes, report->peak_live_bytes,
                         report->errors, report->warnings},
                        report->of_requests
                            ? ", of what the program asked for; its manager's own leaks are in "
                              "what emmctl record --level driver records"
                            : "");
  }

 private:
  /// Writes the trace beside itself with a header that names what the trace uses.
  Status fix(Console& console, const trace::Importer& importer,
             const trace::CheckReport& report) const {
    if (!has_name(trace_.path))
      return fail(Errc::usage, "--fix: {} has no name: expected a file", trace_.path);
    if (report.errors > 0)
      return fail(Errc::parse_error, "--fix: {} has errors: expected a trace without any",
                  trace_.path);
    if (report.unnamed_features.empty()) {
      console.say(text::format("--fix: nothing of {} can be mended", trace_.path));
      return {};
    }
    const auto path = fixed_path(trace_.path);
    if (access(path.c_str(), F_OK) == 0)
      return fail(Errc::usage, "--fix: {} is there already: expected no file of that name", path);
    auto source = format::ByteSource::open(trace_.path, &interrupted());
    if (!source) return std::move(source).error();
    auto sink = format::open_whole(path, "--fix");
    if (!sink) return std::move(sink).error();
    const auto writer = trace::make_writer(**sink, form_of(path));
    NamingSink naming(*writer, report.unnamed_features);
    if (auto read = read_with_progress(console, importer, **source, naming, trace_.partial); !read)
      return read.error();
    if (auto closed = (*sink)->close(); !closed) return closed;
    console.say(text::format("{} is {} with \"requires\" that also names {}", path, trace_.path,
                             text::join(report.unnamed_features)));
    run_files::note_told(path);
    return {};
  }

  TraceArgument trace_;
  Gates gates_{kCheckMeasures};
  std::string json_;
  bool fix_ = false;
  std::uint64_t top_ = 100;
};

}  // namespace

extern constinit const Command check_command{
    "check",
    "Judge a trace without replaying it",
    false,
    make_run<Check>,
    Heading::traces,
    {{{"emmctl check run.jsonl", "Says whether the trace is sound."},
      {"emmctl check run.jsonl --top 3 --json found.json", "Shows three findings, writes all."}}}};

}  // namespace emm
