// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// tenth_wrong.def has each way and the rule that it breaks. Small and middle requests are slots of
// slabs, larger ones are the driver's own. A reset begins a generation: the slabs that it emptied
// are released by the call after it. Frees of host memory wait apart from those of the device.
#define WRONG_TABLE "tenth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 224 * MiB, kSlab = MiB;
constexpr u64 kSlots[] = {KiB, 32 * KiB};
constexpr std::size_t kMostWaiting = 9;
std::string shared_text;

struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0, slab = 0;
  void* host = nullptr;
  u32 flags = 0;
  emm_stream stream = 0;
  u64 thread = 0;
  u64 counted = 0;  // Bytes of the limit.
};
// A slot that is idle, and the work that may be pending on it.
struct Slot {
  u64 address = 0;
  std::vector<std::pair<emm_stream, emm_handle>> events = {};
  u64 thread = 0;
  bool needs_all = false;  // Only a wait for all work helps.
};
struct Slab {
  int of = 0;
  u64 live = 0, emptied = 0;  // The generation in which it was emptied.
  bool held_back = false;     // By a deferral.
  std::vector<Slot> idle;
};
}  // namespace

struct emm_manager : Common {
  std::mutex making;  // Held while a slab is made: no free needs it.
  std::mutex m;       // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<u64, Slab> slabs;
  std::deque<Record> waiting[2];  // The device's, the host's.
  u64 counted = 0, live = 0, reserved = 0, generation = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  std::map<emm_token, Record> ended;
  std::vector<Record> kept_regions;
  bool was_out = false, was_initialized = false, is_broken = false, pin_failed = false;

  bool is_deferred() {
    std::lock_guard lock(m);
    return deferrals > 0;
  }
  emm_status no(emm_status status, const char* words) {
    if (W(words_of_others_in_deferral) && is_deferred()) {
      if (status != EMM_SUCCESS) {
        std::lock_guard lock(m);
        shared_text = words;
      }
      return status;
    }
    if (W(words_of_others_in_deferral) && status != EMM_SUCCESS) {
      std::lock_guard lock(m);
      shared_text.clear();
    }
    return fail(status, words);
  }
  std::size_t last_error(char* buffer, std::size_t size) const {
    const bool is_shared = W(words_of_others_in_deferral) && !shared_text.empty();
    return write(is_shared ? shared_text : error_text, buffer, size);
  }
  static bool has_limit(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }
  bool count(Record* one) {
    std::lock_guard lock(m);
    one->counted =
        W(limit_counts_slots) && one->slab == 0 && one->room <= kSlots[1] && generation > 0
            ? one->room
            : one->size;
    if (one->size > kLimit || counted > kLimit - one->counted) return false;
    counted += one->counted;
    return true;
  }
  void uncount(const Record& one, bool by_reset) {  // Under the lock.
    if (!has_limit(one)) return;
    if (W(limit_keeps_managed_of_reset) && by_reset && one.kind == Kind::managed) return;
    counted -= one.counted;
  }

