#pragma once

#include <cstdint>
#include <vector>

#include "limit/buffer.hpp"

namespace emm::limit {

/// What is needed at least where memory that one stream freed serves another only if the end comes
/// before the new use in an order that is known: with no such order the sum over the streams of
/// each one's own peak, with all of it the peak of what is live.
///
/// Why it is a bound. Call a set of steps closed if it has, with each step, all that come before
/// it. Let A be what is live after a closed set: begun in it and not ended in it. No end of one of
/// A comes before the beginning of another, as the set would hold that end; so no two of A may
/// share a byte, and their sizes add up. The greatest sum over all closed sets is the bound. It
/// misses nothing: of any allocations that may pairwise not share, all that comes before one of
/// their beginnings is a closed set after which they are live.
///
/// Steps are told in an order that they can happen in. One thread at a time.
class StreamPeak {
 public:
  using Stream = std::uint32_t;  ///< Any numbers, from 0, without large gaps.
  /// All that is on a stream up to a moment, and all that comes before it.
  class Point {
   public:
    bool operator==(const Point&) const = default;

   private:
    friend class StreamPeak;
    std::uint32_t section_ = 0;
    std::uint32_t node_ = 0;  // counted from 1; 0: nothing is there
  };

  /// The next step of the stream: so many bytes begin, or end, to be live there.
  void begins(Stream stream, std::uint64_t bytes) { change(stream, Wide{bytes}); }
  void ends(Stream stream, std::uint64_t bytes) { change(stream, -Wide{bytes}); }
  Point upto(Stream stream);
  /// What the stream gets from here on comes after the point.
  void after(Stream stream, Point point);
  /// What any stream gets from here on comes after the point.
  void all_after(Point point);
  /// What any stream gets from here on comes after all that is there.
  void all_after_all();
  /// An end that comes after `begun`, on no stream: what both streams get from here on comes after
  /// it. For memory that is freed on another stream than its own.
  void ends_apart(Point begun, std::uint64_t bytes, Stream one, Stream other);

  /// The bound, of all that was told. Where more than kNodesMost pieces of streams are tied
  /// together, only the order in which they were told counts between them: the peak of what is
  /// live, which is never more.
  std::uint64_t peak();

  static constexpr std::size_t kNodesMost = 10'000;

 private:
  __extension__ using Wide = __int128;
  struct Node {  // steps of one stream without an order point between them
    Wide change = 0;
    Wide most = 0;  // the greatest sum of its first steps; at least 0, of none
    std::vector<std::uint32_t> needs{};
  };
  struct StreamState {
    std::uint32_t last = 0;   // node, counted from 1
    std::uint32_t host = 0;   // the newest node of the host that this stream comes after
    std::uint32_t known = 0;  // the newest node of this stream that the host has waited for
    bool open = false;        // may `last` get more steps?
    std::vector<std::uint32_t> needs{};
  };

  StreamState& state(Stream stream);
  void change(Stream stream, Wide by);
  std::uint32_t add_node(std::vector<std::uint32_t> needs);
  void renew(StreamState& state);
  void close_section();
  Wide most_of_section() const;

  std::uint32_t section_ = 0;
  std::vector<Node> nodes_;       // of the section, while there are few enough
  std::uint32_t node_count_ = 0;  // of the section
  std::vector<StreamState> states_;
  std::uint32_t host_ = 0;         // node
  Wide base_ = 0;                  // live as the section began
  Wide live_ = 0, told_most_ = 0;  // in the section, in the order of telling
  Wide most_ = 0;
};

}  // namespace emm::limit
