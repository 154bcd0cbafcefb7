// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// eleventh_wrong.def has each way and the rule that it breaks. One range of addresses is reserved,
// and physical memory mapped anywhere in it, 4 MiB at a time. No stream waits for another: a block
// is free when its events have passed, which each request asks.
#define WRONG_TABLE "eleventh_wrong.def"
#include <iterator>

#include "wrong_by_option.hpp"

namespace {
constexpr u64 kChunk = 4 * MiB, kUnit = 512, kManagedKept = 16 * MiB;
constexpr std::size_t kMostWaiting = 14, kMostAsked = 24;

struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0;
  void* host = nullptr;
  u32 flags = 0;
  emm_stream stream = 0;
  u64 thread = 0;
};
// What was freed, until the work on it is done.
struct Ended {
  Record record;
  std::vector<emm_handle> events = {};
  bool needs_all = false;  // Only a wait for all work helps.
  bool is_done = false;
};
}  // namespace

struct emm_manager : Common {
  std::mutex mapping;  // Held while physical memory is made and mapped: no free needs it.
  std::mutex
      polling;  // Held while the device is asked what is done: neither free() nor flush() needs it.
  std::mutex m;  // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  u64 range = 0, range_size = 0;
  struct Chunk {
    emm_handle physical;
    u64 size;
  };
  std::map<u64, Chunk> chunks;              // That are mapped, by their addresses.
  std::map<u64, u64> free_parts, unmapped;  // Address, size.
  std::deque<Ended> ended;
  std::vector<Record> managed_idle;
  u64 managed_kept = 0;
  std::deque<Record> waiting;  // Frees of page-locked and managed memory.
  u64 live = 0, reserved = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  u64 deferral_thread = 0;
  bool was_out = false, was_refused = false, was_reset = false;
  std::vector<Record> regions;

  u32 level() {
    std::lock_guard lock(m);
    return deferrals;
  }
  bool is_deferred() { return level() > 0; }

