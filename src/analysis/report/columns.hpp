#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::report {

/// A column of numbers in the form that the page reads: varints of seven bits a byte, the least
/// significant first. A signed number n is written as 2n if it is not negative, else as -2n - 1.
class Column {
 public:
  void add(std::uint64_t number);
  void add_signed(std::int64_t number);
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// Named columns, concatenated, as one zlib stream in base64. The page finds each column by its
/// position and size.
class Payload {
 public:
  struct Column {
    std::string name;
    std::uint64_t size = 0;  ///< In bytes, before packing.
  };
  void add(std::string name, std::string_view bytes);
  const std::vector<Column>& columns() const noexcept { return columns_; }
  std::string packed() const;

 private:
  std::string bytes_;
  std::vector<Column> columns_;
};

}  // namespace emm::report
