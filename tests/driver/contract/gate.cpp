#include "contract/gate.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace emm {

Gate::Gate(Driver& driver, StreamHandle stream) : driver_(driver) {
  const auto launched = driver.launch_host_func(stream, wait, this);
  EXPECT_TRUE(launched) << describe(launched.error());
  done_ = !launched;
}

Gate::~Gate() {
  open();
  EXPECT_TRUE(driver_.ctx_synchronize());
  EXPECT_TRUE(is_done());
}

void Gate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  opened_.notify_all();
}

bool Gate::is_done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Gate::wait(void* gate) {
  auto& self = *static_cast<Gate*>(gate);
  std::unique_lock lock(self.mutex_);
  self.opened_.wait_for(lock, std::chrono::seconds(10), [&] { return self.open_; });
  self.done_ = true;
}

}  // namespace emm
