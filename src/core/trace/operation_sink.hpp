#pragma once

#include <cstddef>

#include "base/result.hpp"

namespace emm::trace {

struct Header;
struct Operation;
namespace compact {
class OperationRow;
}

/// Receives a trace: the header once, then the operations, then finish(). An error ends the trace.
class OperationSink {
 public:
  virtual ~OperationSink() = default;
  virtual Status on_header(const Header& header) = 0;
  virtual Status on_operation(const Operation& operation) = 0;
  /// Takes up to `most` operations of a block of a compact trace. The default calls on_operation()
  /// for each; a sink may override it with a faster way.
  virtual Status on_operations(compact::OperationRow& row, std::size_t most);
  virtual Status finish() { return {}; }
};

}  // namespace emm::trace
