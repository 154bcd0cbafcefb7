#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "driver/call.hpp"
#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// Counts every call of one context, and checks that all things it gave were freed once. A context
/// reset counts as the free of what it ends. Any thread may call. A reader sees the counts of
/// complete calls.
class CallLedger final : public CallHook {
 public:
  /// The kinds of things that calls give and free.
  enum class Kind : std::uint8_t {
    device,
    managed,
    host,
    registered,
    imported,
    event,
    stream,
    library,
    reservation,  ///< A range of addresses.
    physical,     ///< A handle of physical memory.
    mapping,
    pool,  ///< A stream-ordered pool; its memory counts as `device`.
  };
  static constexpr std::size_t kKinds = 12;  // as many as Kind has

  struct Calls {
    std::uint64_t made = 0;
    std::uint64_t failed = 0;  ///< Calls that failed.
    bool operator==(const Calls&) const = default;
  };
  struct Live {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< As requested; 0 for objects without a size.
    bool operator==(const Live&) const = default;
  };

  /// A live thing.
  struct Thing {
    std::uint64_t base = 0;   ///< Its address.
    std::uint64_t size = 0;   ///< As requested.
    std::uint64_t flags = 0;  ///< The requested flags of host, registered and managed memory.
    bool operator==(const Thing&) const = default;
  };

  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;
  /// Sets the function that tells which operation makes the call of this thread: a literal, or null
  /// if that is not known. verdict() then names who made what is left.
  void tell_makers_by(const char* (*maker)() noexcept) noexcept { maker_ = maker; }

  Calls calls(Call call) const;
  Calls calls() const;  ///< The sum over all calls.
  Live live(Kind kind) const;
  /// Bytes of physical memory that a handle or a mapping keeps. A handle may be released while it
  /// is mapped; its memory then lives until it is unmapped.
  std::uint64_t physical_bytes() const;
  /// The thing of this kind that contains `address`. Looks at all of them unless one begins there.
  std::optional<Thing> find(Kind kind, std::uint64_t address) const;
  /// The number of frees of things that were already freed, and of things that were never given
  /// here. Frees of null do not count.
  std::uint64_t double_ends() const;
  std::uint64_t foreign_ends() const;

  bool balances() const;
  /// "balanced", or the differences: "2 blocks of device memory (8192 bytes) made by memalloc(),
  /// 1 event made by free() are not released; 1 released twice (event, by reset())".
  std::string verdict() const;
  /// Whoever forks holds it meanwhile, so that the child can go on.
  std::mutex& lock_of_forks() noexcept { return mutex_; }

 private:
  struct LedgerEntry {
    std::uint64_t size = 0;  // for imported memory, how often it is open
    std::uint64_t flags = 0;
    const char* maker = nullptr;
  };
  struct EndUnderWay {
    std::uint64_t count = 0;
    bool is_used_again = false;  // the address is another thing's before the end was told
  };
  struct Account {
    std::unordered_map<std::uint64_t, LedgerEntry> live;  // by address
    std::unordered_set<std::uint64_t> ended;
    std::unordered_map<std::uint64_t, EndUnderWay> ends_under_way;  // by address
    std::uint64_t bytes = 0;
  };
  struct Physical {
    std::uint64_t size = 0;
    std::uint64_t users = 0;  // its handle, and its mappings
  };
  Account& account(Kind kind) { return accounts_[static_cast<std::size_t>(kind)]; }
  const char* maker() const noexcept { return maker_ != nullptr ? maker_() : nullptr; }
  void note_wrong_end(Kind kind, bool is_second);
  void begin(Kind kind, std::uint64_t what, std::uint64_t size, std::uint64_t flags = 0);
  void end(Kind kind, const CallEvent& event);
  void unmap(const CallEvent& event);
  void drop_physical(std::uint64_t number);
  void open(const CallEvent& event);
  void close(const CallEvent& event);

  mutable std::mutex mutex_;
  std::array<Calls, kCallCount> calls_{};
  std::array<Account, kKinds> accounts_;
  std::unordered_map<std::uint64_t, Physical> physical_;  // by the number in an entry's `flags`
  std::uint64_t physical_made_ = 0, physical_bytes_ = 0;
  std::uint64_t double_ends_ = 0;
  std::uint64_t foreign_ends_ = 0;
  std::string first_wrong_end_;  // of what kind, and by whom
  const char* (*maker_)() noexcept = nullptr;
};

/// A driver and its ledger in one.
class CountingDriver final : public ForwardingDriver {
 public:
  explicit CountingDriver(Driver& inner) noexcept : ForwardingDriver(inner, ledger_) {}
  CallLedger& ledger() noexcept { return ledger_; }

 private:
  CallLedger ledger_;
};

}  // namespace emm
