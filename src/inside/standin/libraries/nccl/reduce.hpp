#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// What a collective computes of its ranks' values, as NCCL's types and operations have it.
namespace emm::standin::nccl {

/// ncclDataType_t
enum Type : int {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2,
  type_count
};
/// Bytes of an element; 0 for a type that there is not.
std::size_t size_of(int type) noexcept;
/// "float32"; "type 99" for one that there is not.
const char* name_of_type(int type) noexcept;

/// ncclRedOp_t
enum Operation : int { sum, prod, max, min, avg, operation_count };

/// A sum whose values each rank multiplies by a number of its own first.
void scale(int type, std::span<std::byte> values, std::span<const std::byte> factor);

/// The values of several ranks, reduced one after the other. Integers wrap; numbers of floating
/// point are added in double, so that their last bit may be another one than a card's.
class Reduction {
 public:
  Reduction(int type, int operation, std::size_t count);
  void add(std::span<const std::byte> values);
  /// Ends with the division of an average.
  void write(std::span<std::byte> to);

 private:
  int type_, operation_;
  std::size_t count_;
  int ranks_ = 0;
  std::vector<double> floats_;
  std::vector<std::uint64_t> integers_;
};

}  // namespace emm::standin::nccl
