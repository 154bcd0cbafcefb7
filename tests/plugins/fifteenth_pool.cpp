// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// fifteenth_wrong.def has each way and the rule that it breaks. Small blocks are cut out of mapped
// spans, and each thread keeps some; large ones lie on a shelf until a thread of the manager's own
// finds them old. Frees are gathered in epochs, and what one has freed comes after the last event
// of each stream in it. Page-locked and managed memory are kept, too.
#define WRONG_TABLE "fifteenth_wrong.def"
#include <chrono>
#include <compare>
#include <condition_variable>
#include <optional>
#include <thread>

#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLargestBlock = 40 * MiB, kSpan = 2 * MiB, kSmallest = 256, kLargestSmall = 64 * KiB;
constexpr u64 kHostKept = MiB, kManagedKept = 16 * MiB;
constexpr std::size_t kThreadKeeps = 12, kHostsKept = 12, kMostWaiting = 10;
constexpr u32 kFreesOfEpoch = 24;
constexpr u64 kOld = 6;  // Ticks.

// A stream that a thread can name: the per-thread default stream is another one in each thread.
struct Key {
  emm_stream stream = 0;
  u64 thread = 0;
  auto operator<=>(const Key&) const = default;
};
Key key_of(emm_stream stream, u64 thread) {
  return {stream == 1 ? 0 : stream, stream == 2 ? thread : 0};
}

// An event, which the last one who holds it ends.
struct Event {
  std::mutex* guard;
  std::vector<emm_handle>* ended;
  emm_handle handle;
  u64 begun;  // The number that was drawn before it was recorded.
  Event(std::mutex* its_guard, std::vector<emm_handle>* its_ended, emm_handle its_handle, u64 at)
      : guard(its_guard), ended(its_ended), handle(its_handle), begun(at) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    std::lock_guard lock(*guard);
    ended->push_back(handle);
  }
};
// Frees that were made one after the other.
struct Epoch {
  std::map<Key, std::shared_ptr<Event>> last = {};
  u64 all = 0;  // Other than 0: a wait for all work after this number.
  u32 frees = 0;
  u64 number = 0;
};
// Memory that nobody has.
struct Idle {
  u64 address = 0, room = 0;
  std::optional<Key> only = {};            // All work on it is of this stream.
  std::shared_ptr<Epoch> epoch = nullptr;  // Null: nothing is to be waited for.
  u64 tick = 0;
  u32 flags = 0;  // Of page-locked and managed memory.
  u64 mapped = 0;
};
struct Span {
  u64 room = 0;  // Of a block.
  u64 live = 0;
  emm_handle physical = 0;
};
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0, mapped = 0;
  u64 span = 0;  // 0: it is the driver's.
  u32 flags = 0;
  Key key = {};  // Of the request.
};
void* host_of(u64 address) { return reinterpret_cast<void*>(address); }
std::string last_words;  // Only a wrong variant uses it.
}  // namespace

struct emm_manager : Common {
  std::mutex growing;  // Held while a span is made: no free needs it.
  std::mutex burying;  // Guards ended_events.
  std::vector<emm_handle> ended_events;
  std::mutex m;  // Guards what follows, and is held in no call.
  std::condition_variable woken, rested;
  std::map<emm_token, Record> records;
  std::map<u64, Span> spans;
  std::map<u64, std::map<u64, std::vector<Idle>>> of_threads;  // By thread and room.
  std::map<u64, std::vector<Idle>> of_all;                     // By room.
  std::vector<Idle> shelf, hosts, managed;
  std::deque<Record> waiting;
  std::shared_ptr<Epoch> present = std::make_shared<Epoch>();
  u64 live = 0, peak = 0, ended = 0, reserved = 0, most_reserved = 0, managed_kept = 0;
  u64 last_number = 0, last_clean = 0, ticks = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  bool is_stopping = false, is_janitor_busy = false;
  std::thread janitor;
  // Only wrong variants use these.
  u64 resets = 0, deferral_thread = 0;
  bool was_out = false, was_trimmed = false, out_was_in_vain = false;

