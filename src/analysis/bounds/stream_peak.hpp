#pragma once

#include <cstdint>
#include <vector>

#include "bounds/buffer.hpp"

namespace emm::bounds {

/// A lower bound on the memory for streams. Memory that one stream freed may serve another stream
/// only if a known order puts the free before the new use. Without any such order the bound is the
/// sum of the peaks of all streams; with a total order it is the peak of the live bytes.
///
/// Why it is a bound. Call a set of steps closed if it holds, with each step, all steps that come
/// before it. Let A be the allocations that are live after a closed set: begun in it and not ended
/// in it. No end of one of A comes before the beginning of another, since the closed set would then
/// hold that end. So no two of A may share a byte, and their sizes add up. The bound is the
/// greatest such sum over all closed sets. The bound misses nothing: take allocations of which no
/// two may share a byte. The steps before their beginnings form a closed set after which all of
/// them are live.
///
/// The caller must report steps in an order in which they can happen. One thread at a time.
class StreamPeak {
 public:
  using Stream = std::uint32_t;  ///< Numbers from 0, without large gaps.
  /// All steps on a stream up to a moment, and all steps that come before those.
  class Point {
   public:
    bool operator==(const Point&) const = default;

   private:
    friend class StreamPeak;
    std::uint32_t section_ = 0;
    std::uint32_t node_ = 0;  // counted from 1; 0 if nothing is there
  };

  /// The next step of the stream: `bytes` begin, or end, to be live there.
  void begins(Stream stream, std::uint64_t bytes) { change(stream, Wide{bytes}); }
  void ends(Stream stream, std::uint64_t bytes) { change(stream, -Wide{bytes}); }
  Point upto(Stream stream);
  /// Orders the later steps of `stream` after the point.
  void after(Stream stream, Point point);
  /// Orders the later steps of all streams after the point.
  void all_after(Point point);
  /// Orders the later steps of all streams after all steps so far.
  void all_after_all();
  /// Reports an end that comes after `begun` and is on no stream. The later steps of both streams
  /// come after it. This is for memory that is freed on another stream than its own.
  void ends_apart(Point begun, std::uint64_t bytes, Stream one, Stream other);

  /// The bound for all steps reported. If more than kNodesMost pieces of streams depend on one
  /// another, the bound between them is the peak of the live bytes in the order of the reports,
  /// which is never greater.
  std::uint64_t peak();

  /// Bounds the time of the minimal cut that finds the greatest sum.
  static constexpr std::size_t kNodesMost = 10'000;

 private:
  __extension__ using Wide = __int128;
  struct Node {  // consecutive steps of one stream, without an order point between them
    Wide change = 0;
    Wide most = 0;  // greatest sum of the first steps; at least 0, the sum of no step
    std::vector<std::uint32_t> needs{};
  };
  struct StreamState {
    std::uint32_t last = 0;   // newest node, counted from 1
    std::uint32_t host = 0;   // newest node of the host that this stream comes after
    std::uint32_t known = 0;  // newest node of this stream that the host has waited for
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
  std::vector<Node> nodes_;       // of this section; emptied when there are more than kNodesMost
  std::uint32_t node_count_ = 0;  // of this section, counted beyond kNodesMost too
  std::vector<StreamState> states_;
  std::uint32_t host_ = 0;         // newest node that every stream must wait for
  Wide base_ = 0;                  // bytes live when the section began
  Wide live_ = 0, told_most_ = 0;  // live bytes in this section, and their peak
  Wide most_ = 0;
};

}  // namespace emm::bounds
