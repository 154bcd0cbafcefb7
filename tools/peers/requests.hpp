#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace emm::peers {

/// One request of a program, to any allocator.
struct Request {
  std::uint64_t size = 0;    ///< Bytes of an allocation.
  std::uint32_t slot = 0;    ///< The program keeps it there; used again after its free.
  std::uint16_t stream = 0;  ///< 0 is the default stream.
  bool allocates = false;    ///< Else it frees.
};

/// Lists what a program asks of an allocator on one thread, and how many requested bytes are live
/// then.
struct Requests {
  std::string name;
  std::vector<Request> all;
  std::uint32_t slots = 0, streams = 1;
  std::uint64_t allocations = 0;
  std::uint64_t peak_live = 0;
  std::size_t peak_at = 0;  ///< Index of the allocation that reaches the peak.

  /// Returns the need of an allocator that never waits for work on another stream. It is the sum of
  /// the peaks of all streams, since a list holds no order between streams.
  std::uint64_t no_wait_need() const {
    std::uint64_t sum = 0;
    for (const auto& each : by_stream_) sum += each.peak;
    return sum;
  }

  /// Returns the same requests with each size times `factor()`, but at least 1 byte.
  template <class Factor>
  Requests scaled(const Factor& factor) const {
    Requests other;
    other.name = name;
    other.all.reserve(all.size());
    for (auto request : all) {
      request.size = std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(static_cast<double>(request.size) * factor()));
      other.add(request);
    }
    return other;
  }

  void add(const Request& request) {
    slots = std::max(slots, request.slot + 1);
    streams = std::max(streams, std::uint32_t{request.stream} + 1);
    sizes_.resize(slots);
    by_stream_.resize(streams);
    auto& size = sizes_[request.slot];
    auto& stream = by_stream_[request.stream];
    if (request.allocates) {
      size = request.size;
      live_ += size;
      stream.live += size;
      stream.peak = std::max(stream.peak, stream.live);
      ++allocations;
      if (live_ > peak_live) {
        peak_live = live_;
        peak_at = all.size();
      }
    } else {
      live_ -= size;
      stream.live -= size;
    }
    all.push_back(request);
  }

 private:
  struct OfStream {
    std::uint64_t live = 0, peak = 0;
  };

  std::vector<std::uint64_t> sizes_;  // by slot
  std::vector<OfStream> by_stream_;
  std::uint64_t live_ = 0;
};

/// Reads the lines "a SLOT SIZE STREAM" and "f SLOT STREAM"; lines that begin with # are comments.
/// Returns nothing, and prints a line on stderr, where the file is no such list.
inline std::optional<Requests> read_requests(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), std::strerror(errno));
    return std::nullopt;
  }
  Requests requests;
  const auto slash = path.rfind('/');
  requests.name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (requests.name.ends_with(".ops")) requests.name.resize(requests.name.size() - 4);
  char line[128];
  for (unsigned number = 1; std::fgets(line, sizeof line, file) != nullptr; ++number) {
    unsigned long long size = 0;
    unsigned slot = 0, stream = 0;
    if (line[0] == '#') continue;
    const bool allocates = std::sscanf(line, "a %u %llu %u", &slot, &size, &stream) == 3;
    if (!allocates && std::sscanf(line, "f %u %u", &slot, &stream) != 2) {
      std::fprintf(stderr, "%s:%u: expected \"a SLOT SIZE STREAM\" or \"f SLOT STREAM\"\n",
                   path.c_str(), number);
      std::fclose(file);
      return std::nullopt;
    }
    requests.add({.size = size,
                  .slot = slot,
                  .stream = static_cast<std::uint16_t>(stream),
                  .allocates = allocates});
  }
  std::fclose(file);
  return requests;
}

}  // namespace emm::peers
