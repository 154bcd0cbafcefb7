#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "trace/operation.hpp"

namespace emm::trace {

/// Passes a trace on without what tells where it comes from: frames, names, labels, addresses,
/// extensions, and of its header the name, the description, the command, the host, the clock's
/// date, devices' names and uuids and the tool's options. Ids that are words, or large enough to be
/// addresses, are replaced by numbers of their kind, in the order in which they come ("r1"); text
/// of marks and gaps by "-". What memory was asked for, when and where is left as it was, and a
/// replay does the same. Memory grows with the ids that are replaced.
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
  static constexpr std::size_t kKinds = 12;

  void rename(Kind kind, Id& id);
  std::string renamed(Kind kind, const std::string& name);

  OperationSink& to_;
  std::array<std::map<std::string, std::string, std::less<>>, kKinds> names_;
  std::uint64_t left_out_ = 0;  // operations, which `end` counts
};

}  // namespace emm::trace
