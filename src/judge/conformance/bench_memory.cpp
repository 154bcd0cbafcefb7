#include "conformance/bench_memory.hpp"

#include <utility>

#include "conformance/bench.hpp"

namespace emm::conformance {

BenchMemory::BenchMemory(BenchMemory&& other) noexcept
    : bench_(other.bench_),
      id_(std::exchange(other.id_, 0)),
      address_(other.address_),
      device_(other.device_),
      host_(other.host_),
      size_(other.size_),
      mapped_(other.mapped_),
      owner_(std::move(other.owner_)),
      lifetime_(std::move(other.lifetime_)) {}

BenchMemory& BenchMemory::operator=(BenchMemory&& other) noexcept {
  if (this == &other) return *this;
  drop();
  bench_ = other.bench_;
  id_ = std::exchange(other.id_, 0);
  address_ = other.address_;
  device_ = other.device_;
  host_ = other.host_;
  size_ = other.size_;
  mapped_ = other.mapped_;
  owner_ = std::move(other.owner_);
  lifetime_ = std::move(other.lifetime_);
  return *this;
}

Status BenchMemory::free(StreamHandle stream) {
  if (id_ != 0) bench_->note_free(*this, stream, false);
  id_ = 0;
  return lifetime_.free(stream);
}

void BenchMemory::drop() noexcept {
  if (id_ != 0) bench_->note_free(*this, {}, !lifetime_.alive());
  id_ = 0;
  lifetime_ = {};
  owner_.reset();
}

}  // namespace emm::conformance
