// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// ninth_wrong.def has each way and the rule that it breaks. Every thread has a list of what it
// freed, each block with an event behind the work of its old owner; a thread that finds nothing of
// its own takes from the others. Nothing is cut or joined.
#define WRONG_TABLE "ninth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 160 * MiB, kSmallest = 512, kLargest = 4 * MiB;
constexpr u64 kHostKept = 6 * MiB;
constexpr std::size_t kMostWaiting = 12;

struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0;
  void* host = nullptr;
  u32 flags = 0;
  emm_stream stream = 0;
  bool any_stream = false;  // Of one thread's own default stream, which no other can name.
  u64 thread = 0;           // That asked.
};
struct Idle {
  Record record;
  emm_stream stream = 0;  // Of the work that may be pending.
  emm_handle event = 0;   // Behind it; 0: only a wait for all work helps, unless it is done.
  bool is_done = false, by_deferral = false, by_reset = false;
};
struct Host {
  Record record;
  bool by_deferral = false;
};
struct Thread {
  std::vector<Idle> idle;
  std::vector<Host> hosts;
};
struct Waiting {
  Record record;
  u64 thread = 0;
};
u64 class_of(u64 size) { return size > kLargest ? size : std::max(kSmallest, std::bit_ceil(size)); }
}  // namespace

struct emm_manager : Common {
  std::mutex mapping;  // Held while host memory is mapped: no free needs it.
  std::mutex m;        // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<u64, Thread> threads;
  std::deque<Waiting> queue;
  u64 queue_bytes = 0, counted = 0, live = 0, reserved = 0, host_kept = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  std::atomic<bool> was_out = false, was_initialized = false;
  std::vector<Record> lost_regions;
  u64 refused_pending = 0, deferral_thread = 0;

  bool is_deferred() {
    std::lock_guard lock(m);
    return deferrals > 0;
  }
  static bool has_limit(const Record& record) {
    return record.kind == Kind::device || record.kind == Kind::managed;
  }
  bool count(const Record& record) {
    std::lock_guard lock(m);
    if (record.size > kLimit || counted > kLimit - record.size) return false;
    counted += record.size;
    return true;
  }
  void uncount(const Record& record) {  // Under the lock.
    if (!has_limit(record)) return;
    if (W(limit_keeps_other_threads) && record.thread != thread_number) return;
    counted -= record.size;
  }

