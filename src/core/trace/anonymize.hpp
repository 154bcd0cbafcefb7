#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "trace/id.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// Passes a trace on without what tells its origin. It drops frames, names, labels, addresses and
/// extensions, and from the header the name, the description, the command, the host, the date of
/// the clock, the names and uuids of devices, and the options of the tool. An id that is a word, or
/// large enough to be an address, becomes a number of its kind in the order of first mention
/// ("r1"). The text of marks and gaps becomes "-". Sizes, times and streams stay, so that a replay
/// does the same. Memory grows with the number of replaced ids.
class Anonymizer final : public OperationSink {
 public:
  explicit Anonymizer(OperationSink& to) noexcept : to_(to) {}

  Status on_header(const Header& header) override;
  Status on_operation(const Operation& operation) override;
  Status finish() override { return to_.finish(); }

 private:
  enum class Kind : std::uint8_t {
    allocation,
    thread,
    process,
    context,
    stream,
    pool,
    handle,
    buffer,
    record,
    scope,
    graph,
    range
  };
  static constexpr std::size_t kKinds = 12;  // as many as Kind has

  void rename(Kind kind, Id& id);
  std::string renamed(Kind kind, const std::string& name);

  OperationSink& to_;
  std::array<std::map<std::string, std::string, std::less<>>, kKinds> names_;
  std::uint64_t left_out_ = 0;  // dropped operations, which the counts of `end` must not include
};

}  // namespace emm::trace
