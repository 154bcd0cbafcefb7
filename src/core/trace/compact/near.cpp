#include "trace/compact/near.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/hash64.hpp"
#include "format/json_value.hpp"
#include "trace/compact/block_decoder.hpp"
#include "trace/compact/layout.hpp"
#include "trace/event.hpp"
#include "trace/json/header_reader.hpp"

namespace emm::trace {
namespace {

using namespace compact;

/// Reads single chunks of a file.
class Chunks {
 public:
  explicit Chunks(const std::string& path) : in_(path, std::ios::binary) {}

  bool read_at(std::uint64_t offset, void* to, std::size_t size) {
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(offset));
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
    return in_.gcount() == static_cast<std::streamsize>(size);
  }
  /// The offset of the tail of a whole file; 0 if the file is too short.
  std::uint64_t tail() {
    in_.clear();
    in_.seekg(0, std::ios::end);
    const auto end = in_.tellg();
    return end < static_cast<std::streamoff>(kTailBytes)
               ? 0
               : static_cast<std::uint64_t>(end) - kTailBytes;
  }
  /// Reads a chunk's head and payload. Returns false if it is damaged.
  bool read_chunk(std::uint64_t offset, ChunkHead& head, std::string& payload) {
    if (!read_at(offset, &head, sizeof head)) return false;
    const std::string_view bytes(reinterpret_cast<const char*>(&head), sizeof head);
    if (static_cast<std::uint32_t>(format::hash64(bytes.substr(kChecked))) != head.check ||
        head.bytes > kChunkBytesMax) {
      return false;
    }
    payload.resize(static_cast<std::size_t>(head.bytes));
    return read_at(offset + sizeof head, payload.data(), payload.size()) &&
           format::hash64(payload) == head.hash;
  }

 private:
  std::ifstream in_;
};

struct NearbyChunks {
  std::vector<IndexRow> sites;  ///< Chunks with the call sites before the event.
  std::vector<IndexRow> live;   ///< Chunks with the operations that made what is live.
  std::vector<IndexRow> blocks;
};

/// Reads the index of a whole compact file.
bool read_index(Chunks& chunks, ChunkHead& head, std::string& payload) {
  std::array<char, kMagic.size()> magic{};
  if (!chunks.read_at(0, magic.data(), magic.size()) ||
      std::string_view(magic.data(), magic.size()) != kMagic) {
    return false;
  }
  std::array<char, kTailBytes> tail{};
  const auto tail_at = chunks.tail();
  std::uint64_t index_at = 0;
  if (!chunks.read_at(tail_at, tail.data(), tail.size()) ||
      !std::string_view(tail.data(), tail.size()).ends_with(kEndMagic)) {
    return false;
  }
  std::memcpy(&index_at, tail.data(), sizeof index_at);
  return chunks.read_chunk(index_at, head, payload) && head.tag == kIndexTag;
}

std::optional<NearbyChunks> place_before(Chunks& chunks, std::uint64_t event) {
  ChunkHead head;
  std::string payload;
  if (!read_index(chunks, head, payload) || head.operations != 0 ||
      payload.size() % sizeof(IndexRow) != 0) {
    return std::nullopt;
  }
  NearbyChunks place;
  bool tells = false;
  for (std::size_t at = 0; at < payload.size(); at += sizeof(IndexRow)) {
    IndexRow row;
    std::memcpy(&row, payload.data() + at, sizeof row);
    if (row.operations != 0) {
      place.blocks.push_back(row);
      continue;
    }
    tells = true;
    if (row.first_time_ns > event) break;
    if (row.last_time_ns == kSitesNotLive) {
      place.sites.push_back(row);
      continue;
    }
    if (!place.live.empty() && place.live.back().first != row.first) place.live.clear();
    place.live.push_back(row);
    place.blocks.clear();
  }
  return tells ? std::optional(std::move(place)) : std::nullopt;
}

Error damaged(const std::string& path, std::string_view what) {
  return fail(Errc::parse_error, "{}: a damaged block: {}", path, what);
}

/// Gives the operations of a block to `sink`; returns false once done() is true.
Result<bool> give(Chunks& chunks, const IndexRow& row, const std::string& path, OperationSink& sink,
                  const std::function<bool()>& done) {
  ChunkHead head;
  std::string payload;
  if (!chunks.read_chunk(row.offset, head, payload))
    return damaged(path, "the checksum of its bytes does not match");
  BlockDecoder decoder;
  if (const auto wrong = decoder.load(payload); !wrong.empty()) return damaged(path, wrong);
  auto line = row.first + 2;
  while (auto* const operation = decoder.next()) {
    operation->line = row.operations == 0 ? 0 : static_cast<std::uint32_t>(line++);
    if (auto given = sink.on_operation(*operation); !given) return given.error();
    if (done()) return false;
  }
  if (!decoder.damaged().empty()) return damaged(path, decoder.damaged());
  return true;
}

}  // namespace

Result<bool> read_compact_near(const std::string& path, std::uint64_t event, OperationSink& sink,
                               const std::function<void(std::uint64_t event)>& begin,
                               const std::function<bool()>& done) {
  Chunks chunks(path);
  const auto place = place_before(chunks, event);
  if (!place) return false;
  ChunkHead head;
  std::string payload;
  if (!chunks.read_chunk(kFileHeadBytes, head, payload) || head.tag != kHeaderTag) return false;
  auto node = format::parse_json(payload, path);
  if (!node) return false;
  auto header = read_header(*node, path);
  if (!header) return false;
  if (auto given = sink.on_header(*header); !given) return given.error();
  for (const auto* rows : {&place->sites, &place->live}) {
    for (const auto& row : *rows) {
      auto given = give(chunks, row, path, sink, [] { return false; });
      if (!given) return std::move(given).error();
    }
  }
  begin(place->live.empty() ? 0 : place->live.front().first_time_ns);
  for (const auto& row : place->blocks) {
    auto given = give(chunks, row, path, sink, done);
    if (!given) return std::move(given).error();
    if (!*given) break;
  }
  return true;
}

std::optional<std::uint64_t> count_compact_operations(const std::string& path) {
  Chunks chunks(path);
  ChunkHead head;
  std::string payload;
  if (!read_index(chunks, head, payload)) return std::nullopt;
  return head.first;
}

Status expect_room(const std::string& path, std::uint64_t available) {
  const auto operations = count_compact_operations(path);
  if (!operations || available == 0 || *operations <= available / sizeof(Event)) return {};
  return Error{
      .code = Errc::out_of_memory,
      .message = text::format(
          "{}: its {} operations take more than {} of memory here, and the machine has {} "
          "left: replay, check, inspect and explain can read such a file without holding it",
          path, text::grouped(*operations), units::bytes(*operations * sizeof(Event)),
          units::bytes(available))};
}

}  // namespace emm::trace