  // Ranges.
  static void insert(std::map<u64, u64>* parts, u64 address, u64 size) {
    auto next = parts->lower_bound(address);
    if (next != parts->begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == address) {
        address = before->first;
        size += before->second;
        parts->erase(before);
      }
    }
    if (next != parts->end() && address + size == next->first) {
      size += next->second;
      parts->erase(next);
    }
    (*parts)[address] = size;
  }
  static u64 cut(std::map<u64, u64>* parts, u64 size) {  // 0: there is none.
    for (const auto& [address, room] : *parts) {
      if (room < size) continue;
      const u64 found = address, rest = room - size;
      parts->erase(found);
      if (rest > 0) (*parts)[found + size] = rest;
      return found;
    }
    return 0;
  }

  // What ended and is done becomes free.
  void poll() {
    std::lock_guard one_at_a_time(polling);
    std::vector<Ended> some;
    u32 nested;
    {
      std::lock_guard lock(m);
      while (!ended.empty() && some.size() < kMostAsked) {
        some.push_back(std::move(ended.front()));
        ended.pop_front();
      }
      nested = deferrals;
    }
    for (Ended& one : some) {
      if (one.needs_all) continue;
      one.is_done = true;
      std::size_t count = 0;
      for (const emm_handle event : one.events) {
        const emm_status status = d->event_query(d->user, event);
        if (status == EMM_SUCCESS) {
          ++count;
          continue;
        }
        if (W(query_error_is_done) && status != EMM_NOT_READY) continue;
        if (W(polled_in_nested_is_done) && nested > 1) continue;
        if (W(first_event_is_enough_in_deferral) && nested > 0 && count > 0) continue;
        if (status != EMM_NOT_READY) one.needs_all = true;
        one.is_done = false;
        break;
      }
    }
    take_back(std::move(some));
  }
  void take_back(std::vector<Ended> some) {
    std::vector<emm_handle> passed;
    std::vector<Record> over;
    {
      std::lock_guard lock(m);
      for (Ended& one : some) {
        if (!one.is_done) {
          ended.push_back(std::move(one));
          continue;
        }
        passed.insert(passed.end(), one.events.begin(), one.events.end());
        if (one.record.kind == Kind::device) {
          insert(&free_parts, one.record.address, one.record.room);
        } else if (managed_kept + one.record.room <= kManagedKept) {
          managed_kept += one.record.room;
          managed_idle.push_back(one.record);
        } else {
          over.push_back(one.record);
        }
      }
    }
    for (const emm_handle event : passed) tell(d->event_destroy(d->user, event));
    for (const Record& one : over) enqueue(one, true);
  }
  // Waits for all work. Another status: nothing became free.
  emm_status settle() {
    std::lock_guard one_at_a_time(polling);
    std::vector<Ended> some;
    {
      std::lock_guard lock(m);
      some.assign(std::move_iterator(ended.begin()), std::move_iterator(ended.end()));
      ended.clear();
    }
    if (some.empty()) return EMM_SUCCESS;
    const emm_status status = d->ctx_synchronize(d->user);
    for (Ended& one : some) one.is_done = one.is_done || status == EMM_SUCCESS;
    take_back(std::move(some));
    return status;
  }

  // What waits.
  emm_status end_at_driver(const Record& one) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, one.host);
    if (one.kind == Kind::region) return d->mem_host_unregister(d->user, one.host);
    return d->mem_free(d->user, one.address);
  }
  emm_status make_frees(bool even_deferred = false, bool own_only = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (deferrals > 0 && !even_deferred) break;
        const auto at = std::find_if(waiting.begin(), waiting.end(), [&](const Record& record) {
          return !own_only || record.thread == thread_number;
        });
        if (at == waiting.end()) break;
        one = *at;
        waiting.erase(at);
      }
      const emm_status status = end_at_driver(one);
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
    }
    tell_flushed(count, bytes);
    return first;
  }
  void enqueue(Record one, bool only_add) {
    bool full;
    {
      std::lock_guard lock(m);
      one.thread = thread_number;
      waiting.push_back(one);
      full = waiting.size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (full && !only_add) tell(make_frees());
  }

  // Physical memory.
  emm_status reserve_range() {  // Under `mapping`.
    if (range != 0) return EMM_SUCCESS;
    u64 available = 0, total = 0;
    emm_status status = d->mem_get_info(d->user, &available, &total);
    if (status != EMM_SUCCESS) return status;
    const u64 size = up(total, kChunk) * 2;
    u64 base = 0;
    status = d->mem_address_reserve(d->user, size, 0, 0, &base);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    range = base;
    range_size = size;
    unmapped[range] = range_size;
    return EMM_SUCCESS;
  }
  emm_status map(u64 size, u64* answer) {
    std::lock_guard one_at_a_time(mapping);
    emm_status status = reserve_range();
    if (status != EMM_SUCCESS) return status;
    u64 granularity = 0;
    status = d->mem_get_allocation_granularity(d->user, &granularity);
    if (status != EMM_SUCCESS) return status;
    const u64 room = up(up(size, kChunk), granularity);
    u64 at;
    {
      std::lock_guard lock(m);
      at = cut(&unmapped, room);
    }
    if (at == 0) return EMM_OUT_OF_MEMORY;
    emm_handle physical = 0;
    status = d->mem_create(d->user, room, &physical);
    bool is_mapped = false;
    if (status == EMM_SUCCESS) {
      status = d->mem_map(d->user, at, room, 0, physical);
      is_mapped = status == EMM_SUCCESS;
      if (is_mapped) status = d->mem_set_access(d->user, at, room, 3);
      if (status != EMM_SUCCESS) {
        if (is_mapped) tell(d->mem_unmap(d->user, at, room));
        if (!(W(refused_map_leaks_in_deferral) && !is_mapped && is_deferred()))
          tell(d->mem_release(d->user, physical));
      }
    }
    std::lock_guard lock(m);
    if (W(refused_access_counts) && status != EMM_SUCCESS && is_mapped) reserved += room;
    if (status != EMM_SUCCESS) {
      insert(&unmapped, at, room);
      return status;
    }
    chunks[at] = {physical, room};
    reserved += room;
    if (room > size) insert(&free_parts, at + size, room - size);
    *answer = at;
    return status;
  }
  // Unmaps chunks that are free throughout, until `keep` bytes of them are left.
  emm_status unmap(u64 keep, bool even_deferred = false) {
    poll();
    std::lock_guard one_at_a_time(mapping);
    std::vector<std::pair<u64, Chunk>> out;
    {
      std::lock_guard lock(m);
      if (deferrals > 0 && !even_deferred) return EMM_SUCCESS;
      if (W(trim_keeps_one_more_after_out) && was_out && keep > 0) keep += kChunk;
      u64 held = 0;
      for (const auto& [address, size] : free_parts) held += size;
      for (auto at = chunks.begin(); at != chunks.end() && held > keep;) {
        auto part = free_parts.upper_bound(at->first);
        const bool is_free = part != free_parts.begin() &&
                             (--part, part->first + part->second >= at->first + at->second.size);
        if (!is_free) {
          ++at;
          continue;
        }
        if (!(W(hole_stays_free_after_reset) && was_reset && even_deferred == false &&
              part->second > at->second.size)) {
          const u64 begin = part->first, end = begin + part->second;
          free_parts.erase(part);
          if (begin < at->first) free_parts[begin] = at->first - begin;
          if (at->first + at->second.size < end)
            free_parts[at->first + at->second.size] = end - at->first - at->second.size;
        }
        held -= at->second.size;
        out.emplace_back(at->first, at->second);
        at = chunks.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const auto& [address, chunk] : out) {
      emm_status status = d->mem_unmap(d->user, address, chunk.size);
      const bool is_unmapped = status == EMM_SUCCESS;
      if (is_unmapped && !(W(handle_leaks_after_out) && was_out))
        status = d->mem_release(d->user, chunk.physical);
      if (first == EMM_SUCCESS) first = status;
      std::lock_guard lock(m);
      if (is_unmapped) {
        reserved -= chunk.size;
        insert(&unmapped, address, chunk.size);
      } else {
        chunks[address] = chunk;
        insert(&free_parts, address, chunk.size);
      }
    }
    return first;
  }
  emm_status release_managed(bool even_deferred = false) {
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      if (deferrals > 0 && !even_deferred) return EMM_SUCCESS;
      out.swap(managed_idle);
      managed_kept = 0;
    }
    emm_status first = EMM_SUCCESS;
    for (const Record& one : out) {
      const emm_status status = end_at_driver(one);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  void make_room(bool host_only_own = false) {
    bool again;
    {
      std::lock_guard lock(m);
      was_out = true;
      again = W(second_out_makes_no_room) && was_refused;
    }
    if (again) return;
    tell(make_frees(false, host_only_own));
    (void)settle();
    tell(unmap(0));
    tell(release_managed());
    tell(make_frees(false, host_only_own));
  }

  void hand_out(Record record, emm_memory* memory) {
    record.thread = thread_number;
    std::lock_guard lock(m);
    was_refused = false;
    const emm_token token = ++last_token;
    records[token] = record;
    if (counts(record)) live += record.size;
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  static bool counts(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }
  emm_status refuse(emm_status status, const char* words) {
    if (status == EMM_OUT_OF_MEMORY) {
      std::lock_guard lock(m);
      was_refused = true;
    }
    return fail(status, words);
  }

  emm_status take(Record* record) {
    {
      std::lock_guard lock(m);
      record->address = cut(&free_parts, record->room);
    }
    return record->address != 0 ? emm_status{EMM_SUCCESS} : map(record->room, &record->address);
  }
  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    if (size > u64{1} << 60) return fail(EMM_OUT_OF_MEMORY, "more than there are addresses");
    Record record{.kind = Kind::device, .size = size, .room = up(size, kUnit), .stream = stream};
    poll();
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(&record);
    }
    if (status != EMM_SUCCESS) return refuse(status, "no device memory");
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (W(child_managed_waits)) std::lock_guard lock(mapping);
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .room = size, .flags = attach};
    poll();
    {
      std::lock_guard lock(m);
      const bool any = W(managed_attach_ignored_in_deferral) && deferrals > 0;
      const auto at = std::find_if(
          managed_idle.begin(), managed_idle.end(),
          [&](const Record& one) { return one.room == size && (one.flags == attach || any); });
      if (at != managed_idle.end()) {
        record = *at;
        record.size = size;
        managed_kept -= record.room;
        managed_idle.erase(at);
      }
    }
    emm_status status = EMM_SUCCESS;
    if (record.address == 0) status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    }
    if (status != EMM_SUCCESS) {
      if (W(live_lost_at_refused_managed)) {
        std::lock_guard lock(m);
        live -= std::min(live, size);
      }
      return refuse(status, "no managed memory");
    }
    record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    emm_status status = d->mem_host_alloc(d->user, size, flags, &record.host);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(W(host_out_spares_others));
      const u32 again = W(host_retry_loses_flags) ? flags & u32{EMM_HOST_MAPPED} : flags;
      status = d->mem_host_alloc(d->user, size, again, &record.host);
    }
    if (status != EMM_SUCCESS) return refuse(status, "no page-locked memory");
    if ((flags & EMM_HOST_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, record.host, &record.address);
    if (status != EMM_SUCCESS) {
      if (!(W(unmappable_host_leaks_after_reset) && was_reset))
        tell(d->mem_free_host(d->user, record.host));
      return fail(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    Record record{.kind = Kind::region, .size = size, .host = pointer, .flags = flags};
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = d->mem_host_register(d->user, pointer, size, flags);
    }
    if (status != EMM_SUCCESS) return refuse(status, "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, pointer, &record.address);
    if (status != EMM_SUCCESS) {
      if (!(W(unmappable_region_stays_in_deferral) && is_deferred()))
        tell(d->mem_host_unregister(d->user, pointer));
      return fail(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }

  emm_status end(const Record& record, emm_stream stream, bool by_reset) {
    const u32 nested = level();
    if (record.kind == Kind::region) {
      if (!(W(portable_region_stays_in_nested) && by_reset && nested > 1 &&
            (record.flags & EMM_PIN_PORTABLE) != 0))
        return end_at_driver(record);
      std::lock_guard lock(m);
      regions.push_back(record);
      return EMM_SUCCESS;
    }
    if (record.kind == Kind::host) {
      enqueue(record, by_reset);
      return EMM_SUCCESS;
    }
    Ended one{.record = record};
    const auto add = [&](emm_stream on) {
      emm_handle event = 0;
      emm_status status = d->event_create(d->user, &event);
      if (status == EMM_SUCCESS) {
        status = d->event_record(d->user, event, on);
        if (status != EMM_SUCCESS) tell(d->event_destroy(d->user, event));
      }
      if (status == EMM_SUCCESS) return one.events.push_back(event);
      if (!(W(eventless_after_out_is_clean) && was_out)) one.needs_all = true;
    };
    const bool clean =
        (W(reset_in_deferral_is_clean) && by_reset && nested > 0) ||
        (W(managed_of_reset_is_clean) && by_reset && nested > 0 && record.kind == Kind::managed);
    if (by_reset && record.kind == Kind::managed && !clean) {
      one.needs_all = true;  // Any stream may use it.
    } else if (!clean) {
      // No other thread can name a thread's own default stream.
      if (record.stream == 2 && record.thread != thread_number &&
          !(W(own_stream_of_other_fenced_here) && nested > 0))
        one.needs_all = true;
      else
        add(record.stream);
      if (stream != record.stream && !(W(second_stream_unfenced_after_reset) && was_reset))
        add(stream);
    }
    std::lock_guard lock(m);
    ended.push_back(std::move(one));
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    if (W(free_in_nested_takes_mapping) && level() > 1) std::lock_guard lock(mapping);
    Record record;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end()) {
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      }
      record = at->second;
      records.erase(at);
      if (counts(record)) live -= std::min(live, record.size);
    }
    return fail(end(record, stream, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      last_reset = last_token;
      was_reset = true;
      all.swap(records);
      for (const auto& [token, record] : all)
        if (counts(record)) live -= std::min(live, record.size);
      if (W(reset_in_deferral_leaks_events) && deferrals > 0)
        for (Ended& one : ended)
          if (!one.events.empty()) {
            one.events.clear();
            one.needs_all = true;
          }
    }
    for (const auto& [token, record] : all) tell(end(record, record.stream, true));
    tell(make_frees(at_end));
    if (!at_end) {
      if (!is_deferred()) (void)settle();
      return;
    }
    end_regions();
    const emm_status settled = settle();
    if (settled != EMM_SUCCESS) {  // The device is gone: nothing runs any more.
      std::vector<Ended> rest;
      {
        std::lock_guard lock(m);
        rest.assign(std::move_iterator(ended.begin()), std::move_iterator(ended.end()));
        ended.clear();
      }
      for (Ended& one : rest) one.is_done = true;
      take_back(std::move(rest));
    }
    tell(unmap(0, true));
    if (W(managed_idle_lost_at_end_in_deferral) && is_deferred()) return;
    tell(release_managed(true));
    tell(make_frees(true));
  }
  void end_regions() {
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      out.swap(regions);
    }
    for (const Record& one : out) tell(end_at_driver(one));
  }
  void end_manager() {
    if (in_child()) return;
    reset(true);
    if (range != 0) tell(d->mem_address_free(d->user, range, range_size));
  }
  emm_status flush() {
    if (in_child()) return fail_in_child();
    const bool anyway = W(flush_by_other_thread_in_deferral) && thread_number != deferral_thread;
    return fail(make_frees(anyway), "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    const emm_status settled = settle();
    if (settled != EMM_SUCCESS) return fail(settled, "the device does not wait");
    const emm_status managed = release_managed();
    const emm_status status = unmap(keep);
    return fail(managed != EMM_SUCCESS ? managed : status, "the device refused a free");
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    std::lock_guard lock(m);
    u64 idle = 0;
    for (const auto& [address, size] : free_parts) idle += size;
    info->free += idle;
    if (W(info_beyond_total_in_deferral) && deferrals > 0 && idle > 0)
      info->free = info->total + idle;
    else
      info->free = std::min(info->free, info->total);
    return status;
  }

  void initialize() {
    if (in_child()) return;
    if (!(W(initialize_after_reset_reserves) && was_reset && range != 0 && chunks.empty())) return;
    std::lock_guard one_at_a_time(mapping);
    range = 0;
    unmapped.clear();
    tell(reserve_range());
  }
  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (++deferrals == 1) deferral_thread = thread_number;
  }
  void end_deferral() {
    if (W(child_end_of_nested_waits) && level() > 1) std::lock_guard lock(mapping);
    if (in_child()) return;
    {
      std::lock_guard lock(m);
      if (W(end_by_other_thread_ignored) && deferrals > 1 && thread_number != deferral_thread)
        return;
      if (deferrals == 0 || --deferrals > 0) return;
    }
    end_regions();
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 largest = 0, bytes = 0;
    for (const auto& [address, size] : free_parts) largest = std::max(largest, size);
    for (const Record& one : waiting)
      if (!(W(pending_forgets_managed_in_nested) && deferrals > 1 && one.kind == Kind::managed))
        bytes += one.size;
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    if (ended.empty()) set(answer, &emm_state::largest_free_bytes, largest);
    set(answer, &emm_state::pending_count, waiting.size());
    set(answer, &emm_state::pending_bytes, bytes);
  }
  std::size_t last_error(char* buffer, std::size_t size) {
    if (W(cut_words_have_no_end_in_deferral) && size > 0 && size <= error_text.size() &&
        !in_child() && is_deferred()) {
      std::memcpy(buffer, error_text.data(), size);
      return error_text.size();
    }
    return write(error_text, buffer, size);
  }
  std::size_t report(char* buffer, std::size_t size) {
    if (in_child()) return write("a forked child\n", buffer, size);
    std::lock_guard lock(m);
    return write("chunks: " + std::to_string(chunks.size()) + "\n", buffer, size);
  }
  std::size_t statistics(emm_statistic* statistics, std::size_t count) {
    if (in_child()) return 0;
    std::lock_guard lock(m);
    const emm_statistic all[] = {{"chunks", chunks.size()},
                                 {"blocks.ended", ended.size()},
                                 {"allocated_bytes.all.current", live}};
    if (W(statistics_past_count_after_reset) && was_reset && count < 3) ++count;
    for (std::size_t i = 0; i < 3 && i < count; ++i) statistics[i] = all[i];
    return 3;
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "eleventh", "Physical memory in one range, and blocks that are free when their events passed");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
