#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/zstd_block.hpp"
#include "trace/compact/layout.hpp"

namespace emm::trace::compact {

/// Gathers operations into columns and packs them as one block. One thread at a time.
class BlockEncoder {
 public:
  BlockEncoder();
  BlockEncoder(const BlockEncoder&) = delete;
  BlockEncoder& operator=(const BlockEncoder&) = delete;

  void add(const Operation& operation);
  std::size_t operations() const noexcept { return columns_[kShapeColumn].size(); }
  bool is_full() const noexcept {
    return operations() >= kBlockOperations || text_bytes_ >= kBlockTextBytes ||
           shapes_.size() >= kBlockShapes;
  }
  std::uint64_t first_time_ns() const noexcept { return first_time_ns_; }
  std::uint64_t last_time_ns() const noexcept { return last_time_ns_; }
  /// Returns the payload of the block and starts the next one.
  const std::string& pack();

 private:
  struct Shape {
    Op op{};
    Members members{};
    std::vector<ColumnField> places;  ///< A column each, from first_column on.
    std::size_t first_column = 0;
  };

  std::size_t shape_of(const Operation& operation);
  std::uint64_t string(std::string_view text);
  std::uint64_t id_code(const Id& id, std::uint64_t number);
  std::uint64_t ended_code(const Id& id);
  void add_value(const ColumnField& place, const Operation& operation,
                 std::vector<std::uint64_t>& to);
  void put_column(const std::vector<std::uint64_t>& values);
  void put_text_column();
  void put_packed(std::string_view bytes);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };

  Predictor before_, now_;  ///< At the block's beginning, and after the last operation.
  std::vector<Shape> shapes_;
  std::array<std::size_t, kOpCount> last_shape_{};  ///< By op: the next likely has the same.
  std::vector<std::vector<std::uint64_t>> columns_;
  std::size_t used_columns_ = kFixedColumns;
  std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>>
      strings_;  ///< The place of each in the dictionary.
  std::string texts_;
  std::size_t text_bytes_ = 0;
  std::uint64_t first_time_ns_ = 0, last_time_ns_ = 0;
  bool has_time_ = false;
  format::BlockPacker packer_;
  std::string table_, data_, planes_;
};

}  // namespace emm::trace::compact
