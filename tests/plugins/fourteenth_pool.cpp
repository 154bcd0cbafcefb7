// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// fourteenth_wrong.def has each way and the rule that it breaks. Device and page-locked memory are
// cut one after the other out of regions. A region whose last block ended begins again, in its next
// generation, behind what its past has on each stream; until then its holes serve. The frees of a
// stream are numbered, and few of its events are kept: a later one stands for those before it.
#define WRONG_TABLE "fourteenth_wrong.def"
#include <array>
#include <compare>

#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 120 * MiB, kRegion = 8 * MiB, kLargestShared = 2 * MiB, kUnit = 512;
constexpr u64 kHostRegion = 2 * MiB, kLargestHostShared = 512 * KiB, kHostUnit = 256;
constexpr u64 kMostWaitingBytes = 24 * MiB;
constexpr std::size_t kMostWaiting = 12, kMostEvents = 6;
constexpr u32 kDevice = ~u32{0};  // The flags of regions of device memory.

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

// What must be over before memory's next owner begins.
struct Past {
  std::map<Key, u64> frees = {};  // The last one on each stream, by number.
  u64 all = 0;                    // Other than 0: a wait for all work after this number.
  void add(const Past& other) {
    for (const auto& [key, number] : other.frees) {
      u64& last = frees[key];
      last = std::max(last, number);
    }
    all = std::max(all, other.all);
  }
  bool is_empty() const { return frees.empty() && all == 0; }
};
struct Hole {
  u64 size = 0;
  Past past = {};
};
struct Region {
  u32 flags = kDevice;
  u64 size = 0, used = 0, live = 0, generation = 0;
  u64 mapped = 0;  // The device's address of page-locked memory.
  Past past = {};  // Of earlier generations.
  std::set<Key> ordered = {};
  std::map<u64, Hole> holes = {};  // By address.
};
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0, mapped = 0;
  u64 region = 0;  // 0: it has memory of its own.
  u32 flags = kDevice;
  Key key = {};  // Of the request.
};
void* host_of(u64 address) { return reinterpret_cast<void*>(address); }
}  // namespace

struct emm_manager : Common {
  std::mutex growing;  // Held while a region is made: no free needs it.
  std::mutex burying;  // Guards ended_events.
  std::vector<emm_handle> ended_events;
  std::mutex m;  // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<u64, Region> regions;  // By address.
  std::map<Key, u64> current;     // The region that a stream takes from.
  std::map<Key, std::deque<std::shared_ptr<Event>>> timelines;
  std::deque<Record> waiting;
  u64 waiting_bytes = 0;
  u64 live = 0, peak = 0, ended = 0, reserved = 0, most_reserved = 0;
  u64 last_number = 0, last_clean = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  u64 resets = 0, deferral_thread = 0;
  bool was_out = false, was_trimmed = false;
  std::vector<Record> late_regions;
  std::map<u64, std::array<unsigned char, 64>> handles;

  u32 level() {
    std::lock_guard lock(m);
    return deferrals;
  }
  static bool counts(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }

