#pragma once

#include <cstdint>

namespace emm::replay {

/// The event of the trace that this thread serves; what managers do meanwhile is put down to it.
std::uint64_t serving() noexcept;
/// Whether this thread serves one. As a signal handler may ask.
bool is_serving() noexcept;

/// While one lives, `event` holds what this thread serves. They nest.
class Serving {
 public:
  explicit Serving(const std::uint64_t& event) noexcept;
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

 private:
  const std::uint64_t* outer_;
};

}  // namespace emm::replay
