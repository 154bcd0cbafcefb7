#include "emm/epoch.hpp"

#include <deque>
#include <mutex>
#include <vector>

namespace emm {
namespace {

// Counters must outlive every manager and mark, so this is never destroyed. A reused counter goes
// on from where it stopped, so no value is current twice.
struct Counters {
  std::mutex mutex;
  std::deque<std::atomic<std::uint64_t>> all;
  std::vector<std::atomic<std::uint64_t>*> idle;
};

Counters& counters() {
  static auto& pool = *new Counters;
  return pool;
}

}  // namespace

Epoch::Epoch() {
  auto& pool = counters();
  const std::lock_guard lock(pool.mutex);
  if (pool.idle.empty()) {
    pool.idle.reserve(pool.all.size() + 1);  // so that giving a counter back allocates nothing
    counter_ = &pool.all.emplace_back(0);
  } else {
    counter_ = pool.idle.back();
    pool.idle.pop_back();
  }
}

Epoch::~Epoch() {
  end();
  auto& pool = counters();
  const std::lock_guard lock(pool.mutex);
  pool.idle.push_back(counter_);
}

}  // namespace emm
