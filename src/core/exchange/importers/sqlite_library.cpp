#include "exchange/importers/sqlite_library.hpp"

#include <dlfcn.h>

#include <utility>

#include "base/host_memory.hpp"

namespace emm::trace {
namespace {

// From sqlite3.h, whose interface is stable: https://www.sqlite.org/c3ref/
constexpr int kRow = 100, kDone = 101;
constexpr int kInteger = 1;
constexpr int kOpenReadWrite = 2, kOpenMemory = 0x80;
constexpr unsigned kDeserializeReadOnly = 4;

struct Library {
  int (*open_v2)(const char*, void**, int, const char*) = nullptr;
  int (*close_v2)(void*) = nullptr;
  int (*deserialize)(void*, const char*, unsigned char*, std::int64_t, std::int64_t,
                     unsigned) = nullptr;
  int (*prepare_v2)(void*, const char*, int, void**, const char**) = nullptr;
  int (*step)(void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  int (*column_type)(void*, int) = nullptr;
  std::int64_t (*column_int64)(void*, int) = nullptr;
  const char* (*errmsg)(void*) = nullptr;
  bool whole = false;

  Library() {
    auto* const library = open_shared_object("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL).handle;
    if (library == nullptr) return;
    whole = true;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      whole = whole && function != nullptr;
    };
    find(open_v2, "sqlite3_open_v2");
    find(close_v2, "sqlite3_close_v2");
    find(deserialize, "sqlite3_deserialize");
    find(prepare_v2, "sqlite3_prepare_v2");
    find(step, "sqlite3_step");
    find(finalize, "sqlite3_finalize");
    find(column_type, "sqlite3_column_type");
    find(column_int64, "sqlite3_column_int64");
    find(errmsg, "sqlite3_errmsg");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

}  // namespace

struct SqliteDatabase::Open {
  std::string bytes, name, expected;
  void* handle = nullptr;

  /// The error of the last call, whose `answer` is not success.
  Error refused(int answer) const {
    constexpr int kNoMemory = 7;  // SQLITE_NOMEM
    if (answer == kNoMemory) out_of_host_memory();
    return refused(library().errmsg(handle));
  }
  Error refused(std::string_view words) const {
    return fail(Errc::parse_error, "{}: {}: expected {}", name, words, expected);
  }
  ~Open() {
    if (handle != nullptr) library().close_v2(handle);
  }
};

Result<SqliteDatabase> SqliteDatabase::open(std::string bytes, std::string name,
                                            std::string expected) {
  if (!library().whole) {
    return fail(Errc::not_supported,
                "{}: libsqlite3.so.0 was not found, without which databases are not read: the "
                "Debian package libsqlite3-0 has it",
                name);
  }
  // A database in write-ahead mode cannot be read from memory. Setting these two version bytes
  // makes it one in rollback mode, without the log.
  constexpr std::size_t kVersions = 18;
  if (bytes.size() > kVersions + 1) bytes[kVersions] = bytes[kVersions + 1] = 1;
  auto open = std::make_unique<Open>();
  open->bytes = std::move(bytes);
  open->name = std::move(name);
  open->expected = std::move(expected);
  auto* const begin = reinterpret_cast<unsigned char*>(open->bytes.data());
  const auto size = static_cast<std::int64_t>(open->bytes.size());
  int answer = library().open_v2(":memory:", &open->handle, kOpenReadWrite | kOpenMemory, nullptr);
  if (answer == 0)
    answer = library().deserialize(open->handle, "main", begin, size, size, kDeserializeReadOnly);
  if (answer != 0) return open->refused(answer);
  return SqliteDatabase(std::move(open));
}

SqliteDatabase::SqliteDatabase(std::unique_ptr<Open> open) noexcept : open_(std::move(open)) {}
SqliteDatabase::SqliteDatabase(SqliteDatabase&&) noexcept = default;
SqliteDatabase& SqliteDatabase::operator=(SqliteDatabase&&) noexcept = default;
SqliteDatabase::~SqliteDatabase() = default;

Error SqliteDatabase::refused(std::string_view words) const { return open_->refused(words); }

Result<SqliteDatabase::Query> SqliteDatabase::query(std::string_view sql) {
  void* statement = nullptr;
  const auto answer = library().prepare_v2(open_->handle, sql.data(), static_cast<int>(sql.size()),
                                           &statement, nullptr);
  if (answer != 0) return open_->refused(answer);
  return Query(*open_, statement);
}

SqliteDatabase::Query::Query(Query&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

SqliteDatabase::Query::~Query() {
  if (statement_ != nullptr) library().finalize(statement_);
}

Result<bool> SqliteDatabase::Query::next() {
  const auto answer = library().step(statement_);
  if (answer != kRow && answer != kDone) return database_->refused(answer);
  return answer == kRow;
}

std::optional<std::uint64_t> SqliteDatabase::Query::number(int column) const {
  if (library().column_type(statement_, column) != kInteger) return std::nullopt;
  return static_cast<std::uint64_t>(library().column_int64(statement_, column));
}

}  // namespace emm::trace
