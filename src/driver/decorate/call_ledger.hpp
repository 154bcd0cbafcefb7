#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// Every call that one context received, and whether its accounts balance: what was handed out has
/// come back, once. What a context reset ends is not owed any more. Any thread may call; the
/// numbers that a reader sees are those of whole calls.
class CallLedger final : public CallHook {
 public:
  /// What is handed out and comes back.
  enum class Kind : std::uint8_t {
    device,
    managed,
    host,
    registered,
    imported,
    event,
    stream,
    library,
    reservation,  ///< Of addresses.
    physical,     ///< Handles of physical memory.
    mapping,
    pool,  ///< Stream-ordered; its memory is `device`.
  };
  static constexpr std::size_t kKinds = 12;

  struct Calls {
    std::uint64_t made = 0;
    std::uint64_t failed = 0;  ///< Of those.
    bool operator==(const Calls&) const = default;
  };
  struct Live {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< As asked for; 0 of objects that have no size.
    bool operator==(const Live&) const = default;
  };

  void after(const CallEvent& event) override;

  Calls calls(Call call) const;
  Calls calls() const;  ///< Of every kind.
  Live live(Kind kind) const;
  /// Ends asked for of what had ended already, and of what was never handed out here (null
  /// excepted).
  std::uint64_t double_ends() const;
  std::uint64_t foreign_ends() const;

  bool balances() const;
  /// "balanced", or what is not: "2 device (8192 bytes), 1 event not given back; 1 given back
  /// twice".
  std::string verdict() const;

 private:
  struct Account {
    std::unordered_map<std::uint64_t, std::uint64_t>
        live;  // size, or times opened of imported memory
    std::unordered_set<std::uint64_t> ended;
    std::uint64_t bytes = 0;
  };
  Account& account(Kind kind) { return accounts_[static_cast<std::size_t>(kind)]; }
  void begin(Kind kind, std::uint64_t what, std::uint64_t size);
  void end(Kind kind, const CallEvent& event);
  void unmap(const CallEvent& event);
  void open(const CallEvent& event);
  void close(const CallEvent& event);

  mutable std::mutex mutex_;
  std::array<Calls, kCallCount> calls_{};
  std::array<Account, kKinds> accounts_;
  std::uint64_t double_ends_ = 0;
  std::uint64_t foreign_ends_ = 0;
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
