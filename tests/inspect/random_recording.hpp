#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.hpp"
#include "base/text_format.hpp"

namespace emm::inspect {

/// One operation as a person would write it down: what brute force works on.
struct Written {
  enum class MemoryKind {
    memalloc,
    memhostalloc,
    segment,
    free,
    segment_free,
    oom,
    completed,
    reset,
    other
  } what = MemoryKind::other;
  std::uint64_t id = 0, size = 0, addr = 0, time = 0;
  unsigned site = 0, stream = 0, thread = 0, context = 0;
};

struct RandomRecording {
  std::vector<Written> operations;
  std::string lines;
};

inline RandomRecording random_recording(std::uint64_t seed, std::size_t count) {
  Prng random(seed);
  RandomRecording out;
  for (unsigned site = 1; site <= 4; ++site) {
    out.lines += text::format(
        "{\"op\":\"define\",\"kind\":\"site\",\"id\":{},\"frames\":[\"f{}.py:1 f\"]}\n", site,
        site);
  }
  std::vector<Written> live;
  std::uint64_t next = 1, now = 0;
  const auto say = [&](const Written& w, std::string_view words) {
    out.lines += text::format("{\"op\":{},\"time_ns\":{},\"thread\":{},\"context\":\"c{}\"}\n",
                              words, w.time, w.thread, w.context);
    out.operations.push_back(w);
  };
  while (out.operations.size() < count) {
    Written w;
    now += random.below(1000);
    w.time = now;
    w.thread = static_cast<unsigned>(random.below(3));
    w.stream = static_cast<unsigned>(random.below(3));
    w.site = static_cast<unsigned>(random.below(5));
    w.context = static_cast<unsigned>(random.below(2));
    const auto dice = random.below(100);
    const auto where = text::format(",\"stream\":\"{}\"", w.stream == 0   ? "legacy"
                                                          : w.stream == 1 ? "s1"
                                                                          : "s2");
    if (dice < 50 || live.empty()) {
      w.id = next++;
      w.size = random.below(2) == 0 ? 512 * random.below(8) : random.below(100'000);
      if (dice < 3) {
        w.what = Written::MemoryKind::oom;
        say(w, text::format("\"memalloc\",\"id\":{},\"size\":{},\"result\":\"oom\"{}", w.id, w.size,
                            where));
        continue;
      }
      if (dice < 8) {
        w.what = Written::MemoryKind::segment;
        w.id += 1'000'000;
        say(w,
            text::format("\"memalloc\",\"layer\":\"backing\",\"id\":{},\"size\":{}", w.id, w.size));
      } else if (dice < 12) {
        w.what = Written::MemoryKind::memhostalloc;
        say(w, text::format("\"memhostalloc\",\"id\":{},\"size\":{}", w.id, w.size));
      } else {
        w.what = Written::MemoryKind::memalloc;
        const auto site = w.site == 0 ? std::string() : text::format(",\"site\":{}", w.site);
        // Numbers are not drawn for it: what a seed makes stays the same.
        const auto category =
            w.id % 4 == 0 ? std::string() : text::format(",\"x-category\":\"c{}\"", w.id % 4);
        say(w, text::format("\"memalloc\",\"id\":{},\"size\":{}{}{}{}", w.id, w.size, where, site,
                            category));
        if (w.id % 16 == 1) {
          out.lines += text::format(
              "{\"op\":\"x-category\",\"bytes\":{},\"from\":\"c1\",\"to\":\"c2\"}\n", w.size);
        }
      }
      live.push_back(w);
    } else if (dice < 97) {
      const auto at = random.below(live.size());
      const auto ended = live[at];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      w.id = ended.id;
      w.what = ended.what == Written::MemoryKind::segment ? Written::MemoryKind::segment_free
                                                          : Written::MemoryKind::free;
      say(w,
          text::format(
              "\"free\",\"id\":{}{}", w.id,
              w.what == Written::MemoryKind::free ? where : std::string(",\"layer\":\"backing\"")));
    } else if (dice < 98) {
      w.what = Written::MemoryKind::reset;
      std::erase_if(live, [&](const Written& each) {
        return each.context == w.context && each.what != Written::MemoryKind::segment;
      });
      say(w, "\"reset\"");
    } else {
      say(w, "\"initialize\"");
    }
  }
  return out;
}

}  // namespace emm::inspect
