// A right manager, and by its option `wrong` some wrong ones: two-level segregated fit in arenas of
// the driver's memory. Free neighbours join at once and carry the events of everybody who used
// them. Page-locked memory is kept by size and flags until its events have passed, managed memory
// is freed late. tools/mutate runs them: the right one must pass every clause, each wrong one fail
// its own.
#define WRONG_TABLE "sixteenth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
constexpr u64 kUnit = 256, kArena = 16 * MiB, kHuge = 8 * MiB, kPage = 2 * MiB;
constexpr u64 kNoSize = u64{1} << 48;  // No device has as much.
constexpr emm_stream kPerThread = 2;

struct Event {
  emm_handle handle = 0;
};
struct Fence {
  emm_stream stream;
  u64 thread;  // Who recorded it. Records by one thread have an order.
  u64 number;
  std::shared_ptr<Event> event;
};
using Fences = std::vector<Fence>;

struct Arena;
struct Block {
  u64 at = 0, size = 0;
  Arena* arena = nullptr;
  bool free = false;
  Fences fences;
};
struct Arena {
  u64 at = 0, size = 0;
  std::map<u64, Block> blocks;  // By address.
};
struct HostBlock {
  void* at = nullptr;
  u64 size = 0;
  u32 flags = 0;
  u64 device = 0;
  Fences fences;
};
struct Live {
  Kind kind = Kind::device;
  u64 size = 0;
  emm_stream stream = 0;
  u64 thread = 0;
  Block* block = nullptr;
  u64 at = 0;
  HostBlock host;
};
struct Late {  // A free that was asked for and is not made yet.
  u64 at = 0, size = 0;
  Block* block = nullptr;  // Of device memory whose events could not be recorded.
};
}  // namespace

struct emm_manager : Common {
  std::mutex lock;
  std::map<u64, std::unique_ptr<Arena>> arenas;
  std::map<std::pair<int, int>, std::set<std::pair<u64, Block*>>> lists;  // By (first, second).
  std::map<emm_token, Live> live;
  emm_token last_token = 0;
  std::deque<Late> late;
  std::vector<HostBlock> idle_host;
  u64 deferrals = 0;
  u64 live_bytes = 0, live_count = 0, peak_bytes = 0, peak_count = 0, total_bytes = 0;
  u64 total_count = 0, freed_bytes = 0, ooms = 0, retries = 0;
  u64 held = 0, managed_bytes = 0, late_bytes = 0;
  bool was_full = false;
  std::mutex event_lock;  // The last one: nobody takes another below it.
  std::vector<emm_handle> spare;
  u64 fence_number = 0;

  // ---- events

  std::shared_ptr<Event> wrap(emm_handle handle) {
    return std::shared_ptr<Event>(new Event{handle}, [this](Event* event) {
      const std::lock_guard guard(event_lock);
      spare.push_back(event->handle);
      delete event;
    });
  }
  // Records an event on the stream. No event: it cannot be recorded.
  std::shared_ptr<Event> record(emm_stream stream) {
    emm_handle handle = 0;
    {
      const std::lock_guard guard(event_lock);
      if (!spare.empty()) handle = spare.back(), spare.pop_back();
    }
    if (handle == 0 && d->event_create(d->user, &handle) != EMM_SUCCESS) return nullptr;
    if (d->event_record(d->user, handle, stream) != EMM_SUCCESS) {
      if (W(refused_record_leaks_event)) return nullptr;
      auto back = wrap(handle);
      return nullptr;
    }
    return wrap(handle);
  }
  // Puts the order of the work on both streams into `fences`. False: nothing is known of it.
  bool order(const Live& one, emm_stream stream, Fences& fences) {
    std::vector<emm_stream> streams;
    if (!W(order_of_request_only)) streams.push_back(stream);
    if (W(order_of_free_only)) {
    } else if (W(order_of_free_only_after_out) && was_full) {
    } else if (W(order_of_free_only_in_deferral) && deferrals > 0) {
    } else if (one.stream != stream ||
               (stream == kPerThread && one.thread != thread_number && !W(per_thread_is_one)) ||
               streams.empty()) {
      if (one.stream == kPerThread && one.thread != thread_number && !W(per_thread_is_one))
        return wait_for_all();
      streams.push_back(one.stream);
    }
    for (const emm_stream each : streams) {
      auto event = record(each);
      if (event == nullptr) {
        if (W(refused_record_means_idle)) continue;
        return wait_for_all();
      }
      const std::lock_guard guard(event_lock);
      fences.push_back({each, thread_number, ++fence_number, std::move(event)});
    }
    return true;
  }
  bool wait_for_all() { return d->ctx_synchronize(d->user) == EMM_SUCCESS; }
  void join(Fences& into, const Fences& from) {
    for (const Fence& fence : from) {
      const auto found = std::find_if(into.begin(), into.end(), [&](const Fence& one) {
        return one.stream == fence.stream && one.thread == fence.thread;
      });
      if (found == into.end())
        into.push_back(fence);
      else if (W(join_keeps_first_event))
        ;
      else if (found->number < fence.number)
        *found = fence;
    }
  }
  bool passed(const Fences& fences) {
    return std::all_of(fences.begin(), fences.end(), [&](const Fence& fence) {
      return d->event_query(d->user, fence.event->handle) == EMM_SUCCESS;
    });
  }

