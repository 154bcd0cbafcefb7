// A list of operations, one per line: "a <id> <bytes>" or "f <id>". Lines that begin with # are
// comments.
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "exchange/importers/each_row.hpp"
#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/words.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

struct OpsLine {
  enum class Kind { comment, allocate, free } kind = Kind::comment;
  std::string_view id{};
  std::uint64_t size = 0;
};

std::optional<BadField> parse_ops_line(std::string_view text, OpsLine& line) {
  line = {};
  Words words(text);
  const auto what = words.take();
  if (what.starts_with('#')) return std::nullopt;
  if (what != "a" && what != "f") {
    words.refuse("the operation", "a or f");
    return words.bad();
  }
  line.kind = what == "a" ? OpsLine::Kind::allocate : OpsLine::Kind::free;
  line.id = words.take();
  if (line.id.empty()) words.refuse("the id", "a name");
  if (what == "a") line.size = words.number("size", "a count of bytes");
  words.end();
  return words.bad();
}

int sniff_ops_list(std::string_view prefix) {
  constexpr std::size_t kLines = 20;  // headings and comments come first
  std::size_t seen = 0, good = 0, operations = 0;
  first_lines(prefix, kLines, [&](std::string_view text) {
    OpsLine line;
    ++seen;
    const auto bad = parse_ops_line(text, line);
    good += bad ? 0 : 1;
    operations += !bad && line.kind != OpsLine::Kind::comment ? 1 : 0;
  });
  return operations > 0 && good == seen ? 80 : 0;
}

/// Reads the lines. An id may be reused; it names its last allocation.
class OpsList {
 public:
  explicit OpsList(ImportRun& run) noexcept
      : run_(run), pairs_(run, PairedRows::Addresses::names) {}

  Status line(const OpsLine& line) {
    Operation op;
    const auto known = live_.find(line.id);
    switch (line.kind) {
      case OpsLine::Kind::comment:
        ++comments_;
        run_.other();
        return {};
      case OpsLine::Kind::allocate: {
        const auto place = known != live_.end() ? known->second : ++last_;
        if (known == live_.end()) live_.emplace(line.id, place);
        return pairs_.allocate(op, place, line.size);
      }
      case OpsLine::Kind::free: {
        if (known == live_.end()) return pairs_.free(op, ~std::uint64_t{0});
        const auto place = known->second;
        live_.erase(known);
        return pairs_.free(op, place);
      }
    }
    return {};
  }
  Result<ImportCounts> finish() {
    run_.note(comments_, "lines are comments");
    return pairs_.finish();
  }

 private:
  ImportRun& run_;
  PairedRows pairs_;
  std::map<std::string, std::uint64_t, std::less<>> live_;
  std::uint64_t last_ = 0, comments_ = 0;
};

Result<ImportCounts> read_ops(format::ByteSource& source, OperationSink& sink,
                              const ImportOptions& options) {
  ImportRun run(source, sink, options);
  Header header;
  header.complete = header.has_complete = true;
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  OpsList list(run);
  OpsLine line;
  auto read = each_row(
      run,
      [&](std::string_view text) -> Result<std::optional<BadField>> {
        return parse_ops_line(text, line);
      },
      [&] { return list.line(line); });
  if (!read) return std::move(read).error();
  return list.finish();
}

}  // namespace

extern constinit const Importer ops_list_importer{
    .name = "ops-list",
    .summary = "one operation a line: a <id> <bytes>, or f <id>",
    .from_documentation = true,
    .sniff = sniff_ops_list,
    .read = read_ops,
};

}  // namespace emm
