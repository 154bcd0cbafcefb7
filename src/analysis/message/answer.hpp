#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/brief.hpp"
#include "inspect/oom.hpp"
#include "message/message.hpp"

namespace emm::message {

/// What the figures of a message come to. Each figure is rounded, so that each difference is a
/// range.
struct Answer {
  inspect::Cause cause = inspect::Cause::not_known;
  /// Do the figures prove it, however they were rounded?
  bool is_certain = false;
  std::optional<Range> idle;  ///< In the allocator.
  /// What a layout without holes would have had for the request.
  std::optional<Range> available;
  std::optional<Range> lacking;    ///< What was asked for beyond that; 0: nothing.
  std::optional<Range> spare;      ///< The other way round.
  std::optional<Range> outside;    ///< On the device, not free and not the allocator's.
  std::optional<Range> others;     ///< What other processes hold of that.
  std::vector<std::string> lead;   ///< The answer, in at most three sentences.
  std::vector<std::string> notes;  ///< What else the figures say.
  std::vector<std::string> not_told;
};
Answer answer(const Message& message);

/// What to record to know more: words, and lines to paste.
struct Record {
  std::string words;
  std::vector<std::string> lines;
};
std::vector<Record> what_to_record(Speaker speaker, std::string_view path);

/// What `emmctl explain` answers by default of the message `which`.
format::Brief brief(const Messages& messages, std::size_t which, std::string_view path);
/// The text of `emmctl explain --more` for it. `path` is "-" for standard input.
std::string to_text(const Messages& messages, std::size_t which, std::string_view path);
std::string to_json(const Messages& messages, std::size_t which, std::string_view path);

}  // namespace emm::message