  // ---- two-level segregated fit, under the lock

  std::pair<int, int> list_of(u64 size) const {
    const u64 units = size / kUnit;
    const int first = static_cast<int>(std::bit_width(units)) - 1;
    const int second = first < 4 ? static_cast<int>(units << (4 - first)) & 15
                                 : static_cast<int>(units >> (first - 4)) & 15;
    return {first, second};
  }
  void enter(Block* block) {
    block->free = true;
    lists[list_of(block->size)].emplace(block->at, block);
  }
  void leave(Block* block) {
    block->free = false;
    const auto at = lists.find(list_of(block->size));
    at->second.erase({block->at, block});
    if (at->second.empty()) lists.erase(at);
  }
  // The first block of a list above that of the size, or one of its own list that is large enough.
  Block* find(u64 size) {
    const auto own = list_of(size);
    const auto list = lists.lower_bound(own);
    if (list != lists.end() && list->first == own) {
      if (W(own_list_is_never_asked))
        return std::next(list) != lists.end() ? std::next(list)->second.begin()->second : nullptr;
      for (const auto& [at, block] : list->second)
        if (block->size >= size || W(own_list_is_not_measured)) return block;
      if (std::next(list) != lists.end()) return std::next(list)->second.begin()->second;
      return nullptr;
    }
    return list != lists.end() ? list->second.begin()->second : nullptr;
  }
  void cut(Block* block, u64 size) {
    if (block->size < size + kUnit) return;
    Block rest;
    rest.at = block->at + size;
    rest.size = block->size - size;
    rest.arena = block->arena;
    if (!W(rest_has_no_events) && !(W(rest_has_no_events_when_large) && rest.size > MiB))
      rest.fences = block->fences;
    block->size = size;
    auto* stored = &(block->arena->blocks[rest.at] = rest);
    enter(stored);
  }
  // Makes the block free, and one with its free neighbours.
  void uncut(Block* block) {
    auto& blocks = block->arena->blocks;
    auto at = blocks.find(block->at);
    if (auto next = std::next(at); next != blocks.end() && next->second.free) {
      const bool last = std::next(next) == blocks.end();
      if (!(W(last_block_never_joins) && last)) {
        leave(&next->second);
        block->size += next->second.size;
        if (!W(joined_loses_events_above)) join(block->fences, next->second.fences);
        blocks.erase(next);
      }
    }
    if (at != blocks.begin()) {
      auto before = std::prev(at);
      if (before->second.free && !(W(no_join_below_in_deferral) && deferrals > 0)) {
        leave(&before->second);
        before->second.size += block->size;
        if (W(joined_loses_events_below))
          before->second.fences = block->fences;
        else
          join(before->second.fences, block->fences);
        blocks.erase(at);
        block = &before->second;
      }
    }
    enter(block);
  }
  bool is_idle(const Arena& arena) const {
    return arena.blocks.size() == 1 && arena.blocks.begin()->second.free;
  }

  // ---- memory of the device