  u32 level() {
    std::lock_guard lock(m);
    return deferrals;
  }
  static bool counts(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }
  emm_status no(emm_status status, const char* words) {
    if (status != EMM_SUCCESS && W(words_are_of_all_threads)) last_words = words;
    return fail(status, words);
  }
  std::size_t last_error(char* buffer, std::size_t size) const {
    return write(W(words_are_of_all_threads) ? last_words : error_text, buffer, size);
  }

  // The order of streams.
  std::shared_ptr<Epoch> epoch_of_a_free() {
    std::lock_guard lock(m);
    if (++present->frees > kFreesOfEpoch) begin_epoch();
    return present;
  }
  void begin_epoch() {
    auto next = std::make_shared<Epoch>();
    next->number = present->number + 1;
    present = next;
  }
  void note(Key key, const std::shared_ptr<Epoch>& epoch) {
    u64 number;
    {
      std::lock_guard lock(m);
      number = ++last_number;
    }
    emm_handle handle = 0;
    emm_status status = EMM_NOT_SUPPORTED;
    if (key.stream != 2 || key.thread == thread_number) {
      status = d->event_create(d->user, &handle);
      if (status == EMM_SUCCESS) {
        status = d->event_record(d->user, handle, key.stream);
        if (status != EMM_SUCCESS) tell(d->event_destroy(d->user, handle));
      }
    }
    std::shared_ptr<Event> event;
    if (status == EMM_SUCCESS)
      event = std::make_shared<Event>(&burying, &ended_events, handle, number);
    std::lock_guard lock(m);
    if (event == nullptr) {
      if (!(W(refused_record_is_forgotten_in_nested) && deferrals > 1)) epoch->all = number;
      return;
    }
    auto& last = epoch->last[key];
    if (W(epoch_keeps_first_event_in_deferral) && deferrals > 0 && last != nullptr) return;
    if (last == nullptr || last->begun < number) last.swap(event);
  }
  void bury() {
    std::vector<emm_handle> some;
    {
      std::lock_guard lock(burying);
      some.swap(ended_events);
    }
    for (const emm_handle event : some) tell(d->event_destroy(d->user, event));
  }
  emm_status wait_for_all() {
    u64 until;
    {
      std::lock_guard lock(m);
      until = last_number;
    }
    const emm_status status = d->ctx_synchronize(d->user);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    last_clean = std::max(last_clean, until);
    return status;
  }
  // Makes what comes on the stream come after what is idle; without a stream, on the host.
  emm_status order(const Idle& idle, const Key* key) {
    if (idle.epoch == nullptr) return EMM_SUCCESS;
    if (key != nullptr && idle.only == *key) return EMM_SUCCESS;
    if (W(only_ignores_thread_after_reset) && resets > 0 && key != nullptr && idle.only &&
        idle.only->stream == key->stream)
      return EMM_SUCCESS;
    std::vector<std::shared_ptr<Event>> events;
    bool needs_all;
    {
      std::lock_guard lock(m);
      if (W(epoch_before_last_is_done) && idle.epoch->number + 2 <= present->number)
        return EMM_SUCCESS;
      needs_all = idle.epoch->all > last_clean;
      for (const auto& [other, event] : idle.epoch->last)
        if ((key == nullptr || other != *key) && event->begun > last_clean) events.push_back(event);
    }
    for (const auto& event : events) {
      const emm_status done = d->event_query(d->user, event->handle);
      if (done == EMM_SUCCESS) continue;
      if (W(host_is_taken_where_query_fails) && key == nullptr && done != EMM_NOT_READY) continue;
      const emm_status status = key == nullptr
                                    ? d->event_synchronize(d->user, event->handle)
                                    : d->stream_wait_event(d->user, key->stream, event->handle);
      if (status != EMM_SUCCESS) needs_all = true;
      if (W(one_wait_stands_for_all_after_out) && was_out) break;
    }
    return needs_all ? wait_for_all() : EMM_SUCCESS;
  }

