// Writes the trace as a placement problem, id,lower,upper,size, for MiniMalloc and idealloc.
#include <string>
#include <vector>

#include "base/text_format.hpp"
#include "exchange/exporters/requests.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// Time counts turns. A turn begins with each free that follows an allocation, so two buffers
/// overlap in the problem exactly if they overlap in the trace. Rows are in the order of the
/// allocations. A buffer that is never freed lives to the end. Holds all rows.
class DsaCsvExport final : public RequestExport {
 public:
  explicit DsaCsvExport(format::ByteSink& out) noexcept : out_(out) {}

  Status finish() override {
    if (!rows_.empty() && allocated_) ++time_;
    const auto left = live();
    for (const auto& request : left) rows_[request.order].upper = time_;
    if (auto written = write(); !written) return written;
    note_left_out();
    note(failures_, "allocations failed: left out");
    note(left.size(), "allocations are never freed: they live to the end");
    return out_.flush();
  }

 protected:
  Status begin(const Header&) override { return {}; }
  Status starts(const Operation& operation, LiveRequest&) override {
    allocated_ = true;
    BufferRow row{.id = {}, .lower = time_, .upper = 0, .size = operation.size, .align = 0};
    if (operation.id.is_number()) {
      text::append(row.id, operation.id.number);
    } else {
      row.id = operation.id.text;
    }
    if (operation.has(Member::align)) row.align = operation.align;
    aligned_ = aligned_ || row.align > 1;
    rows_.push_back(std::move(row));
    return {};
  }
  Status ends(const Operation&, const LiveRequest& request) override {
    if (allocated_) ++time_;
    allocated_ = false;
    rows_[request.order].upper = time_;
    return {};
  }
  Status fails(const Operation&) override {
    ++failures_;
    return {};
  }

 private:
  struct BufferRow {
    std::string id;
    std::uint64_t lower, upper, size, align;
  };

  Status write() {
    std::string text = aligned_ ? "id,lower,upper,size,alignment\n" : "id,lower,upper,size\n";
    for (const auto& row : rows_) {
      text += row.id;
      for (const auto number : {row.lower, row.upper, row.size}) {
        text += ',';
        text::append(text, number);
      }
      if (aligned_) text += text::format(",{}", row.align > 1 ? row.align : 1);
      text += '\n';
      if (text.size() < kChunk) continue;
      if (auto written = out_.write(text); !written) return written;
      text.clear();
    }
    return out_.write(text);
  }

  static constexpr std::size_t kChunk = std::size_t{64} << 10;  // bytes that are written at once

  format::ByteSink& out_;
  std::vector<BufferRow> rows_;
  std::uint64_t time_ = 0, failures_ = 0;
  bool allocated_ = false;  // since the last free
  bool aligned_ = false;
};

}  // namespace

extern constinit const Exporter dsa_csv_exporter{
    .name = "dsa-csv",
    .summary = "a placement problem, as MiniMalloc and idealloc read it: id,lower,upper,size",
    .extensions = {".csv"},
    .open = open_export<DsaCsvExport>,
};

}  // namespace emm