  emm_status add_arena(u64 size) {
    u64 at = 0;
    const emm_status status = d->mem_alloc(d->user, size, &at);
    if (status != EMM_SUCCESS) return status;
    auto arena = std::make_unique<Arena>();
    arena->at = at;
    arena->size = size;
    Block& block = arena->blocks[at];
    block.at = at;
    block.size = size;
    block.arena = arena.get();
    const std::lock_guard guard(lock);
    enter(&block);
    held += size;
    arenas.emplace(at, std::move(arena));
    return EMM_SUCCESS;
  }
  // Gives idle arenas back until no more than `keep` idle bytes are held.
  emm_status release(u64 keep) {
    std::vector<std::unique_ptr<Arena>> going;
    emm_status first = EMM_SUCCESS;
    std::unique_lock guard(lock);
    u64 idle = 0;
    for (const auto& [at, arena] : arenas)
      for (const auto& [where, block] : arena->blocks)
        if (block.free) idle += block.size;
    for (auto at = arenas.begin(); at != arenas.end() && idle > keep;) {
      if (!is_idle(*at->second)) {
        if (W(release_stops_at_busy_arena)) break;
        ++at;
        continue;
      }
      leave(&at->second->blocks.begin()->second);
      idle -= at->second->size;
      going.push_back(std::move(at->second));
      at = arenas.erase(at);
    }
    if (!W(lock_over_release)) guard.unlock();
    for (auto& arena : going) {
      const emm_status status = d->mem_free(d->user, arena->at);
      if (!guard.owns_lock()) guard.lock();
      if (status == EMM_SUCCESS) {
        held -= arena->size;
      } else {
        if (first == EMM_SUCCESS) first = status;
        if (W(refused_release_loses_arena)) {
          held -= arena->size;
        } else if (W(refused_release_loses_arena_but_counts)) {
        } else {
          enter(&arena->blocks.begin()->second);
          arenas.emplace(arena->at, std::move(arena));
        }
      }
      if (!W(lock_over_release)) guard.unlock();
    }
    if (guard.owns_lock()) guard.unlock();
    tell(first);
    return first;
  }
  // Whatever may help a request that the device had no memory for.
  void make_room(bool managed, u64 size) {
    {
      const std::lock_guard guard(lock);
      ++retries;
      was_full = true;
    }
    if (!(W(managed_leaves_late_frees) && managed) && !(W(device_leaves_late_frees) && !managed))
      make_late_frees(W(out_flushes_in_deferral));
    if (W(managed_leaves_idle_arenas) && managed) return;
    if (W(managed_leaves_idle_arenas_in_deferral) && managed && deferrals > 0) return;
    if (W(large_leaves_idle_arenas) && size > kHuge) return;
    release(0);
  }
  emm_status grow(u64 size) {
    const u64 wish = size > kHuge ? up(size, kPage) : kArena;
    emm_status status = add_arena(wish);
    if (status != EMM_OUT_OF_MEMORY) return status;
    if (wish > size) status = add_arena(size > kHuge ? size : up(size, std::min(kPage, wish)));
    if (status != EMM_OUT_OF_MEMORY) return status;
    make_room(false, size);
    {
      const std::lock_guard guard(lock);
      if (find(size) != nullptr) return EMM_SUCCESS;
    }
    return add_arena(size);
  }
  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "no bytes");
    if (!W(size_wraps) && size > kNoSize) return refuse("larger than any device");
    if (W(stays_full) && was_full && size > MiB) return refuse("it was full");
    const u64 need = up(size, kUnit);
    if (W(size_wraps) && need != 0 && need > kNoSize) return refuse("larger than any device");
    std::unique_lock guard(lock);
    Block* block = find(std::max(need, kUnit));
    for (int tries = 0; block == nullptr && tries < 8; ++tries) {
      if (W(counts_before_it_grows)) live_bytes += size;
      guard.unlock();
      const emm_status status =
          W(lock_over_growth) ? (guard.lock(), grow_locked(guard, need)) : grow(need);
      if (status == EMM_OUT_OF_MEMORY) return refuse("no memory");
      if (status != EMM_SUCCESS) return fail(status, "the device gave none");
      if (!guard.owns_lock()) guard.lock();
      if (W(counts_before_it_grows)) live_bytes -= size;
      block = find(need);
    }
    if (block == nullptr) {
      guard.unlock();
      return refuse("other threads took it");
    }
    leave(block);
    cut(block, std::max(need, kUnit));
    if (W(counts_before_it_waits)) live_bytes += size;
    Fences fences = block->fences;
    guard.unlock();
    for (const Fence& fence : fences) {
      const bool mine =
          fence.stream == stream &&
          (stream != kPerThread || fence.thread == thread_number || W(per_thread_is_one));
      if (mine) continue;
      if (W(no_wait_in_deferral_after_out) && deferrals > 0 && was_full) continue;
      if (W(waits_for_first_only) && &fence != &fences.front()) continue;
      const emm_status status = d->stream_wait_event(d->user, stream, fence.event->handle);
      if (status == EMM_SUCCESS) continue;
      guard.lock();
      if (W(refused_wait_loses_block)) return fail(status, "no order");
      if (W(refused_wait_forgets_events)) block->fences.clear();
      uncut(block);
      return fail(status, "no order");
    }
    guard.lock();
    block->fences.clear();
    Live one;
    one.size = size;
    one.stream = stream;
    one.thread = thread_number;
    one.block = block;
    one.at = block->at;
    if (W(counts_before_it_waits)) live_bytes -= size;
    memory->token = born(one, W(token_is_address) ? block->at : 0);
    memory->device_pointer = block->at;
    memory->host_pointer = nullptr;
    return EMM_SUCCESS;
  }
  emm_status grow_locked(std::unique_lock<std::mutex>& guard, u64 size) {
    u64 at = 0;
    const emm_status status = d->mem_alloc(d->user, up(size, kPage), &at);
    guard.unlock();
    if (status != EMM_SUCCESS) return grow(size);
    d->mem_free(d->user, at);
    return grow(size);
  }
  emm_status refuse(const char* words) {
    const std::lock_guard guard(lock);
    ++ooms;
    was_full = true;
    return fail(EMM_OUT_OF_MEMORY, words);
  }
  emm_token born(const Live& one, emm_token wish) {
    const emm_token token = wish != 0 ? wish : ++last_token;
    live[token] = one;
    if (counts(one.kind)) {
      live_bytes += one.size, total_bytes += one.size;
      ++live_count, ++total_count;
      if (!(W(peak_forgets_managed) && one.kind == Kind::managed) &&
          !(W(peak_forgets_deferral) && deferrals > 0))
        peak_bytes = std::max(peak_bytes, live_bytes);
      peak_count = std::max(peak_count, live_count);
    }
    return token;
  }
  static bool counts(Kind kind) { return kind == Kind::device || kind == Kind::managed; }
  void died(const Live& one) {
    if (!counts(one.kind)) return;
    if (W(managed_stays_live_in_deferral) && one.kind == Kind::managed && deferrals > 0) return;
    live_bytes -= one.size, freed_bytes += one.size;
    --live_count;
  }

  // ---- frees

  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return EMM_SUCCESS;
    Live one;
    {
      const std::lock_guard guard(lock);
      const auto found = live.find(token);
      if (found == live.end()) {
        if (W(late_free_is_an_error)) return fail(EMM_INVALID_VALUE, "no such token");
        if (W(late_free_lowers_count) && live_count > 0) --live_count;
        return token != 0 && token <= last_token ? EMM_SUCCESS
                                                 : fail(EMM_INVALID_VALUE, "no such token");
      }
      one = found->second;
      live.erase(found);
      died(one);
    }
    end(one, stream, false);
    if (pending_is_long()) make_late_frees(false);
    return EMM_SUCCESS;
  }
  bool pending_is_long() {
    const std::lock_guard guard(lock);
    return late.size() > 16 || late_bytes > 64 * MiB;
  }
  // Gives the memory up. `ordered`: no work uses it.
  void end(Live& one, emm_stream stream, bool ordered) {
    if (one.kind == Kind::device) {
      Fences fences;
      const bool known = ordered || order(one, stream, fences);
      if (!known) return put_off(one, one.block);
      const std::lock_guard guard(lock);
      one.block->fences = std::move(fences);
      uncut(one.block);
    } else if (one.kind == Kind::managed) {
      put_off(one, nullptr);
    } else if (one.kind == Kind::region) {
      tell(d->mem_host_unregister(d->user, one.host.at));
    } else {
      Fences fences;
      const bool known = ordered || order(one, stream, fences);
      if (!known) {  // The driver waits for whoever uses it.
        tell(d->mem_free_host(d->user, one.host.at));
        return;
      }
      one.host.fences = std::move(fences);
      if (W(host_kept_without_events) || (W(host_kept_without_events_in_deferral) && deferrals > 0))
        one.host.fences.clear();
      const std::lock_guard guard(lock);
      idle_host.push_back(one.host);
    }
  }
  void put_off(const Live& one, Block* block) {
    const u64 size = block != nullptr ? block->size : one.size;
    std::unique_lock guard(lock);
    late.push_back({one.at, size, block});
    late_bytes += size;
    if (W(tells_under_lock)) {
      tell_added(one.kind, size);
      return;
    }
    guard.unlock();
    tell_added(one.kind, size);
  }
  emm_status make_late_frees(bool anyway) {
    u64 count = 0, bytes = 0, left = 0;
    emm_status first = EMM_SUCCESS;
    {
      const std::lock_guard guard(lock);
      left = late.size();
    }
    for (; left > 0; --left) {
      Late one;
      {
        const std::lock_guard guard(lock);
        if ((deferrals > 0 && !anyway) || late.empty()) break;
        one = late.front();
        late.pop_front();
        if (!W(late_bytes_stay)) late_bytes -= one.size;
      }
      const emm_status status =
          one.block != nullptr ? d->ctx_synchronize(d->user) : d->mem_free(d->user, one.at);
      const std::lock_guard guard(lock);
      if (status != EMM_SUCCESS) {
        if (first == EMM_SUCCESS) first = status;
        if (W(refused_late_free_is_lost)) continue;
        late.push_back(one);
        late_bytes += one.size;
        continue;
      }
      ++count;
      bytes += one.size;
      if (one.block != nullptr) {
        one.block->fences.clear();
        uncut(one.block);
      } else {
        managed_bytes -= one.size;
      }
    }
    tell_flushed(count, W(tells_no_bytes) ? 0 : bytes);
    tell(first);
    return first;
  }
  emm_status flush() {
    if (in_child() && !W(child_waits_in_flush)) return EMM_SUCCESS;
    return make_late_frees(false);
  }

  // ---- the other kinds

  u64 host_class(u64 size) const {
    if (W(host_class_is_rounded_down) && size > MiB) return std::bit_floor(size);
    return std::bit_ceil(std::max(size, 4 * KiB));
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "no bytes");
    if (size > kNoSize) return fail(EMM_OUT_OF_MEMORY, "larger than any host");
    HostBlock block;
    std::vector<HostBlock> waiting;
    const u64 need = host_class(size);
    for (;;) {
      {
        const std::lock_guard guard(lock);
        const auto found =
            std::find_if(idle_host.begin(), idle_host.end(), [&](const HostBlock& one) {
              return (one.size == need || (W(host_serves_smaller) && one.size >= need / 2)) &&
                     (one.flags == flags || W(host_flags_are_one) ||
                      (W(host_portable_is_ignored) && (one.flags | 1) == (flags | 1)));
            });
        if (found == idle_host.end()) break;
        block = *found;
        idle_host.erase(found);
      }
      if (passed(block.fences) || W(host_is_not_asked)) break;
      waiting.push_back(block);
      block = HostBlock{};
    }
    {
      const std::lock_guard guard(lock);
      for (auto& one : waiting) idle_host.push_back(one);
      waiting.clear();
    }
    if (block.at == nullptr) {
      u64 got = need;
      emm_status status = d->mem_host_alloc(d->user, need, flags, &block.at);
      if (status == EMM_OUT_OF_MEMORY && !W(host_out_keeps_idle) &&
          !(W(host_out_keeps_idle_in_deferral) && deferrals > 0)) {
        make_late_frees(false);
        release_host();
        status = d->mem_host_alloc(d->user, need, flags, &block.at);
        if (status == EMM_OUT_OF_MEMORY && need > size) {
          if (!W(least_host_counts_as_class)) got = size;
          status = d->mem_host_alloc(d->user, size, flags, &block.at);
        }
      }
      if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
      block.size = got;
      block.flags = flags;
      if ((flags & EMM_HOST_MAPPED) != 0 || W(unmapped_has_pointer))
        status = d->mem_host_get_device_pointer(d->user, block.at, &block.device);
      if (status != EMM_SUCCESS && (flags & EMM_HOST_MAPPED) != 0) {
        if (!W(refused_pointer_leaks)) tell(d->mem_free_host(d->user, block.at));
        return fail(status, "no device pointer");
      }
    }
    block.fences.clear();
    Live one;
    one.kind = Kind::host;
    one.size = size;
    one.thread = thread_number;
    one.host = block;
    const std::lock_guard guard(lock);
    memory->token = born(one, 0);
    memory->device_pointer =
        (flags & EMM_HOST_MAPPED) != 0 || W(unmapped_has_pointer) ? block.device : 0;
    memory->host_pointer = block.at;
    return EMM_SUCCESS;
  }
  void release_host() {
    std::vector<HostBlock> going;
    {
      const std::lock_guard guard(lock);
      going.swap(idle_host);
    }
    for (auto& one : going) {
      const emm_status status = d->mem_free_host(d->user, one.at);
      tell(status);
      if (status == EMM_SUCCESS) continue;
      const std::lock_guard guard(lock);
      idle_host.push_back(one);
    }
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    u32 given = flags;
    if (W(pin_drops_io)) given &= ~u32{EMM_PIN_IO};
    if (W(pin_drops_read_only)) given &= ~u32{EMM_PIN_READ_ONLY};
    emm_status status = d->mem_host_register(d->user, pointer, size, given);
    if (status == EMM_OUT_OF_MEMORY) {
      make_late_frees(false);
      release_host();
      status = d->mem_host_register(d->user, pointer, size, given);
    }
    if (status != EMM_SUCCESS) return fail(status, "not pinned");
    Live one;
    one.kind = Kind::region;
    one.size = size;
    one.host.at = pointer;
    u64 device = 0;
    if ((flags & EMM_PIN_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, pointer, &device);
    if (status != EMM_SUCCESS) {
      if (!W(refused_pointer_stays_pinned)) tell(d->mem_host_unregister(d->user, pointer));
      return fail(status, "no device pointer");
    }
    const std::lock_guard guard(lock);
    memory->token = born(one, 0);
    memory->device_pointer = device;
    memory->host_pointer = pointer;
    return EMM_SUCCESS;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    u64 at = 0;
    if (W(attach_is_global)) attach = EMM_ATTACH_GLOBAL;
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &at);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(true, size);
      status = d->mem_alloc_managed(d->user, size, attach, &at);
    }
    if (status == EMM_OUT_OF_MEMORY) return refuse("no managed memory");
    if (status != EMM_SUCCESS) return fail(status, "no managed memory");
    Live one;
    one.kind = Kind::managed;
    one.size = size;
    one.at = at;
    const std::lock_guard guard(lock);
    managed_bytes += size;
    memory->token = born(one, 0);
    memory->device_pointer = at;
    memory->host_pointer = reinterpret_cast<void*>(at);
    return EMM_SUCCESS;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0, offset = 0;
    {
      const std::lock_guard guard(lock);
      auto at = arenas.upper_bound(pointer);
      if (at == arenas.begin()) return fail(EMM_INVALID_VALUE, "not of this manager");
      Arena& arena = *std::prev(at)->second;
      auto block = arena.blocks.upper_bound(pointer);
      if (block == arena.blocks.begin()) return fail(EMM_INVALID_VALUE, "not of this manager");
      const Block& one = std::prev(block)->second;
      if (pointer >= one.at + one.size || (one.free && !W(ipc_of_idle)))
        return fail(EMM_INVALID_VALUE, "not alive");
      if (W(ipc_begins_only) && pointer != one.at) return fail(EMM_INVALID_VALUE, "not a begin");
      if (!W(ipc_of_any_size) && size > one.at + one.size - pointer)
        return fail(EMM_INVALID_VALUE, "beyond its end");
      base = arena.at;
      offset = pointer - (W(ipc_offset_of_block) ? one.at : arena.at);
    }
    unsigned char bytes[64];
    const emm_status status = d->ipc_get_mem_handle(d->user, base, bytes);
    if (status != EMM_SUCCESS) return fail(status, "no handle");
    std::memcpy(handle->bytes, bytes, sizeof bytes);
    handle->offset = offset;
    identify(handle);
    return EMM_SUCCESS;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    u64 free = 0, total = 0;
    const emm_status status = d->mem_get_info(d->user, &free, &total);
    if (status != EMM_SUCCESS) return fail(status, "no information");
    info->free = free;
    info->total = total;
    return EMM_SUCCESS;
  }

  // ---- the life of the manager

  void initialize() {
    if (in_child()) return;
    if (W(initialize_begins_again)) {
      const std::lock_guard guard(lock);
      peak_bytes = 0;
    }
  }
  void reset(bool ending) {
    if (in_child()) return;
    std::map<emm_token, Live> gone;
    bool deferred = false;
    {
      const std::lock_guard guard(lock);
      deferred = deferrals > 0 && !ending;
      if (W(reset_leaves_host)) {
        for (auto at = live.begin(); at != live.end();)
          if (at->second.kind != Kind::host)
            gone.insert(*at), at = live.erase(at);
          else
            ++at;
      } else {
        gone.swap(live);
      }
      for (const auto& [token, one] : gone) {
        if (W(reset_leaves_count_in_deferral) && deferred) continue;
        died(one);
      }
      if (W(reset_begins_tokens_again)) last_token = 0;
      if (W(reset_ends_deferral)) deferrals = 0;
    }
    const bool ordered = gone.empty() || W(reset_does_not_wait) ||
                         (W(reset_does_not_wait_in_deferral) && deferred) || wait_for_all();
    for (auto& [token, one] : gone) {
      if (W(reset_leaves_regions_in_deferral) && deferred && one.kind == Kind::region) continue;
      end(one, one.stream, ordered);
    }
    if (deferred && !W(reset_flushes_in_deferral)) return;
    make_late_frees(ending || W(reset_flushes_in_deferral));
    release_host();
    release(0);
    const std::lock_guard guard(lock);
    was_full = false;
  }
  void end_manager() {
    if (in_child()) return;
    reset(true);
    arenas.clear();  // What could not be given back is the driver's to end.
    idle_host.clear();
    if (!W(end_leaks_spare_events))
      for (const emm_handle event : spare) tell(d->event_destroy(d->user, event));
  }
  void begin_deferral() {
    if (in_child()) return;
    const std::lock_guard guard(lock);
    ++deferrals;
    if (W(deferral_is_one)) deferrals = 1;
  }
  void end_deferral() {
    if (in_child()) return;
    const std::lock_guard guard(lock);
    if (deferrals > 0) --deferrals;
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    if (W(trim_does_nothing_in_deferral) && deferrals > 0) return EMM_SUCCESS;
    release_host();
    return release(W(trim_keeps_twice) ? keep + keep : keep);
  }
  void state(emm_state* state) {
    if (in_child()) {
      if (!W(child_waits_in_state)) return;
    }
    const std::lock_guard guard(lock);
    set(state, &emm_state::live_bytes, live_bytes);
    set(state, &emm_state::reserved_bytes, held + managed_bytes);
    u64 largest = 0;
    if (!lists.empty()) {
      for (const auto& [at, block] : lists.rbegin()->second) {
        largest = std::max(largest, block->size);
        if (W(largest_of_first)) break;
      }
    }
    if (W(largest_is_sum)) {
      largest = 0;
      for (const auto& [name, list] : lists)
        for (const auto& [at, block] : list) largest += block->size;
    }
    set(state, &emm_state::largest_free_bytes, largest);
    set(state, &emm_state::pending_count, late.size(), W(state_writes_all));
    set(state, &emm_state::pending_bytes, late_bytes, W(state_writes_all));
  }
  std::size_t statistics(emm_statistic* out, std::size_t count) {
    if (in_child()) return 0;
    const std::lock_guard guard(lock);
    const emm_statistic all[] = {{"requested_bytes.all.current", live_bytes},
                                 {"requested_bytes.all.peak", peak_bytes},
                                 {"requested_bytes.all.allocated", total_bytes},
                                 {"requested_bytes.all.freed", freed_bytes},
                                 {"allocation.all.current", live_count},
                                 {"allocation.all.peak", peak_count},
                                 {"allocation.all.allocated", total_count},
                                 {"reserved_bytes.all.current", held + managed_bytes},
                                 {"num_ooms", ooms},
                                 {"num_alloc_retries", retries}};
    const std::size_t all_count = std::size(all);
    for (std::size_t i = 0; i < all_count && (i < count); ++i) out[i] = all[i];
    return W(statistics_counts_written) ? std::min(count, all_count) : all_count;
  }
};

extern "C" const emm_plugin_table_v1* emm_plugin_v1() {
  static const emm_plugin_table_v1 table =
      table_of<emm_manager>("sixteenth", "two-level segregated fit in arenas");
  return &table;
}