  // Small blocks.
  u64 span_of(u64 address) { return std::prev(spans.upper_bound(address))->first; }
  bool take_block(Record* record, Idle* idle) {
    std::lock_guard lock(m);
    auto& mine = of_threads[thread_number][record->room];
    auto& all = of_all[record->room];
    const auto same = std::find_if(mine.rbegin(), mine.rend(),
                                   [&](const Idle& one) { return one.only == record->key; });
    if (same != mine.rend()) {
      *idle = std::move(*same);
      mine.erase(std::prev(same.base()));
    } else if (!all.empty()) {
      *idle = std::move(all.front());
      all.erase(all.begin());
    } else if (!mine.empty()) {
      *idle = std::move(mine.back());
      mine.pop_back();
    } else {
      return false;
    }
    record->span = span_of(idle->address);
    record->address = idle->address;
    if (!(W(block_is_not_counted_after_out) && was_out)) ++spans[record->span].live;
    return true;
  }
  void put_block(Idle idle, bool is_mine) {  // Under the lock.
    const auto at = spans.find(span_of(idle.address));
    if (at->second.live > 0) --at->second.live;
    idle.room = at->second.room;
    if (!is_mine) {
      of_all[idle.room].push_back(std::move(idle));
      return;
    }
    auto& mine = of_threads[thread_number][idle.room];
    mine.push_back(std::move(idle));
    if (mine.size() <= kThreadKeeps) return;
    auto& all = of_all[mine.front().room];
    const auto half = mine.begin() + kThreadKeeps / 2;
    for (auto one = mine.begin(); one != half; ++one) {
      if (W(spilled_is_clean_after_reset) && resets > 0) one->epoch = nullptr;
      all.push_back(std::move(*one));
    }
    mine.erase(mine.begin(), half);
  }
  void gather(bool is_trim = false) {
    std::lock_guard lock(m);
    for (auto& [thread, rooms] : of_threads) {
      if (W(trim_forgets_other_threads_after_reset) && is_trim && resets > 0 &&
          thread != thread_number)
        continue;
      for (auto& [room, blocks] : rooms) {
        for (Idle& one : blocks) {
          if (W(gathered_for_a_request_is_clean) && !is_trim) one.epoch = nullptr;
          of_all[room].push_back(std::move(one));
        }
        blocks.clear();
      }
    }
  }
  emm_status make_span(u64 room) {
    std::lock_guard one_at_a_time(growing);
    u64 base = 0;
    emm_handle physical = 0;
    emm_status status = d->mem_address_reserve(d->user, kSpan, 0, 0, &base);
    if (status != EMM_SUCCESS) return status;
    status = d->mem_create(d->user, kSpan, &physical);
    if (status == EMM_SUCCESS) {
      status = d->mem_map(d->user, base, kSpan, 0, physical);
      if (status == EMM_SUCCESS) {
        status = d->mem_set_access(d->user, base, kSpan, 3);
        if (status != EMM_SUCCESS) tell(d->mem_unmap(d->user, base, kSpan));
      } else if (W(unmapped_physical_leaks_in_deferral) && level() > 0) {
        physical = 0;
      }
      if (status != EMM_SUCCESS && physical != 0) tell(d->mem_release(d->user, physical));
    }
    if (status != EMM_SUCCESS) {
      if (!(W(range_leaks_where_memory_is_out_after_reset) && resets > 0))
        tell(d->mem_address_free(d->user, base, kSpan));
      return status;
    }
    std::lock_guard lock(m);
    spans[base] = {room, 0, physical};
    for (u64 at = 0; at + room <= kSpan; at += room)
      of_all[room].push_back({.address = base + at, .room = room});
    reserved += kSpan;
    most_reserved = std::max(most_reserved, reserved);
    return status;
  }
  emm_status take_small(Record* record) {
    Idle idle;
    while (!take_block(record, &idle)) {
      const emm_status status = make_span(record->room);
      if (status != EMM_SUCCESS) return status;
    }
    const emm_status status = order(idle, &record->key);
    if (status == EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    if (W(refused_wait_cleans_in_nested) && deferrals > 1) idle.epoch = nullptr;
    if (!(W(block_is_lost_at_refused_wait_in_deferral) && deferrals > 0))
      put_block(std::move(idle), false);
    return status;
  }
  emm_status release_spans(u64 keep, bool is_trim) {
    gather(is_trim);
    std::map<u64, std::pair<Span, std::vector<Idle>>> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      for (const auto& [base, span] : spans) idle += span.live == 0 ? kSpan : 0;
      for (auto at = spans.begin(); at != spans.end() && idle > keep;) {
        if (at->second.live > 0) {
          ++at;
          continue;
        }
        auto& [span, blocks] = out[at->first];
        span = at->second;
        auto& all = of_all[span.room];
        // What another thread keeps stays where it is in one of the wrong variants.
        std::erase_if(all, [&, base = at->first](Idle& one) {
          if (one.address < base || one.address >= base + kSpan) return false;
          blocks.push_back(std::move(one));
          return true;
        });
        if (blocks.size() < kSpan / span.room && W(trim_forgets_other_threads_after_reset)) {
          for (Idle& one : blocks) all.push_back(std::move(one));
          out.erase(at->first);
          ++at;
          continue;
        }
        idle -= kSpan;
        at = spans.erase(at);
      }
    }
    if (out.empty()) return EMM_SUCCESS;
    const emm_status waited =
        W(span_goes_without_wait_in_deferral) && level() > 0 ? EMM_SUCCESS : wait_for_all();
    emm_status first = waited;
    for (auto& [base, one] : out) {
      auto& [span, blocks] = one;
      const emm_status status = waited == EMM_SUCCESS ? d->mem_unmap(d->user, base, kSpan) : waited;
      if (status == EMM_SUCCESS) {
        tell(d->mem_release(d->user, span.physical));
        tell(d->mem_address_free(d->user, base, kSpan));
        std::lock_guard lock(m);
        reserved -= kSpan;
      } else if (!(W(span_is_lost_at_refused_wait_after_reset) && resets > 0)) {
        std::lock_guard lock(m);
        spans[base] = span;
        for (Idle& block : blocks) of_all[span.room].push_back(std::move(block));
      }
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }

  // Large memory.
  static u64 large_room(u64 size) {
    const u64 step = std::max(64 * KiB, std::bit_floor(size) / 8);
    return up(size, step);
  }
  emm_status take_large(Record* record) {
    Idle idle;
    {
      std::lock_guard lock(m);
      auto best = shelf.end();
      for (auto at = shelf.begin(); at != shelf.end(); ++at) {
        const u64 room = W(shelf_gives_smaller_after_reset) && resets > 0
                             ? at->room + std::bit_floor(at->room) / 8
                             : at->room;
        if (room >= record->room && (best == shelf.end() || at->room < best->room)) best = at;
      }
      if (best != shelf.end()) {
        idle = std::move(*best);
        shelf.erase(best);
      }
    }
    if (idle.address == 0) {
      const emm_status status = d->mem_alloc(d->user, record->room, &record->address);
      if (status != EMM_SUCCESS) return status;
      std::lock_guard lock(m);
      reserved += record->room;
      if (!(W(reserved_peak_forgets_large_after_reset) && resets > 0))
        most_reserved = std::max(most_reserved, reserved);
      return status;
    }
    const emm_status status = order(idle, &record->key);
    if (status != EMM_SUCCESS) {
      std::lock_guard lock(m);
      shelf.push_back(std::move(idle));
      return status;
    }
    record->address = idle.address;
    record->room = idle.room;
    return status;
  }
  // Gives what is older to the driver, until no more than `keep` bytes are left.
  emm_status release_shelf(u64 keep, u64 before_tick, bool by_janitor = false) {
    std::vector<Idle> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      for (const Idle& one : shelf) idle += one.room;
      std::erase_if(shelf, [&](Idle& one) {
        if (idle <= keep || one.tick >= before_tick) return false;
        idle -= one.room;
        out.push_back(std::move(one));
        return true;
      });
    }
    emm_status first = EMM_SUCCESS;
    for (Idle& one : out) {
      const emm_status status = d->mem_free(d->user, one.address);
      std::lock_guard lock(m);
      if (status == EMM_SUCCESS) reserved -= one.room;
      if (W(janitor_counts_twice) && by_janitor) reserved -= std::min(reserved, one.room);
      if (status != EMM_SUCCESS) shelf.push_back(std::move(one));
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  u64 idle_on_shelf() {
    std::lock_guard lock(m);
    u64 idle = 0;
    for (const Idle& one : shelf) idle += one.room;
    return idle;
  }

  // What waits.
  emm_status end_at_driver(const Record& one) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, host_of(one.address));
    if (one.kind == Kind::region) return d->mem_host_unregister(d->user, host_of(one.address));
    return d->mem_free(d->user, one.address);
  }
  emm_status make_frees(bool even_deferred = false, bool by_janitor = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        const bool is_deferred =
            W(janitor_sees_one_deferral) && by_janitor ? deferrals == 1 : deferrals > 0;
        if (waiting.empty() || (is_deferred && !even_deferred)) break;
        one = waiting.front();
        waiting.pop_front();
        is_janitor_busy = is_janitor_busy || by_janitor;
      }
      const emm_status status = end_at_driver(one);
      ++count;
      bytes += one.size;
      if (by_janitor) rest();
      if (by_janitor && !W(janitor_tells_no_refusal)) tell(status);
      if (first == EMM_SUCCESS) first = status;
    }
    if (!(W(janitor_tells_no_flush) && by_janitor)) tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full;
    {
      std::lock_guard lock(m);
      waiting.push_back(one);
      full = waiting.size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (full && !by_reset) tell(make_frees());
  }
  void empty_hosts(bool even_flags = true) {
    std::vector<Idle> out;
    {
      std::lock_guard lock(m);
      if (even_flags) out.swap(hosts);
    }
    for (const Idle& one : out) tell(d->mem_free_host(d->user, host_of(one.address)));
  }
  void empty_managed() {
    std::vector<Idle> out;
    {
      std::lock_guard lock(m);
      out.swap(managed);
      managed_kept = 0;
    }
    for (const Idle& one : out) tell(d->mem_free(d->user, one.address));
  }
  void make_room(bool is_managed = false, bool is_host = false) {
    {
      std::lock_guard lock(m);
      was_out = true;
    }
    const u32 now = level();
    tell(make_frees(W(managed_out_in_nested_frees) && is_managed && now > 1));
    if (W(out_in_vain_is_not_tried_again) && out_was_in_vain) return;
    if (now == 0) {
      if (!(W(host_out_keeps_hosts_after_trim) && is_host && was_trimmed)) empty_hosts();
      empty_managed();
    }
    tell(release_spans(0, false));
    tell(release_shelf(0, ~u64{0}));
    bury();
  }

  // The manager's own thread.
  void rest() {
    std::lock_guard lock(m);
    is_janitor_busy = false;
    rested.notify_all();
  }
  void look_after() {
    std::unique_lock lock(m);
    while (!is_stopping) {
      woken.wait_for(lock, std::chrono::milliseconds(2));
      if (is_stopping) break;
      if (deferrals > 0 && !W(janitor_sees_one_deferral)) continue;
      ++ticks;
      const bool is_due = ticks % 2 == 0;
      const bool has_old = std::any_of(shelf.begin(), shelf.end(),
                                       [&](const Idle& one) { return one.tick + kOld < ticks; });
      if (present->frees > 0) begin_epoch();
      if (!is_due || (waiting.empty() && !has_old)) continue;
      const u64 before = ticks - std::min(ticks, kOld);
      if (has_old && deferrals == 0) is_janitor_busy = true;
      lock.unlock();
      if (has_old) tell(release_shelf(0, before, true));
      rest();
      make_frees(false, true);
      bury();
      lock.lock();
    }
  }
  void initialize() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (W(second_initialize_forgets_managed) && janitor.joinable()) managed.clear();
    if (!janitor.joinable()) janitor = std::thread([this] { look_after(); });
  }

  void forget(const Record& record, bool by_reset = false) {  // Under the lock.
    if (!counts(record)) return;
    live -= record.size;
    if (!(W(freed_total_forgets_managed_of_reset) && by_reset && record.kind == Kind::managed))
      ended += record.size;
  }
  void hand_out(const Record& record, emm_memory* memory) {
    std::lock_guard lock(m);
    emm_token token = ++last_token;
    if (W(host_token_is_address) && record.kind == Kind::host) token = record.address;
    records[token] = record;
    if (counts(record)) live += record.size;
    peak = std::max(peak, live);
    memory->token = token;
    memory->device_pointer = counts(record) ? record.address : record.mapped;
    memory->host_pointer = record.kind == Kind::device ? nullptr : host_of(record.address);
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of device memory");
    if (size > kLargestBlock && !(W(larger_blocks_in_deferral) && level() > 0))
      return no(EMM_OUT_OF_MEMORY, "larger than the largest block");
    Record record{.size = size, .key = key_of(stream, thread_number)};
    const bool is_small = size <= kLargestSmall;
    const auto ask = [&] {
      record.room = is_small ? std::max(kSmallest, std::bit_ceil(size)) : large_room(size);
      if (W(class_is_rounded_down_in_nested) && is_small && size > kSmallest && level() > 1)
        record.room = std::bit_floor(size - 1);
      return is_small ? take_small(&record) : take_large(&record);
    };
    emm_status status = ask();
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = ask();
      out_was_in_vain = status == EMM_OUT_OF_MEMORY;
    }
    bury();
    if (status != EMM_SUCCESS) return no(status, "no device memory");
    hand_out(record, memory);
    return status;
  }
  bool take_kept(std::vector<Idle>* kept, Record* record, emm_status* status) {
    Idle idle;
    {
      std::lock_guard lock(m);
      const auto fits = [&](const Idle& one) {
        if (one.room != record->room) return false;
        if (W(kept_flags_are_a_superset_in_deferral) && deferrals > 0)
          return (one.flags & record->flags) == record->flags;
        if (W(managed_mixes_attach_after_out) && was_out && record->kind == Kind::managed)
          return true;
        return one.flags == record->flags;
      };
      const auto at = std::find_if(kept->begin(), kept->end(), fits);
      if (at == kept->end()) return false;
      idle = std::move(*at);
      kept->erase(at);
      if (record->kind == Kind::managed) managed_kept -= idle.room;
    }
    record->address = idle.address;
    record->mapped = idle.mapped;
    *status = order(idle, nullptr);
    if (*status == EMM_SUCCESS) return true;
    std::lock_guard lock(m);
    if (record->kind == Kind::managed) managed_kept += idle.room;
    kept->push_back(std::move(idle));
    return true;
  }
  emm_status ask_host(Record* record) {
    void* host = nullptr;
    const emm_status status = d->mem_host_alloc(d->user, record->room, record->flags, &host);
    if (status != EMM_SUCCESS) return status;
    record->address = reinterpret_cast<u64>(host);
    if ((record->flags & EMM_HOST_MAPPED) == 0) return status;
    const emm_status mapped = d->mem_host_get_device_pointer(d->user, host, &record->mapped);
    if (mapped == EMM_SUCCESS) return mapped;
    if (W(unmappable_host_is_kept)) {
      std::lock_guard lock(m);
      hosts.push_back({.address = record->address, .room = record->room, .flags = record->flags});
      return mapped;
    }
    tell(d->mem_free_host(d->user, host));
    return mapped;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    if (size <= kHostKept) record.room = std::max(4 * KiB, std::bit_ceil(size));
    emm_status status = EMM_SUCCESS;
    if (size > kHostKept || !take_kept(&hosts, &record, &status)) {
      status = ask_host(&record);
      if (status == EMM_OUT_OF_MEMORY) {
        make_room(false, true);
        status = ask_host(&record);
      }
    }
    bury();
    if (status != EMM_SUCCESS) return no(status, "no page-locked memory");
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    Record record{.kind = Kind::region,
                  .size = size,
                  .address = reinterpret_cast<u64>(pointer),
                  .flags = flags};
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = d->mem_host_register(d->user, pointer, size, flags);
    }
    if (status != EMM_SUCCESS)
      return no(W(pin_answers_invalid_in_deferral) && level() > 0 ? emm_status{EMM_INVALID_VALUE}
                                                                  : status,
                "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, pointer, &record.mapped);
    if (status != EMM_SUCCESS) {
      tell(d->mem_host_unregister(d->user, pointer));
      return no(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of managed memory");
    if (size > kLargestBlock) return no(EMM_OUT_OF_MEMORY, "larger than the largest block");
    Record record{.kind = Kind::managed, .size = size, .room = up(size, 4 * KiB), .flags = attach};
    emm_status status = EMM_SUCCESS;
    bool is_kept = take_kept(&managed, &record, &status);
    if (!is_kept) {
      const auto ask = [&] {
        return d->mem_alloc_managed(d->user, record.room, attach, &record.address);
      };
      status = ask();
      if (status == EMM_OUT_OF_MEMORY) {
        make_room(true);
        status = ask();
      }
    }
    bury();
    if (status != EMM_SUCCESS) return no(status, "no managed memory");
    hand_out(record, memory);
    if (is_kept && W(kept_managed_has_no_host_pointer)) memory->host_pointer = nullptr;
    return status;
  }

  emm_status end(const Record& record, Key by, bool by_reset) {
    if (record.kind == Kind::region) return end_at_driver(record);
    Idle idle{.address = record.address,
              .room = record.room,
              .flags = record.flags,
              .mapped = record.mapped};
    const bool is_large_host = record.kind == Kind::host && record.size > kHostKept;
    if (is_large_host || (by_reset && record.kind != Kind::device)) {
      if (W(reset_in_nested_frees_host) && by_reset && level() > 1 && record.kind == Kind::host)
        return end_at_driver(record);
      enqueue(record, by_reset);
      return EMM_SUCCESS;
    }
    if (by_reset) {  // The streams may be gone.
      idle.epoch = std::make_shared<Epoch>();
      std::lock_guard lock(m);
      idle.epoch->all = ++last_number;
    } else {
      idle.epoch = epoch_of_a_free();
      note(by, idle.epoch);
      const bool is_one = by == record.key || record.kind != Kind::device ||
                          (W(request_stream_is_forgotten_after_trim) && was_trimmed);
      if (!is_one) note(record.key, idle.epoch);
      if (is_one && record.kind == Kind::device) idle.only = by;
    }
    bool waits = false;
    {
      std::lock_guard lock(m);
      idle.tick = ticks;
      if (record.kind == Kind::device && record.span != 0) {
        put_block(std::move(idle), !by_reset);
      } else if (record.kind == Kind::device) {
        if (W(shelf_is_clean_in_nested) && deferrals > 1) idle.epoch = nullptr;
        shelf.push_back(std::move(idle));
      } else if (record.kind == Kind::host) {
        waits = hosts.size() >= kHostsKept;
        if (!waits) hosts.push_back(std::move(idle));
      } else {
        waits = managed_kept + idle.room > kManagedKept;
        if (!waits) {
          managed_kept += idle.room;
          managed.push_back(std::move(idle));
        }
      }
    }
    if (waits && W(overflow_is_freed_at_once_in_deferral) && level() > 0)
      return end_at_driver(record);
    if (waits) enqueue(record, by_reset);
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    Record record;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end())
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      record = at->second;
      records.erase(at);
      forget(record);
    }
    const emm_status status = end(record, key_of(stream, thread_number), false);
    bury();
    return no(status, "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      ++resets;
      if (W(reset_in_deferral_spares_managed) && deferrals > 0 && !at_end) {
        for (auto at = records.begin(); at != records.end();) {
          const auto next = std::next(at);
          if (at->second.kind != Kind::managed) all.insert(records.extract(at));
          at = next;
        }
      } else {
        all.swap(records);
      }
      last_reset = last_token;
      for (const auto& [token, record] : all) forget(record, true);
    }
    for (const auto& [token, record] : all) tell(end(record, record.key, true));
    tell(make_frees(at_end));
    if (at_end || level() == 0) {
      empty_hosts();
      empty_managed();
      tell(release_spans(0, false));
      tell(release_shelf(0, ~u64{0}));
    }
    bury();
  }
  void end_manager() {
    if (in_child()) return;
    {
      std::lock_guard lock(m);
      is_stopping = true;
      woken.notify_all();
    }
    if (janitor.joinable()) janitor.join();
    reset(true);
    {
      std::lock_guard lock(m);
      present = nullptr;
    }
    of_all.clear();
    bury();
    // What could not be waited for goes all the same.
    for (const auto& [base, span] : spans) {
      tell(d->mem_unmap(d->user, base, kSpan));
      tell(d->mem_release(d->user, span.physical));
      tell(d->mem_address_free(d->user, base, kSpan));
    }
  }
  emm_status flush() {
    if (W(child_flush_in_deferral_asks_janitor)) {
      std::unique_lock lock(m);
      if (deferrals > 0 && janitor.joinable()) {
        const u64 now = ticks;
        if (in_child()) woken.wait(lock, [&] { return ticks > now; });
      }
    }
    if (in_child()) return fail_in_child();
    const emm_status status = make_frees();
    bury();
    return no(status, "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    was_trimmed = true;
    emm_status status = EMM_SUCCESS;
    if (level() == 0) {
      empty_hosts();
      empty_managed();
    }
    const u64 on_shelf = idle_on_shelf();
    const emm_status of_spans = release_spans(keep - std::min(keep, on_shelf), true);
    status = release_shelf(keep, ~u64{0});
    if (status == EMM_SUCCESS) status = of_spans;
    if (W(trim_empties_what_waits_in_deferral) && level() > 0) {
      std::lock_guard lock(m);
      waiting.clear();
    }
    bury();
    return no(status, "the device refused");
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (W(child_info_waits_for_growth)) std::lock_guard lock(growing);
    if (in_child()) return fail_in_child();
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (W(info_adds_live_in_deferral) && level() > 0) info->free += live;
    return no(status, "the device says nothing");
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    Record found;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records)
        if (one.kind == Kind::device && pointer >= one.address &&
            pointer - one.address < one.size && size <= one.size - (pointer - one.address))
          found = one;
    }
    if (found.address == 0) return no(EMM_INVALID_VALUE, "no memory of this pool");
    if (found.span != 0) return no(EMM_NOT_SUPPORTED, "mapped memory has no handle");
    const emm_status status = d->ipc_get_mem_handle(d->user, found.address, handle->bytes);
    if (status != EMM_SUCCESS) return no(status, "no handle");
    handle->offset = pointer - found.address;
    if (W(ipc_offset_is_lost_where_shelf_served) && found.room > large_room(found.size))
      handle->offset = 0;
    identify(handle);
    return status;
  }

  void begin_deferral() {
    if (in_child()) return;
    std::unique_lock lock(m);
    ++deferrals;
    deferral_thread = thread_number;
    rested.wait(lock, [&] { return !is_janitor_busy; });
  }
  void end_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (W(nested_end_by_other_thread_is_ignored) && deferrals > 1 &&
        deferral_thread != thread_number)
      return;
    if (deferrals > 0) --deferrals;
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 biggest = 0, bytes = 0;
    for (const auto& [room, blocks] : of_all)
      if (!blocks.empty()) biggest = std::max(biggest, room);
    for (const auto& [room, blocks] : of_threads[thread_number])
      if (!blocks.empty()) biggest = std::max(biggest, room);
    for (const Idle& one : shelf) biggest = std::max(biggest, one.room);
    biggest = std::min(biggest, kLargestBlock);
    for (const Record& one : waiting) bytes += one.size;
    set(answer, &emm_state::live_bytes,
        W(live_counts_kept_managed_in_deferral) && deferrals > 0 ? live + managed_kept : live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes, biggest);
    set(answer, &emm_state::pending_count, u64{waiting.size()});
    set(answer, &emm_state::pending_bytes, bytes);
  }
  std::size_t report(char* buffer, std::size_t size) {
    if (in_child()) return write("a forked child\n", buffer, size);
    std::lock_guard lock(m);
    return write("spans: " + std::to_string(spans.size()) + "\n", buffer, size);
  }
  std::size_t statistics(emm_statistic* statistics, std::size_t count) {
    if (in_child()) return 0;
    std::lock_guard lock(m);
    u64 blocks = 0;
    for (const auto& [token, one] : records)
      blocks += counts(one) || (W(count_has_regions_in_nested) && deferrals > 1 &&
                                one.kind == Kind::region)
                    ? 1
                    : 0;
    const emm_statistic all[] = {{"allocated_bytes.all.current", live},
                                 {"allocated_bytes.all.peak", peak},
                                 {"allocated_bytes.all.allocated", live + ended},
                                 {"allocated_bytes.all.freed", ended},
                                 {"reserved_bytes.all.current", reserved},
                                 {"reserved_bytes.all.peak", most_reserved},
                                 {"allocation.all.current", blocks},
                                 {"ticks", ticks}};
    constexpr std::size_t kCount = sizeof all / sizeof *all;
    for (std::size_t i = 0; i < kCount && i < count; ++i) statistics[i] = all[i];
    return kCount;
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "fifteenth", "Spans with blocks that threads keep, and a thread that gives back what is old");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
