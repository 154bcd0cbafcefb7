#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "exchange/exporter.hpp"
#include "trace/id.hpp"

namespace emm::trace {

/// An allocation that the program has requested and not yet freed.
struct LiveRequest {
  std::uint64_t order = 0;    ///< Its number among the requests of the trace, from 0.
  std::uint64_t size = 0;     ///< Bytes.
  std::uint64_t address = 0;  ///< For the exporter's own use.
  std::uint64_t context = 0;  ///< The exporter's number of the context.
};

/// A base for exporters of requests: what the program allocated and freed, by any operation. A
/// reset or the end of a context ends what is live there. Pinning of the caller's own memory, IPC
/// and the recorded manager's own operations are not requests. Memory is bounded by what is live.
class RequestExport : public ExportSink {
 public:
  Status on_header(const Header& header) final;
  Status on_operation(const Operation& operation) final;

 protected:
  /// Called before the other functions.
  virtual Status begin(const Header& header) = 0;
  /// ends() gets `request.address` back.
  virtual Status starts(const Operation& operation, LiveRequest& request) = 0;
  /// `by` is the free or the reset.
  virtual Status ends(const Operation& by, const LiveRequest& request) = 0;
  virtual Status fails(const Operation& operation) = 0;
  /// Takes any other operation. Returns true if it was written.
  virtual Result<bool> other(const Operation& operation);

  /// Adds notes on the operations that were left out.
  void note_left_out();
  /// The requests that nothing has ended, in order.
  std::vector<LiveRequest> live() const;
  std::uint64_t thread_of(const Operation& operation);
  std::uint64_t stream_of(const Operation& operation);

 private:
  using Texts = std::map<std::string, std::uint64_t, std::less<>>;

  Status request(const Operation& operation);
  Status free(const Operation& operation);
  Status end_context(const Operation& operation);
  std::uint64_t context_of(const Operation& operation);
  static std::uint64_t number_of(const Id& id, Texts& texts, std::uint64_t first);

  std::unordered_map<std::uint64_t, LiveRequest> by_number_;
  std::map<std::string, LiveRequest, std::less<>> by_name_;
  Texts threads_, streams_, contexts_;
  std::string default_thread_, default_context_;
  std::uint64_t requests_ = 0, left_out_ = 0, of_nothing_ = 0, kinds_ = 0, no_bytes_ = 0,
                by_reset_ = 0;
};

}  // namespace emm::trace
