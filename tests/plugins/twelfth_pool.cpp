// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// twelfth_wrong.def has each way and the rule that it breaks. Threads share four shards, each with
// slabs of its own; what another thread frees comes back through a list of the shard's. A free
// makes no event: the event is recorded on the old stream when the block goes to another one. Small
// page-locked memory is pages of chunks.
#define WRONG_TABLE "twelfth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 192 * MiB, kSlab = MiB, kSmallest = 512, kLargest = 256 * KiB;
constexpr u64 kChunk = 256 * KiB, kPage = 4 * KiB, kMostPages = 16, kMostBytes = 24 * MiB;
constexpr std::size_t kShards = 4, kMostWaiting = 8;

struct Work {
  emm_stream stream;
  u64 thread;
};
struct Slot {
  u64 address = 0, slab = 0;
  std::vector<Work> old = {};  // What may be pending on it.
  bool is_remote = false;
};
struct Slab {
  u64 room = 0, live = 0;
};
struct Shard {
  std::mutex making;  // Held while a slab is made: no free needs it.
  std::mutex m;       // Guards what follows, and is held in no call.
  std::map<u64, Slab> slabs;
  std::map<u64, std::vector<Slot>> idle;  // By room.
  std::vector<Slot> remote;
};
struct Chunk {
  void* host = nullptr;
  u64 address = 0, used = 0, dirty = 0;  // Pages.
  u32 flags = 0;
  u64 thread = 0;
};
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0, slab = 0;
  void* host = nullptr;
  void* chunk = nullptr;
  u32 flags = 0;
  emm_stream stream = 0;
  u64 thread = 0;
  std::size_t shard = 0;
  u64 counted = 0;
};
u64 pages_of(u64 first, u64 count) { return ((u64{1} << count) - 1) << first; }
}  // namespace

struct emm_manager : Common {
  Shard shards[kShards];
  std::mutex chunking;  // Held while a chunk is made: no free needs it.
  std::mutex m;         // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<void*, Chunk> chunks;
  std::deque<Record> waiting;
  u64 waiting_bytes = 0, counted = 0, live = 0, peak = 0, reserved = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  bool was_out = false, was_reset = false;
  u32 refused_attach = 0;
  std::vector<Record> regions;