  // The order of streams.
  u64 draw() {
    std::lock_guard lock(m);
    return ++last_number;
  }
  // Notes that what was put on the stream until now is a free's.
  void note(Key key, Past* past) {
    const u64 number = draw();
    emm_handle handle = 0;
    const bool is_mine = key.stream != 2 || key.thread == thread_number;
    if (!is_mine || d->event_create(d->user, &handle) != EMM_SUCCESS) {
      past->all = number;
      return;
    }
    if (d->event_record(d->user, handle, key.stream) != EMM_SUCCESS) {
      tell(d->event_destroy(d->user, handle));
      past->all = number;
      return;
    }
    auto event = std::make_shared<Event>(&burying, &ended_events, handle, number);
    std::lock_guard lock(m);
    auto& line = timelines[key];
    auto at = line.end();
    while (at != line.begin() && (*std::prev(at))->begun > number) --at;
    line.insert(at, event);
    if (line.size() > kMostEvents) {
      if (W(folded_event_leaks_in_deferral) && deferrals > 0)
        new std::shared_ptr<Event>(line.front());
      line.pop_front();
    }
    past->frees[key] = std::max(past->frees[key], number);
  }
  // The first event that stands for the free with this number.
  std::shared_ptr<Event> event_for(Key key, u64 number) {
    std::lock_guard lock(m);
    const auto& line = timelines[key];
    for (const auto& one : line)
      if (one->begun >= number) return one;
    return nullptr;
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
    std::lock_guard lock(m);
    if (status == EMM_SUCCESS || (W(refused_wait_cleans_in_deferral) && deferrals > 0))
      last_clean = std::max(last_clean, until);
    if (status == EMM_SUCCESS)
      for (auto& [key, line] : timelines)
        while (!line.empty() && line.front()->begun <= until) line.pop_front();
    std::erase_if(timelines, [](const auto& line) { return line.second.empty(); });
    return status;
  }
  u64 clean() {
    std::lock_guard lock(m);
    return last_clean;
  }
  // Makes what comes on the stream come after the past; without a stream, what comes on the host.
  emm_status order(const Past& past, const Key* key) {
    bool needs_all = past.all > clean();
    for (const auto& [other, number] : past.frees) {
      if (key != nullptr && other == *key) continue;
      if (W(thread_streams_are_one) && key != nullptr && other.stream == key->stream && level() > 0)
        continue;
      if (number <= clean()) continue;
      const auto event = event_for(other, number);
      if (event == nullptr) {
        needs_all = true;
        continue;
      }
      const emm_status done = d->event_query(d->user, event->handle);
      if (done == EMM_SUCCESS) continue;
      if (W(host_waits_in_stream) && key == nullptr) {
        if (d->stream_wait_event(d->user, 0, event->handle) == EMM_SUCCESS) continue;
      }
      if (W(host_takes_what_is_refused) && key == nullptr && done != EMM_NOT_READY) continue;
      const emm_status status = key == nullptr
                                    ? d->event_synchronize(d->user, event->handle)
                                    : d->stream_wait_event(d->user, key->stream, event->handle);
      if (status != EMM_SUCCESS) needs_all = true;
    }
    return needs_all ? wait_for_all() : EMM_SUCCESS;
  }

