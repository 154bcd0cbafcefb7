#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::trace {

/// A SQLite database in memory, read through libsqlite3.so.0. The library is loaded at the first
/// use; nothing else needs it. One thread at a time.
class SqliteDatabase {
 public:
  /// Takes the bytes of a database file; `name` is for messages. Errors: not_supported, with the
  /// Debian package, if the library is missing; parse_error, at the first read, if the bytes are
  /// not a database.
  static Result<SqliteDatabase> open(std::string bytes, std::string name, std::string expected);
  SqliteDatabase(SqliteDatabase&&) noexcept;
  SqliteDatabase& operator=(SqliteDatabase&&) noexcept;
  ~SqliteDatabase();

  class Query;
  Result<Query> query(std::string_view sql);

  /// A parse_error with `words` and with what the file should have been.
  Error refused(std::string_view words) const;

 private:
  struct Open;
  explicit SqliteDatabase(std::unique_ptr<Open> open) noexcept;
  std::unique_ptr<Open> open_;
};

/// The rows of an answer. The database must outlive it.
class SqliteDatabase::Query {
 public:
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;
  ~Query();

  Result<bool> next();  ///< False after the last row. Error: parse_error of a damaged file.
  std::optional<std::uint64_t> number(
      int column) const;  ///< All 64 bits; nothing if the value is not an integer.

 private:
  friend class SqliteDatabase;
  Query(Open& database, void* statement) noexcept : database_(&database), statement_(statement) {}
  Open* database_;
  void* statement_;
};

}  // namespace emm::trace