  u32 level() {
    std::lock_guard lock(m);
    return deferrals;
  }
  bool is_deferred() { return level() > 0; }
  static bool counts(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }
  emm_status no(emm_status status, const char* words) {
    if (status != EMM_SUCCESS && W(words_empty_in_nested) && level() > 1) words = "";
    if (status != EMM_SUCCESS && W(peak_lost_at_refusal)) {
      std::lock_guard lock(m);
      peak = live;
    }
    return fail(status, words);
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
  emm_status make_frees(bool even_deferred = false, bool silent = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (waiting.empty() || (deferrals > 0 && !even_deferred)) break;
        one = waiting.front();
        waiting.pop_front();
        waiting_bytes -= std::min(waiting_bytes, one.size);
        if (waiting.empty()) waiting_bytes = 0;
      }
      const emm_status status = end_at_driver(one);
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
    }
    if (!silent) tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full, deferred;
    {
      std::lock_guard lock(m);
      waiting.push_back(one);
      waiting_bytes += one.size;
      deferred = deferrals > 0;
      if (W(pending_bytes_twice_by_reset_in_deferral) && by_reset && deferred)
        waiting_bytes += one.size;
      full = waiting.size() > kMostWaiting || waiting_bytes > kMostBytes;
    }
    if (W(told_under_lock_in_deferral) && deferred) {
      std::lock_guard lock(m);
      tell_added(one.kind, one.size);
    } else {
      tell_added(one.kind, one.size);
    }
    if (full && !by_reset) tell(make_frees());
  }

  // Slabs.
  Shard& own_shard() { return shards[thread_number % kShards]; }
  static void collect(Shard* shard) {  // Under its lock.
    for (Slot& slot : shard->remote) {
      Slab& slab = shard->slabs[slot.slab];
      --slab.live;
      shard->idle[slab.room].push_back(std::move(slot));
    }
    shard->remote.clear();
  }
  // An idle slot, best one of the stream's own. Slot 0: there is none.
  Slot find(Shard* shard, u64 room, emm_stream stream) {
    std::lock_guard lock(shard->m);
    collect(shard);
    auto& idle = shard->idle[room];
    if (idle.empty()) return {};
    auto at = std::find_if(idle.begin(), idle.end(), [&](const Slot& slot) {
      return std::all_of(slot.old.begin(), slot.old.end(),
                         [&](const Work& work) { return is_own(work, stream); });
    });
    if (at == idle.end()) at = idle.end() - 1;
    Slot found = std::move(*at);
    idle.erase(at);
    ++shard->slabs[found.slab].live;
    return found;
  }
  void put_back(Shard* shard, Slot slot) {
    std::lock_guard lock(shard->m);
    Slab& slab = shard->slabs[slot.slab];
    --slab.live;
    shard->idle[slab.room].push_back(std::move(slot));
  }
  static bool is_own(const Work& work, emm_stream stream) {
    return work.stream == stream && (stream != 2 || work.thread == thread_number);
  }
  // Makes what comes on the stream come after the old work.
  emm_status order(const Slot& slot, emm_stream stream) {
    for (const Work& work : slot.old) {
      if (is_own(work, stream)) continue;
      // No other thread can name a thread's own default stream.
      if (work.stream == 2 && work.thread != thread_number) return d->ctx_synchronize(d->user);
      emm_handle event = 0;
      emm_status status = d->event_create(d->user, &event);
      if (status != EMM_SUCCESS) return d->ctx_synchronize(d->user);
      const emm_stream old = W(handover_swapped_after_out) && was_out ? stream : work.stream;
      status = d->event_record(d->user, event, old);
      if (status == EMM_SUCCESS) status = d->stream_wait_event(d->user, stream, event);
      if (!(W(event_leaks_at_refused_wait) && status != EMM_SUCCESS))
        tell(d->event_destroy(d->user, event));
      if (status != EMM_SUCCESS) return d->ctx_synchronize(d->user);
    }
    return EMM_SUCCESS;
  }
  // EMM_NOT_FOUND: no slot is idle there.
  emm_status from(std::size_t number, Record* record) {
    Shard& shard = shards[number];
    Slot slot = find(&shard, record->room, record->stream);
    if (slot.address == 0) return EMM_NOT_FOUND;
    const bool is_stolen = &shard != &own_shard();
    const emm_status status =
        W(stolen_is_clean) && is_stolen ? EMM_SUCCESS : order(slot, record->stream);
    if (status != EMM_SUCCESS) {
      if (!(W(remote_lost_at_refused_wait) && slot.is_remote)) put_back(&shard, std::move(slot));
      return status;
    }
    record->address = slot.address;
    record->slab = slot.slab;
    record->shard = number;
    return status;
  }
  emm_status make_slab(Shard* shard, u64 room) {
    u64 base = 0;
    {
      std::lock_guard one_at_a_time(shard->making);
      const emm_status status = d->mem_alloc(d->user, kSlab, &base);
      if (status != EMM_SUCCESS) return status;
    }
    {
      std::lock_guard lock(shard->m);
      shard->slabs[base].room = room;
      for (u64 at = kSlab; at > 0; at -= room)
        shard->idle[room].push_back({.address = base + at - room, .slab = base});
    }
    std::lock_guard lock(m);
    reserved += kSlab;
    return EMM_SUCCESS;
  }
  emm_status release_slabs(u64 keep, bool even_deferred = false, bool own_only = false) {
    if (is_deferred() && !even_deferred) return EMM_SUCCESS;
    std::vector<u64> out;
    u64 held = 0;
    for (Shard& shard : shards) {
      std::lock_guard lock(shard.m);
      if (!(W(end_in_deferral_leaves_remote) && even_deferred && is_deferred())) collect(&shard);
      for (const auto& [base, slab] : shard.slabs) held += slab.live == 0 ? kSlab : 0;
    }
    for (Shard& shard : shards) {
      if (own_only && &shard != &own_shard()) continue;
      std::lock_guard lock(shard.m);
      for (auto at = shard.slabs.begin(); at != shard.slabs.end() && held > keep;) {
        if (at->second.live > 0) {
          ++at;
          continue;
        }
        std::erase_if(shard.idle[at->second.room],
                      [&](const Slot& slot) { return slot.slab == at->first; });
        out.push_back(at->first);
        held -= kSlab;
        at = shard.slabs.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const u64 base : out) {
      const emm_status status = d->mem_free(d->user, base);
      if (first == EMM_SUCCESS) first = status;
      std::lock_guard lock(m);
      if (status == EMM_SUCCESS) reserved -= kSlab;
    }
    return first;
  }

  // Page-locked memory.
  emm_status release_chunks(bool even_deferred = false) {
    std::vector<void*> out;
    {
      std::lock_guard lock(m);
      if (deferrals > 0 && !even_deferred) return EMM_SUCCESS;
      for (auto at = chunks.begin(); at != chunks.end();) {
        if (at->second.used != 0) {
          ++at;
          continue;
        }
        out.push_back(at->first);
        at = chunks.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (void* host : out) {
      const emm_status status = d->mem_free_host(d->user, host);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  void make_room() {
    {
      std::lock_guard lock(m);
      was_out = true;
    }
    tell(make_frees());
    tell(release_slabs(0));
    tell(release_chunks());
  }
  // EMM_NOT_FOUND: no chunk has room.
  emm_status from_chunks(Record* record) {
    const u64 count = up(record->size, kPage) / kPage;
    bool needs_wait = false;
    {
      std::lock_guard lock(m);
      for (auto& [host, chunk] : chunks) {
        const bool fits =
            chunk.flags == record->flags || (W(host_flags_mixed_after_reset) && was_reset &&
                                             (chunk.flags | EMM_HOST_PORTABLE) == record->flags);
        if (!fits) continue;
        for (u64 first = 0; first + count <= kChunk / kPage; ++first) {
          const u64 pages = pages_of(first, count);
          if ((chunk.used & pages) != 0) continue;
          chunk.used |= pages;
          needs_wait = (chunk.dirty & pages) != 0;
          record->chunk = host;
          record->host = static_cast<char*>(host) + first * kPage;
          if (chunk.address != 0)
            record->address =
                chunk.address +
                (W(host_offset_lost_in_deferral) && deferrals > 0 ? 0 : first * kPage);
          if (W(mapped_of_other_thread_unmapped) && chunk.thread != thread_number)
            record->address = 0;
          record->room = count * kPage;
          break;
        }
        if (record->chunk != nullptr) break;
      }
    }
    if (record->chunk == nullptr) return EMM_NOT_FOUND;
    if (!needs_wait) return EMM_SUCCESS;
    const emm_status status = d->ctx_synchronize(d->user);
    std::lock_guard lock(m);
    Chunk& chunk = chunks[record->chunk];
    if (status == EMM_SUCCESS) {
      chunk.dirty &= ~pages_in(*record);
      return status;
    }
    chunk.used &= ~pages_in(*record);
    record->chunk = record->host = nullptr;
    record->address = 0;
    return status;
  }
  static u64 pages_in(const Record& record) {
    const auto offset =
        static_cast<u64>(static_cast<char*>(record.host) - static_cast<char*>(record.chunk));
    return pages_of(offset / kPage, record.room / kPage);
  }
  emm_status make_chunk(u32 flags, u32 asked) {
    std::lock_guard one_at_a_time(chunking);
    Chunk chunk{.flags = flags, .thread = thread_number};
    emm_status status = d->mem_host_alloc(d->user, kChunk, asked, &chunk.host);
    if (status != EMM_SUCCESS) return status;
    status = map(flags, chunk.host, &chunk.address, asked != flags);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    chunks[chunk.host] = chunk;
    return status;
  }
  emm_status map(u32 flags, void* host, u64* address, bool as_host = false) {
    if ((flags & EMM_HOST_MAPPED) == 0) return EMM_SUCCESS;
    if (as_host) {
      *address = reinterpret_cast<u64>(host);
      return EMM_SUCCESS;
    }
    const emm_status status = d->mem_host_get_device_pointer(d->user, host, address);
    if (status != EMM_SUCCESS) tell(d->mem_free_host(d->user, host));
    return status;
  }

  void hand_out(Record record, emm_memory* memory) {
    record.thread = thread_number;
    std::lock_guard lock(m);
    const emm_token token = ++last_token;
    records[token] = record;
    if (counts(record)) live += record.size;
    peak = std::max(peak, live);
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  bool count(Record* one) {
    std::lock_guard lock(m);
    one->counted = W(limit_counts_classes_after_out) && was_out ? one->room : one->size;
    if (one->size > kLimit || counted > kLimit - std::min(kLimit, one->counted)) return false;
    counted += one->counted;
    return true;
  }
  void uncount(const Record& one) {
    std::lock_guard lock(m);
    counted -= one.counted;
  }

  emm_status take(Record* record) {
    if (record->room > kLargest) {
      const emm_status status = d->mem_alloc(d->user, record->room, &record->address);
      if (status != EMM_SUCCESS) return status;
      std::lock_guard lock(m);
      reserved += record->room;
      return status;
    }
    const std::size_t own = thread_number % kShards;
    for (;;) {
      const emm_status found = from(own, record);
      if (found != EMM_NOT_FOUND) return found;
      const emm_status made = make_slab(&shards[own], record->room);
      if (made == EMM_SUCCESS) continue;
      if (made != EMM_OUT_OF_MEMORY || (W(out_in_deferral_ignores_other_shards) && is_deferred()))
        return made;
      for (std::size_t other = 1; other < kShards; ++other) {
        const emm_status stolen = from((own + other) % kShards, record);
        if (stolen != EMM_NOT_FOUND) return stolen;
      }
      return made;
    }
  }
  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes");
    if (size > kLimit) return no(EMM_OUT_OF_MEMORY, "beyond the limit");
    Record record{.kind = Kind::device, .size = size, .stream = stream == 1 ? 0 : stream};
    record.room = size > kLargest ? up(size, kSmallest) : std::max(kSmallest, std::bit_ceil(size));
    if (W(short_block_after_out) && was_out && size > kSmallest && size <= kLargest &&
        size - std::bit_floor(size) <= 64)
      record.room = std::bit_floor(size);
    if (!count(&record)) return no(EMM_OUT_OF_MEMORY, "beyond the limit");
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(&record);
    }
    if (status != EMM_SUCCESS) {
      if (!(W(limit_counts_refused_wait) && status != EMM_OUT_OF_MEMORY)) uncount(record);
      return no(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    const auto ask = [&](bool again) -> emm_status {
      const u32 asked = W(host_retry_not_mapped) && again ? flags & ~u32{EMM_HOST_MAPPED} : flags;
      if (size > kMostPages * kPage) {
        const emm_status status = d->mem_host_alloc(d->user, size, asked, &record.host);
        if (status != EMM_SUCCESS) return status;
        return map(flags, record.host, &record.address, asked != flags);
      }
      for (;;) {
        const emm_status found = from_chunks(&record);
        if (found != EMM_NOT_FOUND) return found;
        const emm_status made = make_chunk(flags, asked);
        if (made != EMM_SUCCESS) return made;
      }
    };
    emm_status status = ask(false);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = ask(true);
    }
    if (status != EMM_SUCCESS) return no(status, "no page-locked memory");
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
      if (W(token_again_after_refused_pin)) {
        std::lock_guard lock(m);
        if (last_token > last_reset) --last_token;
      }
      return no(status, "the region cannot be pinned");
    }
    if ((flags & EMM_PIN_MAPPED) != 0)
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
    if (!count(&record)) return no(EMM_OUT_OF_MEMORY, "beyond the limit");
    u32 as = attach;
    if (W(attach_of_refused)) {
      std::lock_guard lock(m);
      if (refused_attach != 0) as = refused_attach;
      refused_attach = 0;
    }
    emm_status status = d->mem_alloc_managed(d->user, size, as, &record.address);
    const bool again = status == EMM_OUT_OF_MEMORY;
    if (again) {
      make_room();
      status = d->mem_alloc_managed(d->user, size, as, &record.address);
    }
    if (status != EMM_SUCCESS) {
      uncount(record);
      std::lock_guard lock(m);
      refused_attach = attach;
    }
    if (status != EMM_SUCCESS) return no(status, "no managed memory");
    if (!(W(managed_no_host_after_out) && again))
      record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }

  void to_shard(const Record& record, emm_stream stream, bool by_reset) {
    Shard& shard = shards[record.shard];
    const bool is_remote = &shard != &own_shard();
    const bool deferred = is_deferred();
    if (W(remote_free_takes_making) && is_remote) std::lock_guard lock(shard.making);
    Slot slot{.address = record.address, .slab = record.slab, .is_remote = is_remote};
    const Work asked{record.stream, record.thread};
    const bool forgets =
        W(free_by_other_forgets_request_stream) && record.thread != thread_number && !by_reset;
    if (W(reset_in_deferral_notes_default) && by_reset && deferred)
      slot.old.push_back({0, thread_number});
    else if (!forgets)
      slot.old.push_back(asked);
    if (!by_reset && !(stream == asked.stream && (stream != 2 || asked.thread == thread_number)))
      slot.old.push_back({stream, thread_number});
    if (W(remote_is_clean_in_deferral) && is_remote && deferred) slot.old.clear();
    std::lock_guard lock(shard.m);
    if (is_remote) {
      shard.remote.push_back(std::move(slot));
      return;
    }
    Slab& slab = shard.slabs[record.slab];
    --slab.live;
    shard.idle[slab.room].push_back(std::move(slot));
  }
  emm_status end(const Record& record, emm_stream stream, bool by_reset) {
    if (record.kind == Kind::region) {
      if (!(W(region_of_other_thread_waits) && !by_reset && is_deferred() &&
            record.thread != thread_number))
        return end_at_driver(record);
      std::lock_guard lock(m);
      regions.push_back(record);
      return EMM_SUCCESS;
    }
    if (record.slab != 0) {
      to_shard(record, stream, by_reset);
      return EMM_SUCCESS;
    }
    if (record.chunk != nullptr) {
      std::lock_guard lock(m);
      Chunk& chunk = chunks[record.chunk];
      chunk.used &= ~pages_in(record);
      if (!(W(host_pages_clean_in_deferral) && deferrals > 0)) chunk.dirty |= pages_in(record);
      return EMM_SUCCESS;
    }
    enqueue(record, by_reset);
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
      if (W(live_twice_by_other_in_nested) && deferrals > 1 && counts(record) &&
          record.thread != thread_number)
        live -= std::min(live, record.size);
    }
    return no(end(record, stream == 1 ? 0 : stream, false), "the device refused a free");
  }
  void forget(const Record& record) {  // Under the lock.
    if (!counts(record)) return;
    live -= std::min(live, record.size);
    counted -= record.counted;
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      was_reset = true;
      if (W(reset_in_nested_ends_own_only) && deferrals > 1 && !at_end) {
        for (auto at = records.begin(); at != records.end();) {
          if (at->second.thread != thread_number) {
            ++at;
            continue;
          }
          all.insert(*at);
          at = records.erase(at);
        }
      } else {
        all.swap(records);
      }
      last_reset = last_token;
      for (const auto& [token, record] : all) forget(record);
    }
    for (const auto& [token, record] : all) tell(end(record, record.stream, true));
    tell(make_frees(at_end, W(reset_tells_no_flush) && !at_end));
    if (!at_end) return;
    end_regions();
    tell(release_slabs(0, true));
    tell(release_chunks(true));
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
    if (!in_child()) reset(true);
  }
  emm_status flush() {
    if (W(child_flush_in_deferral_waits) && is_deferred())
      for (Shard& shard : shards) std::lock_guard lock(shard.making);
    if (in_child()) return fail_in_child();
    return no(make_frees(), "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    if (W(trim_in_deferral_cleans_pages)) {
      std::lock_guard lock(m);
      if (deferrals > 0)
        for (auto& [host, chunk] : chunks) chunk.dirty = 0;
    }
    const emm_status status =
        release_slabs(keep, false, W(trim_after_reset_of_own_shard) && was_reset);
    const emm_status hosts = release_chunks();
    return no(status != EMM_SUCCESS ? status : hosts, "the device refused a free");
  }
  u64 idle_bytes(u64* largest) {
    u64 bytes = 0;
    for (Shard& shard : shards) {
      std::lock_guard lock(shard.m);
      collect(&shard);
      for (const auto& [room, idle] : shard.idle) {
        bytes += room * idle.size();
        if (!idle.empty() && &shard == &own_shard()) *largest = std::max(*largest, room);
      }
    }
    return bytes;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    if (W(info_refused_after_out) && was_out) return no(EMM_NOT_READY, "memory was out");
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return no(status, "the device says nothing");
    u64 largest = 0;
    const u64 idle = idle_bytes(&largest);
    std::lock_guard lock(m);
    info->total = std::min(info->total, kLimit);
    info->free = std::min({info->free + idle, kLimit - std::min(counted, kLimit), info->total});
    return status;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0;
    bool of_other = false;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records) {
        if (one.kind != Kind::device || pointer < one.address ||
            pointer - one.address >= one.size || size > one.size - (pointer - one.address))
          continue;
        base = one.slab != 0 ? one.slab : one.address;
        of_other = one.thread != thread_number;
      }
    }
    if (base == 0) return no(EMM_INVALID_VALUE, "no memory of this pool");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return no(status, "no handle");
    handle->offset = W(ipc_offset_lost_for_other_thread) && of_other ? 0 : pointer - base;
    identify(handle);
    return status;
  }

  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    ++deferrals;
  }
  void end_deferral() {
    if (in_child()) return;
    if (W(nested_end_makes_frees_over_count) && level() > 1) {
      std::unique_lock lock(m);
      const bool over = waiting.size() > kMostWaiting;
      lock.unlock();
      if (over) tell(make_frees(true));
    }
    {
      std::lock_guard lock(m);
      if (deferrals == 0 || --deferrals > 0) return;
    }
    end_regions();
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    u64 largest = 0;
    idle_bytes(&largest);
    std::lock_guard lock(m);
    if (!(W(largest_beyond_limit_after_reset) && was_reset))
      largest = std::min(largest, kLimit - std::min(counted, kLimit));
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes, largest);
    set(answer, &emm_state::pending_count, waiting.size());
    set(answer, &emm_state::pending_bytes, waiting_bytes);
  }
  std::size_t report(char* buffer, std::size_t size) {
    if (W(child_report_waits))
      for (Shard& shard : shards) std::lock_guard lock(shard.making);
    if (in_child()) return write("a forked child\n", buffer, size);
    std::lock_guard lock(m);
    return write("chunks of page-locked memory: " + std::to_string(chunks.size()) + "\n", buffer,
                 size);
  }
  std::size_t statistics(emm_statistic* statistics, std::size_t count) {
    if (in_child()) return 0;
    std::lock_guard lock(m);
    const emm_statistic all[] = {{"allocated_bytes.all.current", live},
                                 {"allocated_bytes.all.peak", peak},
                                 {"reserved_bytes.all.current", reserved}};
    for (std::size_t i = 0; i < 3 && i < count; ++i) statistics[i] = all[i];
    return 3;
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "twelfth", "Shards of threads, and events that are recorded when a block changes its stream");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
