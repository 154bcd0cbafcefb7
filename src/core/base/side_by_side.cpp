#include "base/side_by_side.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/host_memory.hpp"

namespace emm {

void side_by_side(std::size_t threads, std::size_t count,
                  const std::function<void(std::size_t)>& job) {
  if (threads == 0) threads = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (auto at = next++; at < count; at = next++) job(at);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) others.push_back(start_thread(work));
  work();
  for (auto& other : others) other.join();
}

}  // namespace emm
