// Writes the log of RMM's logging_resource_adaptor.
#include "format/rmm_csv.hpp"

#include <optional>
#include <string>

#include "exchange/exporters/requests.hpp"
#include "exchange/importers/address_book.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;
namespace rmm = format::rmm;

/// Times begin at midnight. If an address is not recorded or is already live, another is invented.
class RmmCsvExport final : public RequestExport {
 public:
  explicit RmmCsvExport(format::ByteSink& out) noexcept : out_(out) {}

  Status finish() override {
    note_left_out();
    note(made_up_, "allocations have no address of their own in the trace: theirs are made up");
    return out_.flush();
  }

 protected:
  Status begin(const Header&) override { return out_.write(std::string(rmm::kHeader) + '\n'); }
  Status starts(const Operation& operation, LiveRequest& request) override {
    const LiveAllocation entry{.id = 0, .size = request.size};
    request.address = operation.has(Member::addr) ? operation.addr : 0;
    if (request.address == 0 || !book_.add(request.address, entry)) {
      ++made_up_;
      request.address = next_;
      while (!book_.add(request.address, entry)) request.address += kStep;
      next_ = request.address + (request.size / kStep + 1) * kStep;
      if (next_ >= kLast) next_ = kFirst;
    }
    return row(operation, rmm::Action::allocate, request.address, request.size);
  }
  Status ends(const Operation& by, const LiveRequest& request) override {
    book_.remove(request.address);
    return row(by, rmm::Action::free, request.address, request.size);
  }
  Status fails(const Operation& operation) override {
    return row(operation, rmm::Action::allocate_failure, 0, operation.size);
  }

 private:
  // Addresses for memory that has none: where Linux maps devices, in RMM's alignment.
  static constexpr std::uint64_t kFirst = 0x700000000000, kLast = 0x7f0000000000, kStep = 512;

  Status row(const Operation& operation, rmm::Action action, std::uint64_t pointer,
             std::uint64_t size) {
    if (operation.has(Member::time_ns)) {
      if (!start_ns_) start_ns_ = operation.time_ns;
      time_ns_ = operation.time_ns < *start_ns_ ? 0 : operation.time_ns - *start_ns_;
    }
    line_.clear();
    append(line_, rmm::Row{.thread = thread_of(operation),
                           .time_ns = time_ns_ % rmm::kDayNs,
                           .action = action,
                           .pointer = pointer,
                           .size = size,
                           .stream = stream_of(operation)});
    return out_.write(line_);
  }

  format::ByteSink& out_;
  AddressBook book_;
  std::string line_;
  std::optional<std::uint64_t> start_ns_;
  std::uint64_t time_ns_ = 0, next_ = kFirst, made_up_ = 0;
};

}  // namespace

extern constinit const Exporter rmm_csv_exporter{
    .name = "rmm-csv",
    .summary = "RMM's log: Thread,Time,Action,Pointer,Size,Stream",
    .extensions = {".csv"},
    .open = open_export<RmmCsvExport>,
};

}  // namespace emm
