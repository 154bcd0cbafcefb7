#include "driver/decorate/call_ledger.hpp"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "driver/call.hpp"

namespace emm {
namespace {

/// One thing of a kind, and several.
struct KindWords {
  std::string_view one, several;
};
constexpr std::array<KindWords, CallLedger::kKinds> kWords{
    {{"block of device memory", "blocks of device memory"},
     {"block of managed memory", "blocks of managed memory"},
     {"block of page-locked memory", "blocks of page-locked memory"},
     {"registered region", "registered regions"},
     {"opened IPC handle", "opened IPC handles"},
     {"event", "events"},
     {"stream", "streams"},
     {"library", "libraries"},
     {"address range", "address ranges"},
     {"handle of physical memory", "handles of physical memory"},
     {"mapping", "mappings"},
     {"memory pool", "memory pools"}}};

using Kind = CallLedger::Kind;

/// A free does not name its kind, so device and managed memory share the lists of what has ended.
Kind listed_as(Kind kind) { return kind == Kind::managed ? Kind::device : kind; }
/// The other kind that the same free ends, or the kind itself.
Kind other_of_frees(Kind kind) {
  return kind == Kind::managed ? Kind::device : kind == Kind::device ? Kind::managed : kind;
}

/// What a call ends; managed memory is listed as device memory. A mapping's end has a range, and an
/// IPC handle's a count: they are not among these.
std::optional<Kind> kind_of_end(Call call) {
  switch (call) {
    case Call::mem_free:
    case Call::mem_free_async:
    case Call::runtime_free:
      return Kind::device;
    case Call::mem_free_host:
      return Kind::host;
    case Call::mem_host_unregister:
      return Kind::registered;
    case Call::event_destroy:
      return Kind::event;
    case Call::stream_destroy:
      return Kind::stream;
    case Call::mem_address_free:
      return Kind::reservation;
    case Call::mem_release:
      return Kind::physical;
    case Call::mem_pool_destroy:
      return Kind::pool;
    case Call::library_unload:
      return Kind::library;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::int32_t CallLedger::before(const CallEvent& event) {
  if (const auto kind = kind_of_end(event.call); kind && event.pointer != 0) {
    const std::lock_guard lock(mutex_);
    ++account(*kind).ends_under_way[event.pointer].count;
  }
  return 0;
}

void CallLedger::after(const CallEvent& event) {
  const std::lock_guard lock(mutex_);
  auto& calls = calls_[static_cast<std::size_t>(event.call)];
  ++calls.made;
  if (event.native != 0) ++calls.failed;

  if (const auto kind = kind_of_end(event.call)) {
    const bool is_managed =
        *kind == Kind::device && account(Kind::managed).live.count(event.pointer) != 0;
    return end(is_managed ? Kind::managed : *kind, event);
  }
  const bool worked = event.native == 0;
  switch (event.call) {
    case Call::mem_alloc:
    case Call::mem_alloc_async:
    case Call::mem_alloc_from_pool_async:
    case Call::runtime_malloc:
      if (worked) begin(Kind::device, event.result, event.size);
      return;
    case Call::mem_alloc_managed:
      if (worked) begin(Kind::managed, event.result, event.size, event.other);
      return;
    case Call::mem_host_alloc:
      if (worked) begin(Kind::host, event.result, event.size, event.other);
      return;
    case Call::mem_host_register:
      if (worked) begin(Kind::registered, event.pointer, event.size, event.other);
      return;
    case Call::event_create:
      if (worked) begin(Kind::event, event.result, 0);
      return;
    case Call::stream_create:
      if (worked) begin(Kind::stream, event.result, 0);
      return;
    case Call::library_load:
      if (worked) begin(Kind::library, event.result, 0);
      return;
    case Call::mem_address_reserve:
      if (worked) begin(Kind::reservation, event.result, event.size);
      return;
    case Call::mem_create:
      if (!worked) return;
      // The driver may use the value of a released handle again, so memory has a number.
      physical_[++physical_made_] = {.size = event.size, .users = 1};
      physical_bytes_ += event.size;
      return begin(Kind::physical, event.result, event.size, physical_made_);
    case Call::mem_map: {
      if (!worked) return;
      auto& handles = account(Kind::physical).live;
      const auto handle = handles.find(event.other);
      const auto number = handle == handles.end() ? 0 : handle->second.flags;
      if (number != 0) ++physical_[number].users;
      return begin(Kind::mapping, event.pointer, event.size, number);
    }
    case Call::mem_pool_create:
      if (worked) begin(Kind::pool, event.result, 0);
      return;
    case Call::mem_unmap:
      return unmap(event);
    case Call::ipc_open_mem_handle:
      return open(event);
    case Call::ipc_close_mem_handle:
      return close(event);
    case Call::primary_ctx_reset:
      if (!worked) return;
      accounts_ = {};
      physical_.clear();
      physical_bytes_ = 0;
      return;
    default:
      return;
  }
}

void CallLedger::begin(Kind kind, std::uint64_t what, std::uint64_t size, std::uint64_t flags) {
  if (what == 0) return;  // a request for nothing needs no free
  auto& book = account(kind);
  // The driver gives an address again as soon as another thread's free has ended there, which is
  // told here later: that end will be the older thing's.
  auto& ends = account(listed_as(kind)).ends_under_way;
  if (const auto under_way = ends.find(what); under_way != ends.end()) {
    for (const auto other : {kind, other_of_frees(kind)}) {
      auto& older = account(other);
      const auto found = older.live.find(what);
      if (found == older.live.end()) continue;
      older.bytes -= found->second.size;
      if (kind == Kind::physical) drop_physical(found->second.flags);
      older.live.erase(found);
      under_way->second.is_used_again = true;
    }
  }
  book.live[what] = {.size = size, .flags = flags, .maker = maker()};
  book.ended.erase(what);
  // Device and managed memory may use an address in turn.
  if (kind == Kind::managed) account(Kind::device).ended.erase(what);
  book.bytes += size;
}

void CallLedger::end(Kind kind, const CallEvent& event) {
  if (event.pointer == 0) return;
  auto& ends = account(listed_as(kind)).ends_under_way;
  if (const auto under_way = ends.find(event.pointer); under_way != ends.end()) {
    const bool is_older = event.native == 0 && under_way->second.is_used_again;
    if (is_older) under_way->second.is_used_again = false;
    if (--under_way->second.count == 0) ends.erase(under_way);
    if (is_older) return;
  }
  auto& book = account(kind);
  const auto found = book.live.find(event.pointer);
  if (found == book.live.end()) {
    // After a success the thing is older than the ledger. After 709 a reset has ended it.
    if (event.native == 0 || event.native == 709) return;
    note_wrong_end(kind, book.ended.count(event.pointer) != 0);
    return;
  }
  if (event.native != 0) return;
  if (kind == Kind::physical) drop_physical(found->second.flags);
  book.bytes -= found->second.size;
  book.live.erase(found);
  account(listed_as(kind)).ended.insert(event.pointer);
}

// One call ends every mapping in its range.
void CallLedger::unmap(const CallEvent& event) {
  if (event.native != 0) return end(Kind::mapping, event);
  auto& book = account(Kind::mapping);
  for (auto at = event.pointer; at < event.pointer + event.size;) {
    const auto found = book.live.find(at);
    if (found == book.live.end()) return;
    at += found->second.size;
    drop_physical(found->second.flags);
    book.bytes -= found->second.size;
    book.ended.insert(found->first);
    book.live.erase(found);
  }
}

void CallLedger::drop_physical(std::uint64_t number) {
  const auto found = physical_.find(number);
  if (found == physical_.end() || --found->second.users != 0) return;
  physical_bytes_ -= found->second.size;
  physical_.erase(found);
}

void CallLedger::open(const CallEvent& event) {
  if (event.native != 0) return;
  auto& entry = account(Kind::imported).live[event.result];
  if (entry.size++ == 0) entry.maker = maker();
}

void CallLedger::close(const CallEvent& event) {
  auto& book = account(Kind::imported);
  const auto found = book.live.find(event.pointer);
  if (found == book.live.end()) {
    if (event.native != 0 && event.native != 709)
      note_wrong_end(Kind::imported, book.ended.count(event.pointer) != 0);
    return;
  }
  if (event.native != 0 || --found->second.size != 0) return;
  book.live.erase(found);
  book.ended.insert(event.pointer);
}

CallLedger::Calls CallLedger::calls(Call call) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<std::size_t>(call)];
}

CallLedger::Calls CallLedger::calls() const {
  const std::lock_guard lock(mutex_);
  Calls sum;
  for (const auto& calls : calls_) {
    sum.made += calls.made;
    sum.failed += calls.failed;
  }
  return sum;
}

CallLedger::Live CallLedger::live(Kind kind) const {
  const std::lock_guard lock(mutex_);
  const auto& book = accounts_[static_cast<std::size_t>(kind)];
  return {.count = book.live.size(), .bytes = book.bytes};
}

std::uint64_t CallLedger::physical_bytes() const {
  const std::lock_guard lock(mutex_);
  return physical_bytes_;
}

std::optional<CallLedger::Thing> CallLedger::find(Kind kind, std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto& live = accounts_[static_cast<std::size_t>(kind)].live;
  if (const auto at = live.find(address); at != live.end())
    return Thing{.base = address, .size = at->second.size, .flags = at->second.flags};
  for (const auto& [base, entry] : live) {
    if (address > base && address - base < entry.size)
      return Thing{.base = base, .size = entry.size, .flags = entry.flags};
  }
  return std::nullopt;
}

std::uint64_t CallLedger::double_ends() const {
  const std::lock_guard lock(mutex_);
  return double_ends_;
}

std::uint64_t CallLedger::foreign_ends() const {
  const std::lock_guard lock(mutex_);
  return foreign_ends_;
}

bool CallLedger::balances() const {
  const std::lock_guard lock(mutex_);
  for (const auto& book : accounts_) {
    if (!book.live.empty()) return false;
  }
  return double_ends_ == 0 && foreign_ends_ == 0;
}

void CallLedger::note_wrong_end(Kind kind, bool is_second) {
  ++(is_second ? double_ends_ : foreign_ends_);
  if (!first_wrong_end_.empty()) return;
  const auto* const by = maker();
  first_wrong_end_ = text::format(" ({}{})", kWords[static_cast<std::size_t>(kind)].one,
                                  by != nullptr ? text::format(", by {}()", by) : std::string());
}

std::string CallLedger::verdict() const {
  const std::lock_guard lock(mutex_);
  struct Left {
    std::uint64_t count = 0, bytes = 0;
  };
  std::vector<std::string> parts;
  std::uint64_t things = 0;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    std::map<std::string_view, Left> by_maker;
    for (const auto& [address, entry] : accounts_[kind].live) {
      auto& left = by_maker[entry.maker != nullptr ? entry.maker : ""];
      ++left.count;
      // The size of an imported handle is how often it is open.
      if (kind != static_cast<std::size_t>(Kind::imported)) left.bytes += entry.size;
    }
    for (const auto& [by, left] : by_maker) {
      things += left.count;
      auto part = text::format("{} {}", left.count,
                               left.count == 1 ? kWords[kind].one : kWords[kind].several);
      if (left.bytes != 0) part += text::format(" ({} bytes)", left.bytes);
      if (!by.empty()) part += text::format(" made by {}()", by);
      parts.push_back(std::move(part));
    }
  }
  auto out = text::join(parts);
  if (!out.empty()) out += things == 1 ? " is not released" : " are not released";
  auto wrong_end = first_wrong_end_;
  const auto add = [&](std::uint64_t count, std::string_view words) {
    if (count == 0) return;
    if (!out.empty()) out += "; ";
    out += text::format("{} {}{}", count, words, std::exchange(wrong_end, {}));
  };
  add(double_ends_, "released twice");
  add(foreign_ends_, "released that were not handed out");
  return out.empty() ? "balanced" : out;
}

}  // namespace emm