  // What waits.
  emm_status end_at_driver(const Record& one) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, one.host);
    if (one.kind == Kind::region) return d->mem_host_unregister(d->user, one.host);
    const emm_status status = d->mem_free(d->user, one.address);
    std::lock_guard lock(m);
    if (one.kind == Kind::device && status == EMM_SUCCESS) reserved -= one.room;
    return status;
  }
  emm_status make_frees(bool even_deferred = false, int only = -1) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (int which = 0; which < 2; ++which) {
      if (only >= 0 && which != only) continue;
      for (;;) {
        Record one;
        {
          std::lock_guard lock(m);
          if (waiting[which].empty() || (deferrals > 0 && !even_deferred)) break;
          one = waiting[which].front();
          waiting[which].pop_front();
        }
        const emm_status status = end_at_driver(one);
        if (first == EMM_SUCCESS) first = status;
        if (W(flushed_tells_no_host) && which == 1) continue;
        ++count;
        bytes += one.size;
      }
    }
    tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    const int which = one.kind == Kind::host ? 1 : 0;
    bool full;
    {
      std::lock_guard lock(m);
      waiting[which].push_back(one);
      full = waiting[which].size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (full && !by_reset) tell(make_frees(false, which));
  }

  // Slabs.
  emm_status release_slabs(u64 keep, bool even_deferred = false, bool old_only = false) {
    std::vector<std::pair<u64, Slab>> out;
    {
      std::lock_guard lock(m);
      u64 held = 0;
      for (const auto& [base, slab] : slabs) held += slab.live == 0 ? kSlab : 0;
      for (auto at = slabs.begin(); at != slabs.end();) {
        const Slab& slab = at->second;
        const bool stays = slab.live > 0 ||
                           (old_only ? slab.emptied >= generation : held <= keep) ||
                           (slab.held_back && deferrals > 0 && !even_deferred);
        if (stays) {
          ++at;
          continue;
        }
        held -= kSlab;
        out.emplace_back(at->first, std::move(at->second));
        at = slabs.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const auto& [base, slab] : out) {
      for (const Slot& slot : slab.idle) {
        if (W(events_lost_in_deferral) && slab.held_back) continue;
        for (const auto& [stream, event] : slot.events) tell(d->event_destroy(d->user, event));
      }
      const emm_status status = d->mem_free(d->user, base);
      if (first == EMM_SUCCESS) first = status;
      std::lock_guard lock(m);
      if (status == EMM_SUCCESS && !(W(reserved_keeps_what_out_released) && was_out))
        reserved -= kSlab;
    }
    return first;
  }
  void make_room(bool no_host_frees = false) {
    {
      std::lock_guard lock(m);
      was_out = true;
    }
    tell(make_frees(false, no_host_frees ? 0 : -1));
    tell(release_slabs(0));
  }
  // Makes what comes on the stream come after the old work. Another status: the slot is as it was.
  emm_status order(Slot* slot, emm_stream stream) {
    if (slot->needs_all) return d->ctx_synchronize(d->user);
    for (const auto& [old, event] : slot->events) {
      const bool is_same = old == stream && (stream != 2 || slot->thread == thread_number ||
                                             (W(own_streams_are_one_in_deferral) && is_deferred()));
      if (is_same || d->event_query(d->user, event) == EMM_SUCCESS) continue;
      if (d->stream_wait_event(d->user, stream, event) != EMM_SUCCESS)
        return d->ctx_synchronize(d->user);
    }
    return EMM_SUCCESS;
  }
  // EMM_NOT_FOUND: no slot is idle.
  emm_status from_slabs(int of, Record* record) {
    Slot slot;
    u64 base = 0;
    {
      std::lock_guard lock(m);
      for (auto& [at, slab] : slabs) {
        if (slab.of != of || slab.idle.empty()) continue;
        base = at;
        slot = std::move(slab.idle.back());
        slab.idle.pop_back();
        ++slab.live;
        break;
      }
    }
    if (base == 0) return EMM_NOT_FOUND;
    const emm_status status = order(&slot, record->stream);
    if (status != EMM_SUCCESS) {
      std::lock_guard lock(m);
      if (W(slot_lost_at_refused_wait) && generation > 0) return status;
      Slab& slab = slabs[base];
      --slab.live;
      slab.idle.push_back(std::move(slot));
      return status;
    }
    for (const auto& [stream, event] : slot.events) tell(d->event_destroy(d->user, event));
    record->address = slot.address;
    record->slab = base;
    return status;
  }
  emm_status make_slab(int of) {
    u64 base = 0;
    {
      std::lock_guard lock(making);
      const emm_status status = d->mem_alloc(d->user, kSlab, &base);
      if (status != EMM_SUCCESS) return status;
    }
    std::lock_guard lock(m);
    Slab& slab = slabs[base];
    slab.of = of;
    slab.emptied = generation;
    const bool is_off = W(unaligned_after_out) && was_out && of == 0;
    for (u64 i = kSlab / kSlots[of]; i-- > 0;) {
      if (is_off && i == 0) break;
      slab.idle.push_back({.address = base + i * kSlots[of] - (is_off ? 128 : 0)});
    }
    reserved += kSlab;
    return EMM_SUCCESS;
  }
  emm_status take(Record* record) {
    if (record->room > kSlots[1]) {
      const emm_status status = d->mem_alloc(d->user, record->room, &record->address);
      if (status != EMM_SUCCESS) return status;
      std::lock_guard lock(m);
      reserved += record->room;
      return status;
    }
    const int of = record->room > kSlots[0] ? 1 : 0;
    for (;;) {
      const emm_status found = from_slabs(of, record);
      if (found != EMM_NOT_FOUND) return found;
      const emm_status made = make_slab(of);
      if (made != EMM_SUCCESS) return made;
    }
  }
  void to_slab(const Record& record, emm_stream stream, bool by_reset) {
    Slot slot{.address = record.address, .thread = thread_number};
    const bool deferred = is_deferred();
    const bool skips =
        (W(reset_by_other_thread_is_clean) && by_reset && record.thread != thread_number) ||
        (W(freed_in_deferral_after_reset_is_clean) && deferred && generation > 0);
    const auto add = [&](emm_stream one) {
      emm_handle event = 0;
      if (d->event_create(d->user, &event) != EMM_SUCCESS) {
        slot.needs_all = !(W(eventless_in_deferral_is_clean) && deferred);
        return;
      }
      if (d->event_record(d->user, event, one) != EMM_SUCCESS) {
        tell(d->event_destroy(d->user, event));
        slot.needs_all = true;
        return;
      }
      slot.events.emplace_back(one, event);
    };
    if (!skips) {
      // No other thread can name a thread's own default stream.
      if (record.stream == 2 && record.thread != thread_number)
        slot.needs_all = true;
      else
        add(record.stream);
      if (stream != record.stream && !(W(second_stream_unseen_in_deferral) && deferred))
        add(stream);
    }
    std::lock_guard lock(m);
    Slab& slab = slabs[record.slab];
    --slab.live;
    slab.emptied = generation;
    if (by_reset) slab.emptied = generation - 1;
    if (deferrals > 0) slab.held_back = true;
    slab.idle.push_back(std::move(slot));
  }

  void hand_out(Record record, emm_memory* memory) {
    record.thread = thread_number;
    std::lock_guard lock(m);
    const emm_token token = ++last_token;
    records[token] = record;
    if (has_limit(record))
      live +=
          W(live_counts_slots_after_out) && was_out && record.slab != 0 ? record.room : record.size;
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  void refused(const Record& record, bool is_managed) {
    std::lock_guard lock(m);
    if (W(limit_keeps_managed_refused) && is_managed) return;
    counted -= record.counted;
  }
  emm_status beyond_limit() {
    if (W(limit_makes_host_frees_in_deferral)) tell(make_frees(true, 1));
    return no(EMM_OUT_OF_MEMORY, "beyond the limit");
  }
  // What the last reset emptied.
  void release_old() {
    if (!W(trim_after_reset_releases_nothing)) tell(release_slabs(0, false, true));
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (is_broken) return no(EMM_NOT_INITIALIZED, "it was reset before it was initialized");
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes");
    if (size > kLimit) return beyond_limit();
    Record record{.kind = Kind::device, .size = size, .stream = stream == 1 ? 0 : stream};
    record.room = size <= kSlots[0] ? kSlots[0] : size <= kSlots[1] ? kSlots[1] : up(size, 512);
    release_old();
    if (!count(&record)) return beyond_limit();
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      if (W(out_in_deferral_makes_frees)) tell(make_frees(true, 0));
      make_room();
      status = take(&record);
    }
    if (status != EMM_SUCCESS) {
      refused(record, false);
      return no(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    if (W(host_flags_lost_in_deferral) && is_deferred()) flags &= u32{EMM_HOST_MAPPED};
    emm_status status = d->mem_host_alloc(d->user, size, flags, &record.host);
    bool again = false;
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(W(host_out_after_reset_no_host_frees) && generation > 0);
      status = d->mem_host_alloc(d->user, size, flags, &record.host);
      again = true;
    }
    if (status != EMM_SUCCESS) return no(status, "no page-locked memory");
    if ((flags & EMM_HOST_MAPPED) != 0 || (W(unmapped_after_out_has_pointer) && again))
      status = d->mem_host_get_device_pointer(d->user, record.host, &record.address);
    if (status != EMM_SUCCESS) {
      tell(d->mem_free_host(d->user, record.host));
      return no(status, "it cannot be mapped");
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
    if (status != EMM_SUCCESS) {
      pin_failed = true;
      if (W(refused_pin_ends_other_in_deferral) && is_deferred())
        tell(d->mem_host_unregister(d->user, pointer));
      return no(status, "the region cannot be pinned");
    }
    const bool wants =
        (flags & EMM_PIN_MAPPED) != 0 && !(W(pin_after_failure_is_unmapped) && pin_failed);
    if (wants || (W(pin_in_deferral_is_mapped) && is_deferred()))
      status = d->mem_host_get_device_pointer(d->user, pointer, &record.address);
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
    Record record{.kind = Kind::managed, .size = size, .room = size};
    if (W(attach_global_after_reset) && generation > 0) attach = EMM_ATTACH_GLOBAL;
    if (!count(&record)) return beyond_limit();
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    }
    if (status != EMM_SUCCESS) {
      refused(record, true);
      return no(status, "no managed memory");
    }
    record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }

  emm_status end(const Record& record, emm_stream stream, bool by_reset) {
    const bool deferred = is_deferred();
    if (record.kind == Kind::region) {
      const bool stays =
          (W(portable_region_waits_in_deferral) && deferred && !by_reset &&
           (record.flags & EMM_PIN_PORTABLE) != 0) ||
          (W(reset_keeps_regions_of_others) && by_reset && record.thread != thread_number);
      if (!stays) return end_at_driver(record);
      std::lock_guard lock(m);
      kept_regions.push_back(record);
      return EMM_SUCCESS;
    }
    if (record.slab != 0) {
      to_slab(record, stream, by_reset);
      return EMM_SUCCESS;
    }
    if (W(host_of_other_thread_at_once) && deferred && record.kind == Kind::host &&
        record.thread != thread_number)
      return end_at_driver(record);
    enqueue(record, by_reset);
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    if (W(free_in_deferral_takes_making) && is_deferred()) std::lock_guard lock(making);
    Record record;
    {
      std::lock_guard lock(m);
      auto at = records.find(token);
      if (at == records.end()) {
        const auto old = ended.find(token);
        const bool again = W(late_free_in_deferral_frees_again) && deferrals > 0 &&
                           old != ended.end() && old->second.kind == Kind::managed;
        if (!again)
          return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
        waiting[0].push_back(old->second);
        ended.erase(old);
        return EMM_SUCCESS;
      }
      record = at->second;
      records.erase(at);
      if (has_limit(record)) live -= std::min(live, record.size);
      uncount(record, false);
    }
    return no(end(record, stream == 1 ? 0 : stream, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      ++generation;
      last_reset = std::max(last_reset, last_token);
      all.swap(records);
      for (const auto& [token, record] : all) {
        if (has_limit(record) && !(W(live_keeps_managed_of_reset) && record.kind == Kind::managed))
          live -= std::min(live, record.size);
        uncount(record, true);
      }
      if (W(late_free_in_deferral_frees_again)) ended = all;
      if (W(reset_before_initialize_breaks) && !was_initialized && !at_end) is_broken = true;
    }
    for (const auto& [token, record] : all) tell(end(record, record.stream, true));
    if (at_end) end_kept_regions();
    if (W(destroy_in_deferral_keeps_hosts) && at_end && is_deferred()) {
      tell(make_frees(true, 0));
    } else {
      tell(make_frees(at_end));
    }
    if (at_end) tell(release_slabs(0, true));
  }
  void end_kept_regions() {
    std::vector<Record> regions;
    {
      std::lock_guard lock(m);
      regions.swap(kept_regions);
    }
    for (const Record& one : regions) tell(end_at_driver(one));
  }
  emm_status flush() {
    if (W(slab_child_flush_waits)) std::lock_guard lock(making);
    if (in_child()) return fail_in_child();
    release_old();
    bool both;
    {
      std::lock_guard lock(m);
      both = !waiting[0].empty() && !waiting[1].empty();
    }
    if (W(flush_of_both_kinds_makes_one) && both) return no(make_frees(false, 0), "a free");
    return no(make_frees(), "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    if (W(trim_in_deferral_makes_frees)) tell(make_frees(true));
    if (W(trim_after_reset_releases_nothing) && generation > 0) return EMM_SUCCESS;
    release_old();
    return no(release_slabs(keep), "the device refused a free");
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return no(status, "the device says nothing");
    std::lock_guard lock(m);
    u64 idle = 0;
    for (const auto& [base, slab] : slabs) idle += slab.idle.size() * kSlots[slab.of];
    info->total = std::min(info->total, kLimit);
    info->free = std::min({info->free + idle, kLimit - std::min(counted, kLimit), info->total});
    return status;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    if (W(ipc_in_deferral_refused) && is_deferred()) return no(EMM_NOT_FOUND, "not now");
    u64 base = 0;
    bool is_old = false;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records) {
        if (one.kind != Kind::device || pointer < one.address ||
            pointer - one.address >= one.size || size > one.size - (pointer - one.address))
          continue;
        base = one.slab != 0 ? one.slab : one.address;
      }
      is_old = generation > 0;
    }
    if (base == 0) return no(EMM_INVALID_VALUE, "no memory of this pool");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return no(status, "no handle");
    handle->offset = W(slab_offset_lost_after_reset) && is_old ? 0 : pointer - base;
    identify(handle);
    return status;
  }

  void initialize() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (W(initialize_drops_what_waits) && was_initialized) waiting[1].clear();
    if (W(tokens_again_after_initialize) && was_initialized && records.empty()) last_token = 0;
    was_initialized = true;
  }
  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    ++deferrals;
  }
  void end_deferral() {
    if (W(slab_child_end_deferral_waits)) std::lock_guard lock(making);
    if (in_child()) return;
    if (W(nested_end_makes_host_frees)) {
      bool nested;
      {
        std::lock_guard lock(m);
        nested = deferrals > 1;
      }
      if (nested) tell(make_frees(true, 1));
    }
    {
      std::lock_guard lock(m);
      if (deferrals == 0 || --deferrals > 0) return;
      for (auto& [base, slab] : slabs)
        if (!W(events_lost_in_deferral)) slab.held_back = false;
    }
    end_kept_regions();
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 largest = 0, count = 0, bytes = 0;
    for (const auto& [base, slab] : slabs)
      if (!slab.idle.empty()) largest = std::max(largest, kSlots[slab.of]);
    for (int which = 0; which < 2; ++which) {
      if (W(pending_without_hosts_in_deferral) && which == 1 && deferrals > 0) continue;
      count += waiting[which].size();
      for (const Record& one : waiting[which]) bytes += one.size;
    }
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes,
        std::min(largest, kLimit - std::min(counted, kLimit)));
    set(answer, &emm_state::pending_count, count,
        W(state_after_reset_writes_all) && generation > 0);
    set(answer, &emm_state::pending_bytes, bytes);
  }
  void end_manager() {
    if (W(slab_child_destroy_waits)) std::lock_guard lock(making);
    if (in_child()) return;
    reset(true);
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "tenth", "Slots of two sizes, and a reset whose slabs the next call releases");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
