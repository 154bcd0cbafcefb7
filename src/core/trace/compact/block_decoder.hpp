#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/zstd_block.hpp"
#include "trace/compact/layout.hpp"

namespace emm::trace::compact {

/// One block of a compact trace. load() unpacks it into columns, which is most of the work and may
/// run on any thread. next() then gives the operations in their order. A block that load() accepts
/// may still be damaged; next() finds out. One thread at a time.
class BlockDecoder {
 public:
  BlockDecoder();
  ~BlockDecoder();
  BlockDecoder(const BlockDecoder&) = delete;
  BlockDecoder& operator=(const BlockDecoder&) = delete;

  /// Unpacks `payload`, which is not needed afterwards. Returns what is wrong with it, or an empty
  /// text.
  std::string_view load(std::string_view payload);
  std::size_t operations() const noexcept { return operations_; }

  /// The next operation. Its views live until the next load(), and the next operation with the same
  /// members overwrites it. Null after the last one, or where damaged() says what is wrong. Sets no
  /// line.
  Operation* next() {
    if (given_ == operations_) return nullptr;
    const auto number = static_cast<std::size_t>(columns_[kShapeColumn].values[given_++]);
    auto& quick = quick_[number];
    if (quick.operation == nullptr) [[unlikely]]
      return next_of(*shapes_[number]);
    auto& operation = *quick.operation;
    auto& time_at = fixed_[static_cast<std::size_t>(ColumnKind::time)];
    auto& seq_at = fixed_[static_cast<std::size_t>(ColumnKind::seq)];
    operation.time_ns = *time_at;
    time_at += quick.has_time;
    operation.seq = *seq_at;
    now_.seq = quick.has_seq != 0 ? operation.seq : now_.seq;
    seq_at += quick.has_seq;
    const auto difference = unzigzag(*quick.id_at >> 1);
    quick.id_at += quick.id_stride;
    now_.made += (difference + 1) & quick.makes;
    *quick.id_to = now_.made - (difference & ~quick.makes);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Quick::kNumbers; ++i) {
      *quick.to[i] = *quick.at[i];
      quick.at[i] += quick.strides[i];
    }
    return &operation;
  }
  /// Does an operation of the block have the member?
  bool has(Op op, Member member) const noexcept {
    for (std::size_t i = 0; i < shape_count_; ++i) {
      if (shapes_[i]->operation.op == op && shapes_[i]->operation.has(member)) return true;
    }
    return false;
  }
  std::string_view damaged() const noexcept { return damaged_; }
  /// The number of operations that next() has yet to give; 0 if the block is damaged.
  std::size_t left() const noexcept { return damaged_.empty() ? operations_ - given_ : 0; }

 private:
  struct Column {
    std::uint64_t* values = nullptr;
    std::size_t count = 0;
    bool same = false;  ///< All values are equal.
  };
  struct Text {
    std::string_view text;
    Id id;
    bool is_id = false;
    enum class Json : std::uint8_t { unknown, good, bad } json = Json::unknown;
  };
  /// Moves one value from a column into the shape's operation.
  struct Step {
    ColumnKind part{};
    std::uint8_t least = 0;
    std::uint32_t greatest = 0;
    bool numbers_only = false;  ///< For ids: none is text.
    const std::uint64_t* at = nullptr;
    const std::uint64_t* end = nullptr;
    void* to = nullptr;
    Step* list = nullptr;  ///< ids and frames: the column with their values.
  };
  /// The fast path for a shape whose values are only numbers. It does the same steps for each
  /// operation, because the order of shapes is unpredictable and a branch on it would be
  /// mispredicted.
  struct alignas(128) Quick {
    // Beside the id; a shape with more numbers does not qualify.
    static constexpr std::size_t kNumbers = 3;
    Operation* operation = nullptr;  ///< Null if the shape does not qualify.
    const std::uint64_t* id_at = nullptr;
    std::uint64_t* id_to = nullptr;
    std::uint64_t makes = 0;  ///< All ones if the operation makes the memory that the id names.
    std::array<const std::uint64_t*, kNumbers> at{};
    std::array<std::uint64_t*, kNumbers> to{};
    std::array<std::uint8_t, kNumbers> strides{};
    std::uint8_t id_stride = 0, has_time = 0, has_seq = 0;
  };
  struct Shape {
    Operation operation;
    std::vector<Step> steps;
    std::vector<Id> ids;
    std::vector<std::string_view> frames;
    Step list;
  };

  std::string_view read_table(std::string_view payload);
  std::string_view unpack_column(Column& column, std::string_view packed, std::size_t at);
  std::string_view read_texts();
  std::string_view read_shapes();
  std::string_view make_steps(Shape& shape, std::size_t count, std::size_t& column);
  void make_quick(Shape& shape, Quick& quick) noexcept;
  Operation* next_of(Shape& shape);
  void add_up(FixedColumn column, std::uint64_t from) noexcept;
  static void aim(Step& step, const ColumnField& place, Operation& operation) noexcept;
  bool take(Step& step, Shape& shape);
  bool take_id(std::uint64_t value, Id& id, std::uint64_t number) noexcept;
  bool take_json(std::uint64_t value, std::string_view& to, bool needed);
  Operation* fail_here(std::string_view what) noexcept {
    damaged_ = what;
    return nullptr;
  }

  struct Packed {
    std::size_t count = 0, width = 0, bytes = 0;
    std::uint64_t least = 0, step = 0;
  };
  std::size_t operations_ = 0, given_ = 0;
  Predictor now_;
  std::vector<std::uint64_t> shape_words_;
  std::vector<Packed> packed_;
  std::vector<Column> columns_;
  std::vector<std::unique_ptr<std::uint64_t[]>> memory_;
  std::vector<std::size_t> memory_sizes_;
  std::string planes_, text_bytes_;
  std::vector<Text> texts_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  std::vector<Quick> quick_;  ///< By shape.
  std::size_t shape_count_ = 0;
  std::array<const std::uint64_t*, 4> fixed_{};
  std::uint64_t unread_ = 0;         ///< The target for values that a quick shape does not have.
  std::vector<std::size_t> counts_;  ///< The number of operations of each shape.
  std::string_view damaged_;
  format::BlockUnpacker unpacker_;
};

}  // namespace emm::trace::compact
