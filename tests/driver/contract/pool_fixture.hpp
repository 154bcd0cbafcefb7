#pragma once

#include "contract/fixture.hpp"

namespace emm {

/// A pool of its own for each test, and a stream.
class Pools : public DriverContract {
 protected:
  void SetUp() override;
  void TearDown() override;

  PoolHandle pool() const { return pool_; }
  StreamHandle stream() const { return stream_; }
  DevicePtr allocate(std::uint64_t size) { return allocate(size, stream_); }
  DevicePtr allocate(std::uint64_t size, StreamHandle on) {
    return must(driver().mem_alloc_from_pool_async(size, pool_, on));
  }
  void free(DevicePtr ptr) { free(ptr, stream_); }
  void free(DevicePtr ptr, StreamHandle on) { EXPECT_TRUE(driver().mem_free_async(ptr, on)); }
  std::uint64_t get(PoolHandle pool, PoolAttribute attribute) {
    return must(driver().mem_pool_get_attribute(pool, attribute));
  }
  std::uint64_t get(PoolAttribute attribute) { return get(pool_, attribute); }
  void set(PoolAttribute attribute, std::uint64_t value) {
    EXPECT_TRUE(driver().mem_pool_set_attribute(pool_, attribute, value));
  }

 private:
  PoolHandle pool_;
  StreamHandle stream_;
};

}  // namespace emm