  // What waits.
  emm_status end_at_driver(const Record& one) {
    switch (one.kind) {
      case Kind::host:
        return d->mem_free_host(d->user, one.host);
      case Kind::region:
        return d->mem_host_unregister(d->user, one.host);
      default: {
        const emm_status status = d->mem_free(d->user, one.address);
        std::lock_guard lock(m);
        if (one.kind == Kind::device && status == EMM_SUCCESS) reserved -= one.room;
        return status;
      }
    }
  }
  emm_status make_frees(bool even_deferred = false, bool of_others = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (queue.empty() || (deferrals > 0 && !even_deferred)) break;
        auto at = queue.begin();
        if (W(frees_of_own_thread_only) && !even_deferred) {
          at = std::find_if(queue.begin(), queue.end(),
                            [](const Waiting& it) { return it.thread == thread_number; });
          if (at == queue.end()) break;
        }
        if (of_others) {
          at = std::find_if(queue.begin(), queue.end(),
                            [](const Waiting& it) { return it.thread != thread_number; });
          if (at == queue.end()) break;
        }
        one = at->record;
        queue.erase(at);
        queue_bytes -= one.size;
      }
      const emm_status status = end_at_driver(one);
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
      if (status != EMM_SUCCESS) {
        std::lock_guard lock(m);
        if (W(pending_counts_refused)) ++refused_pending;
        if (W(flush_drops_after_refusal)) {
          queue.clear();
          queue_bytes = 0;
        }
      }
    }
    tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full;
    {
      std::lock_guard lock(m);
      queue.push_back({one, thread_number});
      queue_bytes += W(pending_bytes_rounded_by_reset) && by_reset ? up(one.size, MiB) : one.size;
      full = queue.size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (full && !by_reset) tell(make_frees());
  }

  // The lists.
  emm_status drop(const Idle& one) {
    const emm_status ended =
        one.event != 0 ? d->event_destroy(d->user, one.event) : emm_status{EMM_SUCCESS};
    const emm_status status = end_at_driver(one.record);
    return status != EMM_SUCCESS ? status : ended;
  }
  // What a deferral holds back is not given to the device before its end.
  emm_status release_idle(u64 keep, bool even_deferred = false, bool own_only = false) {
    std::vector<Idle> out;
    {
      std::lock_guard lock(m);
      u64 held = 0;
      for (const auto& [number, thread] : threads)
        for (const Idle& one : thread.idle) held += one.record.room;
      for (auto& [number, thread] : threads) {
        if (own_only && number != thread_number) continue;
        std::vector<Idle> stay;
        for (const Idle& one : thread.idle) {
          const bool held_back = one.by_deferral && deferrals > 0 && !even_deferred;
          if (held <= keep || held_back) {
            stay.push_back(one);
          } else {
            held -= one.record.room;
            out.push_back(one);
          }
        }
        thread.idle.swap(stay);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const Idle& one : out) {
      const emm_status status = drop(one);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  emm_status release_hosts(bool even_deferred = false, bool own_only = false) {
    std::vector<Host> out;
    {
      std::lock_guard lock(m);
      for (auto& [number, thread] : threads) {
        if (own_only && number != thread_number) continue;
        std::vector<Host> stay;
        for (const Host& one : thread.hosts) {
          if (one.by_deferral && deferrals > 0 && !even_deferred) {
            stay.push_back(one);
          } else {
            out.push_back(one);
            host_kept -= one.record.room;
          }
        }
        thread.hosts.swap(stay);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const Host& one : out) {
      const emm_status status = end_at_driver(one.record);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  void make_room(bool own_only = false, bool own_hosts_only = false, bool no_frees = false) {
    was_out = true;
    if (!no_frees) tell(make_frees());
    tell(release_hosts(false, own_only || own_hosts_only));
    tell(release_idle(0, false, own_only));
  }
  bool is_nested() {
    std::lock_guard lock(m);
    return deferrals > 1;
  }

  // Makes what comes on the record's stream come after the old work. Another status: the work has
  // no end, and the block is as it was.
  emm_status order(Idle* one, const Record& record, bool was_others) {
    if (one->is_done) return EMM_SUCCESS;
    if (W(stolen_by_deferral_is_clean) && was_others && one->by_deferral) return EMM_SUCCESS;
    if (W(found_after_out_is_clean) && was_out && one->by_deferral) return EMM_SUCCESS;
    if (W(reset_in_deferral_is_clean) && one->by_reset && one->by_deferral) return EMM_SUCCESS;
    if (W(eventless_after_out_is_done) && was_out && one->event == 0) return EMM_SUCCESS;
    if (one->event == 0) return d->ctx_synchronize(d->user);
    const bool is_same = one->stream == record.stream && !record.any_stream && !was_others;
    if (is_same || d->event_query(d->user, one->event) == EMM_SUCCESS) return EMM_SUCCESS;
    const emm_status waits = d->stream_wait_event(d->user, record.stream, one->event);
    if (waits == EMM_SUCCESS) return waits;
    if (W(refused_wait_of_others_is_done) && was_others) return EMM_SUCCESS;
    return d->ctx_synchronize(d->user);
  }
  // EMM_NOT_FOUND: nothing is there that serves.
  emm_status from_lists(Record* record) {
    for (int turn = 0; turn < 2; ++turn) {
      Idle one;
      u64 owner = 0;
      {
        std::lock_guard lock(m);
        for (auto& [number, thread] : threads) {
          if ((number == thread_number) != (turn == 0)) continue;
          for (auto at = thread.idle.rbegin(); at != thread.idle.rend(); ++at) {
            const u64 most = record->room > kLargest ? record->room / 4 * 5 : record->room;
            if (at->record.room < record->room || at->record.room > most) continue;
            one = *at;
            owner = number;
            thread.idle.erase(std::next(at).base());
            break;
          }
          if (owner != 0) break;
        }
      }
      if (owner == 0) continue;
      const emm_status status = order(&one, *record, turn == 1);
      if (status != EMM_SUCCESS) {
        std::lock_guard lock(m);
        threads[owner].idle.push_back(one);
        return status;
      }
      if (one.event != 0) tell(d->event_destroy(d->user, one.event));
      record->address = one.record.address;
      record->room = one.record.room;
      return EMM_SUCCESS;
    }
    return EMM_NOT_FOUND;
  }
  void to_list(const Record& record, emm_stream stream, bool by_reset) {
    Idle one{.record = record, .stream = record.stream, .by_reset = by_reset};
    const bool deferred = one.by_deferral = is_deferred();
    // Work of two streams, or of a stream that this thread cannot name, has no one event.
    const bool is_simple =
        stream == record.stream && !(record.any_stream && record.thread != thread_number);
    if (is_simple && d->event_create(d->user, &one.event) == EMM_SUCCESS) {
      const emm_status status = d->event_record(d->user, one.event, record.stream);
      if (status != EMM_SUCCESS) {
        tell(d->event_destroy(d->user, one.event));
        one.event = 0;
        if (W(unrecorded_in_deferral_is_done) && deferred) one.is_done = true;
      }
    }
    std::lock_guard lock(m);
    threads[thread_number].idle.push_back(one);
  }

  emm_status take(Record* record) {
    const emm_status found = from_lists(record);
    if (found != EMM_NOT_FOUND) return found;
    const emm_status status = d->mem_alloc(d->user, record->room, &record->address);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    reserved += record->room;
    return status;
  }

  void hand_out(const Record& record, emm_memory* memory) {
    std::lock_guard lock(m);
    const emm_token token = ++last_token;
    records[token] = record;
    if (has_limit(record)) live += record.size;
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  void refused(const Record& record) {
    std::lock_guard lock(m);
    if (W(limit_keeps_refused_of_streams) && record.stream != 0) return;
    uncount(record);
  }
  emm_status beyond_limit() {
    if (W(limit_flushes_of_others)) tell(make_frees(true, true));
    if (W(limit_is_invalid_after_reset) && last_reset != 0)
      return fail(EMM_INVALID_VALUE, "beyond the limit");
    return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    if (size > kLimit) return beyond_limit();
    Record record{.kind = Kind::device, .size = size, .room = class_of(size)};
    record.stream = stream == 1 ? 0 : stream;
    record.any_stream = stream == 2;
    record.thread = thread_number;
    if (!count(record)) return beyond_limit();
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(&record);
    }
    if (status != EMM_SUCCESS) {
      refused(record);
      return fail(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status map(Record* record) {
    std::lock_guard lock(mapping);
    return d->mem_host_get_device_pointer(d->user, record->host, &record->address);
  }
  bool host_from_lists(Record* record) {
    std::lock_guard lock(m);
    for (auto& [number, thread] : threads) {
      for (auto at = thread.hosts.begin(); at != thread.hosts.end(); ++at) {
        const bool other_flags =
            W(host_of_others_any_flags) && number != thread_number && at->record.flags != 0;
        if (at->record.room != record->room) continue;
        if (at->record.flags != record->flags && !other_flags) continue;
        record->host = at->record.host;
        record->address = at->record.address;
        if (W(host_by_deferral_unmapped) && at->by_deferral) record->address = 0;
        host_kept -= record->room;
        thread.hosts.erase(at);
        return true;
      }
    }
    return false;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    if (size >> 50 != 0) return fail(EMM_OUT_OF_MEMORY, "more than any host has");
    Record record{.kind = Kind::host, .size = size, .room = up(size, 4 * KiB), .flags = flags};
    record.thread = thread_number;
    if (host_from_lists(&record)) {
      // Any stream's work may be pending on it.
      const emm_status status = W(host_in_deferral_unwaited) && is_deferred()
                                    ? emm_status{EMM_SUCCESS}
                                    : d->ctx_synchronize(d->user);
      if (status != EMM_SUCCESS) {
        std::lock_guard lock(m);
        if (!W(host_lost_at_refused_wait)) {
          threads[thread_number].hosts.push_back({record, deferrals > 0});
          host_kept += record.room;
        }
        return fail(status, "the work has no end");
      }
      hand_out(record, memory);
      return status;
    }
    emm_status status = d->mem_host_alloc(d->user, record.room, flags, &record.host);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(W(host_out_own_lists_only), W(host_out_own_hosts_only), W(host_out_no_frees));
      status = d->mem_host_alloc(d->user, record.room, W(host_out_forgets_flags) ? 0 : flags,
                                 &record.host);
    }
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
    if ((flags & EMM_HOST_MAPPED) != 0) status = map(&record);
    if (status != EMM_SUCCESS) {
      tell(d->mem_free_host(d->user, record.host));
      return fail(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    Record record{.kind = Kind::region, .size = size, .host = pointer, .flags = flags};
    record.thread = thread_number;
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = d->mem_host_register(d->user, pointer, size, flags);
    }
    if (status != EMM_SUCCESS) return fail(status, "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0) status = map(&record);
    if (status != EMM_SUCCESS) {
      if (W(unmapped_region_stays_in_deferral) && is_deferred()) return status;
      tell(d->mem_host_unregister(d->user, pointer));
      return fail(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .flags = attach};
    record.thread = thread_number;
    if (!count(record)) return beyond_limit();
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(W(managed_out_own_lists_only), false, W(managed_out_no_frees));
      status = d->mem_alloc_managed(d->user, size,
                                    W(managed_out_forgets_attach) ? u32{EMM_ATTACH_GLOBAL} : attach,
                                    &record.address);
    }
    if (status != EMM_SUCCESS) {
      refused(record);
      return fail(status, "no managed memory");
    }
    record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }

  emm_status end(const Record& record, emm_stream stream, bool by_reset) {
    switch (record.kind) {
      case Kind::region:
        if (W(reset_nested_keeps_regions) && by_reset && is_nested()) {
          std::lock_guard lock(m);
          lost_regions.push_back(record);
          return EMM_SUCCESS;
        }
        return end_at_driver(record);
      case Kind::host: {
        std::unique_lock lock(m);
        if (host_kept + record.room > kHostKept) {
          lock.unlock();
          enqueue(record, by_reset);
          return EMM_SUCCESS;
        }
        host_kept += record.room;
        threads[thread_number].hosts.push_back({record, deferrals > 0});
        return EMM_SUCCESS;
      }
      case Kind::managed:
        if (W(managed_of_others_at_once) && record.thread != thread_number && is_deferred())
          return end_at_driver(record);
        enqueue(record, by_reset);
        return EMM_SUCCESS;
      case Kind::device:
        break;
    }
    to_list(record, stream, by_reset);
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    Record record;
    if (W(free_takes_mapping)) std::lock_guard lock(mapping);
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end())
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      record = at->second;
      records.erase(at);
      if (has_limit(record) &&
          !(W(live_keeps_others_in_deferral) && deferrals > 0 && record.thread != thread_number))
        live -= record.size;
      uncount(record);
    }
    return fail(end(record, stream == 1 ? 0 : stream, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      last_reset = last_token;
      all.swap(records);
      for (const auto& [token, record] : all) {
        if (has_limit(record) && !(W(live_keeps_reset_in_deferral) && deferrals > 0))
          live -= record.size;
        uncount(record);
      }
      if (W(tokens_again_after_reset) && deferrals == 0) last_token = 0;
    }
    for (const auto& [token, record] : all) tell(end(record, record.stream, true));
    {
      std::lock_guard lock(m);
      if (deferrals > 0 && !at_end) return;
    }
    unregister_lost();
    tell(make_frees(at_end));
    tell(release_hosts(at_end));
    tell(release_idle(0, at_end));
  }
  void unregister_lost() {
    std::vector<Record> regions;
    {
      std::lock_guard lock(m);
      regions.swap(lost_regions);
    }
    for (const Record& one : regions) tell(end_at_driver(one));
  }
  emm_status flush() {
    if (in_child()) return fail_in_child();
    if (W(flush_in_deferral_of_others)) tell(make_frees(true, true));
    if (!is_deferred()) unregister_lost();
    return fail(make_frees(), "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (W(child_trim_waits)) std::lock_guard lock(mapping);
    if (in_child()) return fail_in_child();
    emm_status first = release_idle(keep, false, W(trim_of_own_thread_only));
    if (keep == 0) {
      const emm_status status = release_hosts();
      if (first == EMM_SUCCESS) first = status;
    }
    return fail(first, "the device refused a free");
  }

  emm_status get_memory_info(emm_memory_info* info) {
    if (W(child_info_waits)) std::lock_guard lock(mapping);
    if (in_child()) return fail_in_child();
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    std::lock_guard lock(m);
    u64 idle = 0;
    for (const auto& [number, thread] : threads)
      for (const Idle& one : thread.idle) idle += one.record.room;
    info->total = std::min(info->total, kLimit);
    if (W(info_halves_in_deferral) && deferrals > 1) info->total /= 2;
    info->free =
        std::min(std::min(info->free + idle, kLimit - std::min(counted, kLimit)), info->total);
    return status;
  }

  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0;
    {
      std::lock_guard lock(m);
      const auto contains = [&](const Record& one, u64 bytes) {
        return one.kind == Kind::device && pointer >= one.address &&
               pointer - one.address < bytes && size <= bytes - (pointer - one.address);
      };
      for (const auto& [token, one] : records)
        if (contains(one, one.size) && !(W(ipc_of_own_thread_only) && one.thread != thread_number))
          base = one.address;
    }
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this pool");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return fail(status, "no handle");
    handle->offset = pointer - base;
    identify(handle);
    return status;
  }

  void initialize() {
    if (in_child()) return;
    const bool again = was_initialized.exchange(true);
    std::lock_guard lock(m);
    if (W(initialize_ends_deferrals) && again) deferrals = 0;
  }
  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (++deferrals == 1) deferral_thread = thread_number;
  }
  void end_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (W(deferral_of_own_thread_only) && deferrals > 1 && deferral_thread != thread_number) return;
    if (deferrals > 0) --deferrals;
    if (deferrals > 0) return;
    for (auto& [number, thread] : threads) {
      if (!W(stolen_by_deferral_is_clean) && !W(found_after_out_is_clean) &&
          !W(reset_in_deferral_is_clean))
        for (Idle& one : thread.idle) one.by_deferral = false;
      for (Host& one : thread.hosts) one.by_deferral = false;
    }
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 largest = 0;
    for (const auto& [number, thread] : threads)
      for (const Idle& one : thread.idle) largest = std::max(largest, one.record.room);
    largest = std::min(largest, kLimit - std::min(counted, kLimit));
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes, largest);
    set(answer, &emm_state::pending_count, queue.size() + refused_pending);
    set(answer, &emm_state::pending_bytes, queue_bytes,
        W(state_in_deferral_writes_all) && deferrals > 0);
  }

  void end_manager() {
    if (in_child()) return;
    if (W(end_in_deferral_forgets_others) && deferrals > 0) {
      std::map<u64, Thread> own;
      own[thread_number] = threads[thread_number];
      threads.swap(own);
    }
    deferrals = 0;
    reset(true);
  }
};

namespace {
const emm_plugin_table_v1 table =
    table_of<emm_manager>("ninth", "Each thread keeps what it freed, and takes from the others");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