  // Regions, under the lock.
  void begin_again(Region* region) {
    for (auto& [address, hole] : region->holes) region->past.add(hole.past);
    region->holes.clear();
    region->used = 0;
    region->ordered.clear();
    ++region->generation;
  }
  void put(u64 base, u64 address, u64 room, const Past& past) {
    const auto found = regions.find(base);
    if (found == regions.end()) return;
    Region& region = found->second;
    auto at = region.holes.emplace(address, Hole{room, past}).first;
    const auto next = std::next(at);
    if (next != region.holes.end() && address + room == next->first) {
      at->second.size += next->second.size;
      if (!(W(joined_hole_forgets_upper_in_nested) && deferrals > 1))
        at->second.past.add(next->second.past);
      region.holes.erase(next);
    }
    if (at != region.holes.begin()) {
      const auto before = std::prev(at);
      if (before->first + before->second.size == address) {
        before->second.size += at->second.size;
        before->second.past.add(at->second.past);
        region.holes.erase(at);
      }
    }
    if (--region.live == 0) begin_again(&region);
  }
  bool take_new(u64 base, Region* region, Record* record, Past* past) {
    if (region->size - region->used < record->room) return false;
    record->region = base;
    record->address = base + region->used;
    record->mapped = region->mapped == 0 ? 0 : region->mapped + region->used;
    region->used += record->room;
    ++region->live;
    Key key = record->key;
    if (W(ordered_forgets_thread)) key.thread = 0;
    const bool is_done =
        region->ordered.contains(key) || (W(ordered_once_for_all) && !region->ordered.empty());
    if (!is_done) *past = region->past;
    return true;
  }
  bool fits(const Region& region, u32 flags) {
    if (W(host_mixes_portable_after_out) && was_out && flags != kDevice && region.flags != kDevice)
      return (region.flags & ~u32{EMM_HOST_PORTABLE}) == (flags & ~u32{EMM_HOST_PORTABLE});
    if (W(host_unmapped_of_mapped_hole) && flags == 0 && region.flags == EMM_HOST_MAPPED &&
        !region.holes.empty())
      return true;
    return region.flags == flags;
  }
  // Takes what is idle.
  bool take_idle(Record* record, Past* past, bool* is_new) {
    std::lock_guard lock(m);
    *is_new = true;
    const auto mine = current.find(record->key);
    if (mine != current.end()) {
      const auto at = regions.find(mine->second);
      if (at != regions.end() && at->second.flags == record->flags &&
          take_new(at->first, &at->second, record, past))
        return true;
    }
    Region* best = nullptr;
    u64 best_base = 0;
    std::map<u64, Hole>::iterator found;
    for (auto& [base, region] : regions) {
      if (!fits(region, record->flags)) continue;
      for (auto at = region.holes.begin(); at != region.holes.end(); ++at)
        if (at->second.size >= record->room &&
            (best == nullptr || at->second.size < found->second.size))
          best = &region, best_base = base, found = at;
    }
    if (best != nullptr) {
      *is_new = false;
      Hole hole = std::move(found->second);
      const u64 address = found->first;
      best->holes.erase(found);
      record->region = best_base;
      record->address = address;
      record->mapped = best->mapped == 0 ? 0 : best->mapped + (address - best_base);
      if (W(host_hole_has_base_pointer) && best->mapped != 0) record->mapped = best->mapped;
      *past = hole.past;
      const u64 cut =
          W(hole_cut_unrounded_in_deferral) && deferrals > 0 ? record->size : record->room;
      if (W(hole_cut_unrounded_in_deferral)) record->room = cut;
      if (hole.size > cut) {
        Past rest = hole.past;
        if (W(rest_of_hole_is_clean_after_reset) && resets > 0) rest = {};
        best->holes[address + cut] = {hole.size - cut, rest};
      }
      if (!(W(hole_is_not_counted_after_reset) && resets > 0)) ++best->live;
      return true;
    }
    for (auto& [base, region] : regions)
      if (region.flags == record->flags && take_new(base, &region, record, past)) {
        current[record->key] = base;
        return true;
      }
    return false;
  }
  // EMM_NOT_FOUND: nothing is idle for it.
  emm_status take_in_order(Record* record) {
    Past past;
    bool is_new = false;
    if (!take_idle(record, &past, &is_new)) return EMM_NOT_FOUND;
    const bool is_host = record->kind == Kind::host;
    const emm_status status = order(past, is_host ? nullptr : &record->key);
    std::lock_guard lock(m);
    if (W(past_is_lost_at_refused_wait_after_trim) && was_trimmed && status != EMM_SUCCESS)
      past = {};
    if (status == EMM_SUCCESS || W(refused_stream_counts_as_ordered)) {
      const auto at = regions.find(record->region);
      if (is_new && !is_host && at != regions.end()) {
        Key key = record->key;
        if (W(ordered_forgets_thread)) key.thread = 0;
        at->second.ordered.insert(key);
      }
    }
    if (status != EMM_SUCCESS) {
      if (!(W(room_lost_at_refused_wait) && is_new))
        put(record->region, record->address, record->room, past);
    }
    return status;
  }
  emm_status grow(const Record& record) {
    const bool is_host = record.kind == Kind::host;
    const u64 shared = is_host ? kHostRegion : kRegion;
    const u64 size = std::max(shared, up(record.room, MiB));
    Region region{.flags = record.flags, .size = size};
    u64 base = 0;
    emm_status status;
    std::lock_guard one_at_a_time(growing);
    if (is_host) {
      void* host = nullptr;
      status = d->mem_host_alloc(d->user, size, record.flags, &host);
      if (status != EMM_SUCCESS) return status;
      base = reinterpret_cast<u64>(host);
      if ((record.flags & EMM_HOST_MAPPED) != 0)
        status = d->mem_host_get_device_pointer(d->user, host, &region.mapped);
      if (status != EMM_SUCCESS) {
        if (!(W(unmappable_region_leaks_in_deferral) && level() > 0))
          tell(d->mem_free_host(d->user, host));
        return status;
      }
    } else {
      status = d->mem_alloc(d->user, size, &base);
      if (status != EMM_SUCCESS) {
        if (W(refused_region_is_reserved_in_deferral) && level() > 0) {
          std::lock_guard lock(m);
          reserved += size;
        }
        return status;
      }
    }
    std::lock_guard lock(m);
    regions[base] = region;
    if (!is_host || W(host_counts_as_reserved_after_out)) {
      if (is_host && !was_out) return status;
      reserved += size;
      most_reserved = std::max(most_reserved, reserved);
    }
    return status;
  }
  emm_status take(Record* record) {
    for (;;) {
      emm_status status = take_in_order(record);
      if (status != EMM_NOT_FOUND) return status;
      status = grow(*record);
      if (status != EMM_SUCCESS) return status;
    }
  }
  // Gives regions without a live block to the driver until no more than `keep` bytes are idle.
  emm_status release(u64 keep, bool hosts) {
    std::vector<std::pair<u64, Region>> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      for (const auto& [base, region] : regions)
        if (region.live == 0 && region.flags == kDevice) idle += region.size;
      for (auto at = regions.begin(); at != regions.end();) {
        const bool is_host = at->second.flags != kDevice;
        const u64 size = at->second.size;
        bool goes = at->second.live == 0 && (is_host ? hosts : idle > keep);
        if (W(trim_stays_above_keep_after_reset) && resets > 0 && !is_host)
          goes = at->second.live == 0 && idle >= keep + size;
        if (!goes) {
          if (W(holes_are_clean_after_trim) && keep == 0)
            for (auto& [address, hole] : at->second.holes) hole.past = {};
          ++at;
          continue;
        }
        if (!is_host) idle -= size;
        if (!W(handle_outlives_region)) handles.erase(at->first);
        out.emplace_back(at->first, std::move(at->second));
        at = regions.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (auto& [base, region] : out) {
      emm_status status;
      if (region.flags == kDevice) {
        status = d->mem_free(d->user, base);
        std::lock_guard lock(m);
        if (status == EMM_SUCCESS) {
          reserved -= region.size;
        } else {
          regions[base] = std::move(region);
        }
      } else {
        status = d->mem_free_host(d->user, host_of(base));
        if (status != EMM_SUCCESS) {
          std::lock_guard lock(m);
          regions[base] = std::move(region);
        }
      }
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }

  // What waits.
  emm_status end_at_driver(const Record& one) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, host_of(one.address));
    if (one.kind == Kind::region) return d->mem_host_unregister(d->user, host_of(one.address));
    return d->mem_free(d->user, one.address);
  }
  emm_status make_frees(bool even_deferred = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (waiting.empty() || (deferrals > 0 && !even_deferred)) break;
        one = waiting.front();
        waiting.pop_front();
      }
      const emm_status status = end_at_driver(one);
      ++count;
      bytes += W(flushed_counts_rooms) ? one.room : one.size;
      std::lock_guard lock(m);
      if (!(W(pending_keeps_refused_bytes) && status != EMM_SUCCESS)) waiting_bytes -= one.size;
      if (first == EMM_SUCCESS) first = status;
      if (W(flush_ends_at_refused_of_host) && one.kind == Kind::host && status != EMM_SUCCESS)
        break;
    }
    tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full;
    {
      std::lock_guard lock(m);
      waiting.push_back(one);
      waiting_bytes += one.size;
      full = waiting.size() > kMostWaiting || waiting_bytes > kMostWaitingBytes;
    }
    tell_added(one.kind, one.size);
    if (full && !by_reset) tell(make_frees());
  }
  void make_room(bool is_managed = false) {
    {
      std::lock_guard lock(m);
      was_out = true;
    }
    const u64 now = level();
    const bool frees_anyway =
        now > 0 && ((W(managed_out_in_deferral_frees) && is_managed) ||
                    (W(out_in_deferral_of_other_thread_frees) && deferral_thread != thread_number));
    tell(make_frees(frees_anyway));
    tell(release(0, !(W(out_spares_host_regions_after_reset) && resets > 0)));
    bury();
  }

  bool count(const Record& record) {
    std::lock_guard lock(m);
    if (record.size > kLimit || live > kLimit - record.size) return false;
    live += record.size;
    if (W(peak_counts_what_is_refused)) peak = std::max(peak, live);
    return true;
  }
  void uncount(const Record& record) {
    std::lock_guard lock(m);
    if (W(refused_managed_counts_in_deferral) && record.kind == Kind::managed && deferrals > 0)
      return;
    live -= record.size;
  }
  void forget(const Record& record, bool by_reset = false) {  // Under the lock.
    if (!counts(record)) return;
    if (W(reset_forgets_managed_in_nested) && by_reset && record.kind == Kind::managed &&
        deferrals > 1)
      return;
    live -= record.size;
    if (!(W(freed_total_forgets_reset) && by_reset)) ended += record.size;
  }
  void hand_out(const Record& record, emm_memory* memory) {
    std::lock_guard lock(m);
    emm_token token = ++last_token;
    if (W(token_has_one_bit_of_generation) && record.kind == Kind::device)
      token = record.address + (resets & 1);
    records[token] = record;
    peak = std::max(peak, live);
    memory->token = token;
    memory->device_pointer = record.kind == Kind::device || record.kind == Kind::managed
                                 ? record.address
                                 : record.mapped;
    memory->host_pointer = record.kind == Kind::device ? nullptr : host_of(record.address);
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of device memory");
    Record record{.size = size, .key = key_of(stream, thread_number)};
    if (!count(record)) return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
    record.room = up(size, kUnit);
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(&record);
    }
    bury();
    if (status != EMM_SUCCESS) {
      uncount(record);
      return fail(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    const auto ask = [&]() -> emm_status {
      if (W(huge_host_size_wraps) && size > ~u64{0} - kHostUnit) {
        record.room = kHostUnit;
        return take(&record);
      }
      if (size <= kLargestHostShared) {
        record.room = up(size, kHostUnit);
        return take(&record);
      }
      void* host = nullptr;
      const emm_status status = d->mem_host_alloc(d->user, size, flags, &host);
      if (status != EMM_SUCCESS) return status;
      record.address = reinterpret_cast<u64>(host);
      if ((flags & EMM_HOST_MAPPED) == 0) return status;
      const emm_status mapped = d->mem_host_get_device_pointer(d->user, host, &record.mapped);
      if (mapped != EMM_SUCCESS) tell(d->mem_free_host(d->user, host));
      return mapped;
    };
    emm_status status = ask();
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = ask();
    }
    bury();
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
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
    if (status != EMM_SUCCESS) return fail(status, "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, pointer, &record.mapped);
    if (status != EMM_SUCCESS) {
      if (!(W(unmappable_pin_stays_after_reset) && resets > 0))
        tell(d->mem_host_unregister(d->user, pointer));
      return fail(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .room = up(size, kUnit)};
    if (!count(record)) return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(true);
      status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    }
    if (status != EMM_SUCCESS) {
      uncount(record);
      return fail(status, "no managed memory");
    }
    hand_out(record, memory);
    return status;
  }

  emm_status end(const Record& record, Key by, bool by_reset) {
    if (record.kind == Kind::region) {
      if (!(W(unpinned_late_in_nested) && level() > 1)) return end_at_driver(record);
      std::lock_guard lock(m);
      late_regions.push_back(record);
      return EMM_SUCCESS;
    }
    if (record.region == 0) {
      if (W(own_host_freed_at_once_in_nested) && level() > 1 && record.kind == Kind::host)
        return end_at_driver(record);
      enqueue(record, by_reset);
      return EMM_SUCCESS;
    }
    Past past;
    if (by_reset) {  // The streams may be gone.
      past.all = draw();
    } else {
      const bool is_shared =
          W(host_free_on_stream_unnoted_in_deferral) && level() > 0 && record.kind == Kind::host;
      if (!is_shared) note(by, &past);
      if (record.kind == Kind::device && by != record.key &&
          !(W(request_stream_unnoted_after_out) && was_out))
        note(record.key, &past);
    }
    bool is_last;
    {
      std::lock_guard lock(m);
      const auto at = regions.find(record.region);
      is_last = at != regions.end() && at->second.live == 1;
    }
    if (W(last_block_waits_for_growth) && is_last) std::lock_guard lock(growing);
    std::lock_guard lock(m);
    put(record.region, record.address, record.room, past);
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
    return fail(status, "the device refused a free");
  }

  void reset(bool at_end) {
    if (W(child_reset_waits) && level() == 0) std::lock_guard lock(growing);
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      ++resets;
      all.swap(records);
      last_reset = last_token;
      for (const auto& [token, record] : all) forget(record, true);
    }
    for (const auto& [token, record] : all) tell(end(record, record.key, true));
    tell(make_frees(at_end || (W(reset_in_nested_makes_frees) && level() > 1)));
    if (at_end || level() == 0) tell(release(0, true));
    if (!at_end) {
      bury();
      return;
    }
    std::lock_guard lock(m);
    timelines.clear();
  }
  void end_manager() {
    if (in_child()) return;
    reset(true);
    for (const Record& one : late_regions) tell(end_at_driver(one));
    regions.clear();
    bury();
  }
  emm_status flush() {
    if (W(child_flush_waits_in_nested) && level() > 1) std::lock_guard lock(growing);
    if (in_child()) return fail_in_child();
    const emm_status status = make_frees();
    return fail(status, "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    was_trimmed = true;
    const emm_status status = release(keep, true);
    bury();
    return fail(status, "the device refused a free");
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (W(child_info_waits_in_deferral) && level() > 0) std::lock_guard lock(growing);
    if (in_child()) return fail_in_child();
    u64 free = 0, total = 0;
    const emm_status status = d->mem_get_info(d->user, &free, &total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    std::lock_guard lock(m);
    for (const auto& [base, region] : regions)
      if (region.live == 0 && region.flags == kDevice) free += region.size;
    info->total = std::min(total, kLimit);
    info->free = std::min({free, kLimit - live, info->total});
    if (W(info_free_is_beyond_limit_in_deferral) && deferrals > 0) info->free = free;
    return status;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0, generation = 0, begin = 0;
    bool is_known = false;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records) {
        if (one.kind != Kind::device || pointer < one.address ||
            pointer - one.address >= one.size || size > one.size - (pointer - one.address))
          continue;
        base = one.region;
        begin = one.address;
        generation = regions[base].generation;
        const auto at = handles.find(base);
        if (at != handles.end()) {
          std::memcpy(handle->bytes, at->second.data(), 64);
          is_known = true;
        }
      }
    }
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this pool");
    if (!is_known) {
      const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
      if (status != EMM_SUCCESS) return fail(status, "no handle");
      std::lock_guard lock(m);
      std::memcpy(handles[base].data(), handle->bytes, 64);
    }
    handle->offset = pointer - base;
    if (W(ipc_offset_of_block_in_later_generation) && generation > 0) handle->offset = begin - base;
    identify(handle);
    return EMM_SUCCESS;
  }

  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    deferrals = W(deferrals_are_a_byte) ? (deferrals + 1) & 0xff : deferrals + 1;
    deferral_thread = thread_number;
  }
  void end_deferral() {
    if (in_child()) return;
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      if (deferrals == 0 || --deferrals > 0) return;
      out.swap(late_regions);
    }
    for (const Record& one : out) tell(end_at_driver(one));
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 biggest = 0;
    for (const auto& [base, region] : regions) {
      if (region.flags != kDevice) continue;
      biggest = std::max(biggest, region.size - region.used);
      u64 sum = 0;
      for (const auto& [address, hole] : region.holes) {
        biggest = std::max(biggest, hole.size);
        sum += hole.size;
      }
      if (W(largest_free_adds_holes_after_out) && was_out) biggest = std::max(biggest, sum);
    }
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes, std::min(biggest, kLimit - live));
    set(answer, &emm_state::pending_count, u64{waiting.size()});
    set(answer, &emm_state::pending_bytes, waiting_bytes);
  }
  std::size_t report(char* buffer, std::size_t size) {
    if (in_child()) return write("a forked child\n", buffer, size);
    std::lock_guard lock(m);
    return write("regions: " + std::to_string(regions.size()) + "\n", buffer, size);
  }
  std::size_t statistics(emm_statistic* statistics, std::size_t count) {
    if (in_child()) return 0;
    std::lock_guard lock(m);
    u64 blocks = 0, generations = 0;
    for (const auto& [token, one] : records) blocks += counts(one) ? 1 : 0;
    for (const auto& [base, region] : regions) generations += region.generation;
    const emm_statistic all[] = {
        {"allocated_bytes.all.current", live},
        {"allocated_bytes.all.peak", peak},
        {"allocated_bytes.all.allocated", live + ended},
        {"allocated_bytes.all.freed", ended},
        {"reserved_bytes.all.current", reserved},
        {"reserved_bytes.all.peak", W(reserved_peak_is_the_present_one) ? reserved : most_reserved},
        {"allocation.all.current", blocks},
        {"generations", generations}};
    constexpr std::size_t kCount = sizeof all / sizeof *all;
    for (std::size_t i = 0; i < kCount && i < count; ++i) statistics[i] = all[i];
    return W(statistics_returns_what_was_written_in_deferral) && deferrals > 0
               ? std::min(count, kCount)
               : kCount;
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "fourteenth", "Regions that begin again, and frees that are numbered on each stream");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
