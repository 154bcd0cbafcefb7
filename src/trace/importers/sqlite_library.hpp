#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::trace {

/// A database of SQLite in memory, read through libsqlite3.so.0, which is looked for when it is
/// first needed: nothing else does. One thread at a time.
class SqliteDatabase {
 public:
  /// Takes the bytes of a database file; `name` is for messages. Errors: not_supported, naming the
  /// Debian package, where the library is not there; parse_error of bytes that are no database,
  /// when they are first read.
  static Result<SqliteDatabase> open(std::string bytes, std::string name, std::string expected);
  SqliteDatabase(SqliteDatabase&&) noexcept;
  SqliteDatabase& operator=(SqliteDatabase&&) noexcept;
  ~SqliteDatabase();

  class Query;
  Result<Query> query(std::string_view sql);

  /// parse_error with `words` and what had been expected of the file.
  Error refused(std::string_view words) const;

 private:
  struct Open;
  explicit SqliteDatabase(std::unique_ptr<Open> open) noexcept;
  std::unique_ptr<Open> open_;
};

/// The rows of an answer. The database outlives it.
class SqliteDatabase::Query {
 public:
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;
  ~Query();

  Result<bool> next();  ///< False after the last row. Error: parse_error of a damaged file.
  std::optional<std::uint64_t> number(
      int column) const;  ///< Its 64 bits; nothing where it is no integer.

 private:
  friend class SqliteDatabase;
  Query(Open& database, void* statement) noexcept : database_(&database), statement_(statement) {}
  Open* database_;
  void* statement_;
};

}  // namespace emm::trace
