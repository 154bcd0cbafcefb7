// A right manager, and by its option `wrong` some wrong ones: slabs of one size class each, cut
// from a pool of the driver, with a thread that gives empty slabs back. Large blocks are the
// driver's pool's own. Managed memory is kept until its events have passed, page-locked memory is
// freed late, and the requested bytes of device memory have a limit. tools/mutate runs them: the
// right one must pass every clause, each wrong one fail its own.
#define WRONG_TABLE "seventeenth_wrong.def"
#include <condition_variable>
#include <thread>

#include "wrong_by_option.hpp"

namespace {
constexpr u64 kUnit = 256, kLargest = 256 * KiB;
constexpr u64 kEnoughEmpty = 4 * MiB, kKeptEmpty = 2 * MiB;  // When the thread begins, and ends.
constexpr u64 kNoSize = u64{1} << 48;                        // No device has as much.
constexpr emm_stream kPerThread = 2;
constexpr u32 kReleaseThreshold = 4, kReserved = 5, kUsed = 7;

struct Fence {
  emm_stream stream;
  u64 thread;
  std::shared_ptr<emm_handle> event;
};
using Fences = std::vector<Fence>;

struct Slab;
struct Slot {
  u64 at = 0;
  Slab* slab = nullptr;
  Fences fences;
};
struct Slab {
  u64 at = 0, size = 0, step = 0;
  u64 live = 0;
  std::vector<Slot> idle;
};
struct Managed {
  u64 at = 0, size = 0;
  u32 attach = 0;
  Fences fences;
};
struct Live {
  Kind kind = Kind::device;
  u64 size = 0, at = 0, held = 0;
  emm_stream stream = 0;
  u64 thread = 0;
  Slab* slab = nullptr;
  u32 attach = 0;
};
struct Late {
  Kind kind = Kind::host;
  u64 at = 0, size = 0;
  Slab* slab = nullptr;
};

// Four classes between two powers of two from 1 KiB on.
u64 class_of(u64 size) {
  const u64 units = up(size, kUnit);
  if (units <= KiB) return units;
  const u64 step = std::bit_floor(units - 1) / 4;
  return up(units, step);
}
}  // namespace

struct emm_manager : Common {
  std::mutex lock;
  std::map<u64, std::vector<std::unique_ptr<Slab>>> slabs;  // By size class.
  std::map<emm_token, Live> live;
  emm_token last_token = 0;
  std::deque<Late> late;
  std::vector<Managed> idle_managed;
  u64 deferrals = 0, late_bytes = 0;
  u64 live_bytes = 0, device_live = 0, live_count = 0, peak_bytes = 0, total_bytes = 0;
  u64 total_count = 0, ooms = 0, managed_held = 0, limit = 0, plain_held = 0;
  bool was_full = false;

  // What the first request makes.
  std::mutex making;
  bool made = false;
  emm_handle pool = 0;
  emm_stream own = 0;  // The frees of the thread, and of whoever has no stream.

  std::mutex event_lock;  // The last one.
  std::vector<emm_handle> spare;

  std::thread janitor;
  std::condition_variable wake, rested;
  bool ending = false, working = false;

  // ---- the beginning

  emm_status begin() {
    const std::lock_guard guard(making);
    if (made) return EMM_SUCCESS;
    u64 free = 0, total = 0;
    emm_status status = d->mem_get_info(d->user, &free, &total);
    if (status != EMM_SUCCESS) return status;
    if (has(d, &emm_driver_v1::mem_free_async) && d->mem_pool_create != nullptr) {
      if (pool == 0) {
        status = d->mem_pool_create(d->user, 0, &pool);
        if (status == EMM_NOT_SUPPORTED) pool = 0, status = EMM_SUCCESS;
        if (status != EMM_SUCCESS) return status;
      }
      if (pool != 0) {
        status = d->mem_pool_set_attribute(d->user, pool, kReleaseThreshold, ~u64{0});
        if (status != EMM_SUCCESS) return status;
      }
    }
    if (own == 0) status = d->stream_create(d->user, 1, &own);
    if (status != EMM_SUCCESS) return status;
    const std::lock_guard inner(lock);
    limit = total / 8 * 7;
    made = true;
    return EMM_SUCCESS;
  }
  void start_janitor() {  // Under the lock.
    if (!janitor.joinable() && !ending) janitor = std::thread([this] { tidy(); });
  }

  // ---- events

  std::shared_ptr<emm_handle> record(emm_stream stream) {
    emm_handle handle = 0;
    {
      const std::lock_guard guard(event_lock);
      if (!spare.empty()) handle = spare.back(), spare.pop_back();
    }
    if (handle == 0 && d->event_create(d->user, &handle) != EMM_SUCCESS) return nullptr;
    auto event = std::shared_ptr<emm_handle>(new emm_handle(handle), [this](emm_handle* one) {
      const std::lock_guard guard(event_lock);
      spare.push_back(*one);
      delete one;
    });
    return d->event_record(d->user, handle, stream) == EMM_SUCCESS ? event : nullptr;
  }
  bool wait_for_all() { return d->ctx_synchronize(d->user) == EMM_SUCCESS; }
  bool same_stream(emm_stream a, u64 a_thread, emm_stream b, u64 b_thread) const {
    return a == b && (a != kPerThread || a_thread == b_thread || W(per_thread_is_one));
  }
  bool order(const Live& one, emm_stream stream, Fences& fences) {
    const bool both = !same_stream(one.stream, one.thread, stream, thread_number);
    std::vector<emm_stream> streams{stream};
    if (W(free_stream_is_ignored_for_small) && one.slab != nullptr) streams.clear();
    if (both || streams.empty()) {
      if (W(request_stream_is_ignored_for_small) && one.slab != nullptr) {
      } else if (W(request_stream_is_ignored_for_managed) && one.kind == Kind::managed) {
      } else if (one.stream == kPerThread && one.thread != thread_number) {
        return wait_for_all();
      } else {
        streams.push_back(one.stream);
      }
    }
    for (const emm_stream each : streams) {
      auto event = record(each);
      if (event == nullptr) return W(refused_record_means_idle) || wait_for_all();
      fences.push_back({each, thread_number, std::move(event)});
    }
    return true;
  }
  bool passed(const Fences& fences) {
    return std::all_of(fences.begin(), fences.end(), [&](const Fence& fence) {
      return d->event_query(d->user, *fence.event) == EMM_SUCCESS;
    });
  }
  emm_status wait(emm_stream stream, const Fences& fences) {
    for (const Fence& fence : fences) {
      if (same_stream(fence.stream, fence.thread, stream, thread_number)) continue;
      const emm_status status = d->stream_wait_event(d->user, stream, *fence.event);
      if (status != EMM_SUCCESS) return status;
    }
    return EMM_SUCCESS;
  }

  // ---- the driver's pool

  emm_status take(u64 size, emm_stream stream, u64* at) {
    if (pool != 0) return d->mem_alloc_from_pool_async(d->user, size, pool, stream, at);
    return d->mem_alloc(d->user, size, at);
  }
  emm_status give(u64 at, emm_stream stream, const Fences& fences) {
    if (pool == 0) return d->mem_free(d->user, at);
    if (!W(slab_goes_without_wait)) {
      const emm_status status = wait(stream, fences);
      if (status != EMM_SUCCESS) return status;
    }
    return d->mem_free_async(d->user, at, stream);
  }

  // ---- slabs

  Fences fences_of(const Slab& slab) const {
    Fences all;
    for (const Slot& slot : slab.idle) {
      if (W(slab_waits_for_last_slot) && &slot != &slab.idle.back()) continue;
      all.insert(all.end(), slot.fences.begin(), slot.fences.end());
    }
    return all;
  }
  u64 empty_bytes() const {
    u64 bytes = 0;
    for (const auto& [step, list] : slabs)
      for (const auto& slab : list)
        if (slab->live == 0) bytes += slab->size;
    return bytes;
  }
  // Takes one empty slab out. The lock is held.
  std::unique_ptr<Slab> take_empty() {
    for (auto& [step, list] : slabs) {
      for (auto at = list.begin(); at != list.end(); ++at) {
        if ((*at)->live != 0 && !(W(empty_is_half_idle) && (*at)->idle.size() > (*at)->live))
          continue;
        if (W(small_slabs_are_never_empty) && step <= 512) continue;
        auto slab = std::move(*at);
        list.erase(at);
        return slab;
      }
    }
    return nullptr;
  }
  // Gives empty slabs back until no more than `keep` bytes of them are left.
  emm_status release_slabs(u64 keep) {
    emm_status first = EMM_SUCCESS;
    std::vector<std::unique_ptr<Slab>> refused;
    for (;;) {
      std::unique_ptr<Slab> slab;
      {
        const std::lock_guard guard(lock);
        if (empty_bytes() <= keep) break;
        slab = take_empty();
      }
      if (slab == nullptr) break;
      const emm_status status = give(slab->at, own, fences_of(*slab));
      const std::lock_guard guard(lock);
      if (status == EMM_SUCCESS) {
        if (pool == 0) plain_held -= slab->size;
        continue;
      }
      if (first == EMM_SUCCESS) first = status;
      refused.push_back(std::move(slab));
    }
    const std::lock_guard guard(lock);
    for (auto& slab : refused) {
      if (W(refused_slab_is_lost)) continue;
      if (W(refused_slab_forgets_events))
        for (Slot& slot : slab->idle) slot.fences.clear();
      const u64 step = slab->step;
      slabs[step].push_back(std::move(slab));
    }
    return first;
  }
  // The thread: gives empty slabs back while there are many.
  void tidy() {
    std::unique_lock guard(lock);
    while (!ending) {
      if (empty_bytes() <= kEnoughEmpty || (W(janitor_stops_in_deferral) && deferrals > 0)) {
        wake.wait(guard);
        continue;
      }
      working = true;
      if (!W(janitor_holds_lock)) guard.unlock();
      emm_status status = EMM_SUCCESS;
      if (W(janitor_holds_lock)) {
        while (empty_bytes() > kKeptEmpty) {
          auto slab = take_empty();
          if (slab == nullptr) break;
          status = give(slab->at, own, fences_of(*slab));
          if (status != EMM_SUCCESS) break;
        }
      } else {
        status = release_slabs(kKeptEmpty);
      }
      if (!guard.owns_lock()) guard.lock();
      working = false;
      rested.notify_all();
      if (status != EMM_SUCCESS) {
        guard.unlock();
        tell(status);
        guard.lock();
        if (W(janitor_ends_at_refusal)) return;
        if (!ending) wake.wait(guard);  // Until somebody frees again.
      }
    }
  }
  void wait_for_janitor() {
    std::unique_lock guard(lock);
    rested.wait(guard, [&] { return !working; });
  }

  emm_status add_slab(u64 step, emm_stream stream, bool least, Slot& slot) {
    const u64 size = least              ? step
                     : step <= 32 * KiB ? 256 * KiB / step * step
                                        : 2 * MiB / step * step;
    u64 at = 0;
    const emm_status status = take(size, stream, &at);
    if (status != EMM_SUCCESS) return status;
    auto slab = std::make_unique<Slab>();
    slab->at = at;
    slab->size = size;
    slab->step = step;
    slab->live = 1;
    // Work on another stream may use the other slots only after the pool's own work on this one.
    Fences born;
    if (pool != 0 && size > step && !W(new_slab_is_for_all_streams)) {
      auto event = record(stream);
      if (event == nullptr && !wait_for_all()) {
        give(at, own, {});
        return EMM_UNKNOWN_ERROR;
      }
      if (event != nullptr) born.push_back({stream, thread_number, std::move(event)});
    }
    for (u64 offset = step; offset + step <= size; offset += step)
      slab->idle.push_back({at + offset, slab.get(), born});
    slot = {at, slab.get(), {}};
    const std::lock_guard guard(lock);
    if (pool == 0) plain_held += size;
    slabs[step].push_back(std::move(slab));
    return EMM_SUCCESS;
  }
  // An idle slot of the class, one that needs no wait first. The lock is held.
  bool find(u64 step, emm_stream stream, Slot& slot) {
    const auto list = slabs.find(step);
    if (list == slabs.end()) return false;
    for (const bool any : {false, true}) {
      for (auto& slab : list->second) {
        for (std::size_t i = slab->idle.size(); i-- > 0;) {
          const bool own_ones = std::all_of(
              slab->idle[i].fences.begin(), slab->idle[i].fences.end(), [&](const Fence& fence) {
                return same_stream(fence.stream, fence.thread, stream, thread_number);
              });
          if (!own_ones && !any) break;  // The newest of each slab is looked at.
          slot = slab->idle[i];
          slab->idle.erase(slab->idle.begin() + static_cast<std::ptrdiff_t>(i));
          if (!(W(slot_found_after_out_is_not_counted) && was_full)) ++slab->live;
          return true;
        }
      }
    }
    return false;
  }
  void back(Slot slot) {  // The lock is held.
    if (!(W(back_in_deferral_is_not_counted) && deferrals > 0)) --slot.slab->live;
    slot.slab->idle.push_back(std::move(slot));
  }

  void make_room() {
    make_late_frees(W(out_flushes_in_deferral));
    wait_for_janitor();
    if (W(out_keeps_empty_slabs)) return;
    if (!(W(out_keeps_managed) || (W(out_keeps_managed_in_deferral) && deferrals > 0)))
      release_managed(0);
    release_slabs(0);
    if (!W(out_does_not_wait)) {
      d->stream_synchronize(d->user, own);
      if (!(W(out_does_not_wait_for_streams))) d->ctx_synchronize(d->user);
    }
    if (pool != 0) d->mem_pool_trim_to(d->user, pool, 0);
  }
  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "no bytes");
    if (size > kNoSize) return refuse("larger than any device");
    emm_status status = begin();
    if (status != EMM_SUCCESS) return fail(status, "it cannot begin");
    const u64 step = class_of(size);
    const u64 counted = W(limit_counts_classes) ? step
                        : W(limit_counts_large_by_page)
                            ? (size > kLargest ? up(size, 2 * MiB) : size)
                            : size;
    {
      const std::lock_guard guard(lock);
      const u64 waiting = W(limit_counts_late) ? late_bytes : 0;
      if (device_live + waiting + counted > limit || device_live + counted < counted) {
        if (W(limit_keeps_refused)) device_live += counted;
        ++ooms;
        return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
      }
      device_live += counted;  // Reserved, so that two threads cannot both pass.
    }
    Live one;
    one.size = size;
    one.held = counted;
    one.stream = stream;
    one.thread = thread_number;
    status = step <= kLargest ? small(step, stream, one) : large(size, stream, one);
    if (status != EMM_SUCCESS) {
      const std::lock_guard guard(lock);
      if (!(W(limit_keeps_out) && status == EMM_OUT_OF_MEMORY) &&
          !(W(limit_keeps_other_refusals) && status != EMM_OUT_OF_MEMORY))
        device_live -= counted;
      if (status == EMM_OUT_OF_MEMORY) ++ooms, was_full = true;
      return fail(status, "no memory");
    }
    const std::lock_guard guard(lock);
    memory->token = born(one);
    memory->device_pointer = one.at;
    memory->host_pointer = nullptr;
    return EMM_SUCCESS;
  }
  emm_status small(u64 step, emm_stream stream, Live& one) {
    Slot slot;
    std::unique_lock guard(lock);
    bool found = find(step, stream, slot);
    guard.unlock();
    if (!found) {
      emm_status status = add_slab(step, stream, false, slot);
      if (status == EMM_OUT_OF_MEMORY) {
        make_room();
        status = add_slab(step, stream, false, slot);
        if (status == EMM_OUT_OF_MEMORY) status = add_slab(step, stream, true, slot);
      }
      if (status == EMM_OUT_OF_MEMORY) {  // A slot of any class that is large enough.
        guard.lock();
        for (auto at = slabs.lower_bound(step); at != slabs.end() && !found; ++at)
          found = find(at->first, stream, slot);
        guard.unlock();
      }
      if (!found && status != EMM_SUCCESS) return status;
    }
    emm_status status = EMM_SUCCESS;
    if (!(W(no_wait_after_out) && was_full) && !(W(no_wait_in_deferral) && deferrals > 0))
      status = wait(stream, slot.fences);
    if (status != EMM_SUCCESS) {
      guard.lock();
      if (W(refused_wait_forgets_events)) slot.fences.clear();
      if (!W(refused_wait_loses_slot)) back(std::move(slot));
      return status;
    }
    one.slab = slot.slab;
    one.at = slot.at;
    return EMM_SUCCESS;
  }
  emm_status large(u64 size, emm_stream stream, Live& one) {
    emm_status status = take(size, stream, &one.at);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(size, stream, &one.at);
    }
    if (status == EMM_SUCCESS && pool == 0) {
      const std::lock_guard guard(lock);
      plain_held += size;
    }
    return status;
  }
  emm_status refuse(const char* words) {
    const std::lock_guard guard(lock);
    ++ooms;
    return fail(EMM_OUT_OF_MEMORY, words);
  }
  static bool counts(Kind kind) { return kind == Kind::device || kind == Kind::managed; }
  emm_token born(const Live& one) {
    live[++last_token] = one;
    if (counts(one.kind)) {
      live_bytes += one.size, total_bytes += one.size;
      ++live_count, ++total_count;
      peak_bytes = std::max(peak_bytes, live_bytes);
    }
    return last_token;
  }
  void died(const Live& one) {
    if (one.kind == Kind::device && !(W(limit_keeps_freed_in_deferral) && deferrals > 0))
      device_live -= one.held;
    if (!counts(one.kind)) return;
    live_bytes -= one.size;
    --live_count;
  }

  // ---- frees

  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return EMM_SUCCESS;
    Live one;
    {
      const std::lock_guard guard(lock);
      const auto found = live.find(token);
      if (found == live.end())
        return token != 0 && token <= last_token ? EMM_SUCCESS
                                                 : fail(EMM_INVALID_VALUE, "no such token");
      one = found->second;
      live.erase(found);
      died(one);
    }
    end(one, stream, false);
    bool many = false;
    {
      const std::lock_guard guard(lock);
      many = late.size() > 8 || late_bytes > 32 * MiB;
    }
    if (many) make_late_frees(false);
    return EMM_SUCCESS;
  }
  void end(const Live& one, emm_stream stream, bool ordered) {
    if (one.kind == Kind::region) {
      if (W(region_ends_late_in_deferral) && deferrals > 0) return put_off(one, Kind::region);
      tell(d->mem_host_unregister(d->user, reinterpret_cast<void*>(one.at)));
      return;
    }
    if (one.kind == Kind::host) return put_off(one, Kind::host);
    if (one.kind == Kind::device && one.slab == nullptr && pool != 0 && !ordered) {
      if (free_large(one, stream)) return;
    }
    Fences fences;
    if (!ordered && !order(one, stream, fences)) return put_off(one, one.kind);
    if (one.kind == Kind::managed) {
      if (W(managed_kept_without_events)) fences.clear();
      const std::lock_guard guard(lock);
      idle_managed.push_back({one.at, one.held, one.attach, std::move(fences)});
      return;
    }
    if (one.slab == nullptr) {
      if (give(one.at, own, fences) != EMM_SUCCESS) return put_off(one, one.kind);
      const std::lock_guard guard(lock);
      if (pool == 0) plain_held -= one.size;
      return;
    }
    const std::lock_guard guard(lock);
    back({one.at, one.slab, std::move(fences)});
    if (one.slab->live == 0 && empty_bytes() > kEnoughEmpty) {
      start_janitor();
      wake.notify_one();
    }
  }
  // Large memory goes back on the stream of its free, behind the one of its request.
  bool free_large(const Live& one, emm_stream stream) {
    if (!same_stream(one.stream, one.thread, stream, thread_number) &&
        !W(large_ignores_request_stream) &&
        !(W(large_ignores_request_stream_in_deferral) && deferrals > 0)) {
      if (one.stream == kPerThread && one.thread != thread_number) {
        if (!wait_for_all()) return false;
      } else {
        const auto event = record(one.stream);
        if (event == nullptr ? !wait_for_all()
                             : d->stream_wait_event(d->user, stream, *event) != EMM_SUCCESS)
          return false;
      }
    }
    const emm_status status = d->mem_free_async(d->user, one.at, stream);
    if (!W(refused_large_free_is_not_told)) tell(status);
    return status == EMM_SUCCESS;
  }
  void put_off(const Live& one, Kind kind) {
    const u64 size = one.slab != nullptr ? one.slab->step : one.size;
    {
      const std::lock_guard guard(lock);
      late.push_back(
          {kind, one.at, W(late_is_counted_by_page) ? up(size, 4 * KiB) : size, one.slab});
      late_bytes += late.back().size;
    }
    tell_added(kind, size);
  }
  emm_status make_late_frees(bool anyway) {
    u64 count = 0, bytes = 0, left = 0;
    emm_status first = EMM_SUCCESS;
    {
      const std::lock_guard guard(lock);
      left = late.size();
      if (W(nothing_late_is_not_found) && left == 0) return EMM_NOT_FOUND;
    }
    for (; left > 0; --left) {
      Late one;
      {
        const std::lock_guard guard(lock);
        if ((deferrals > 0 && !anyway) || late.empty()) break;
        one = late.front();
        late.pop_front();
        late_bytes -= one.size;
      }
      emm_status status = EMM_SUCCESS;
      if (one.kind == Kind::host) {
        status = d->mem_free_host(d->user, reinterpret_cast<void*>(one.at));
      } else if (one.kind == Kind::region) {
        status = d->mem_host_unregister(d->user, reinterpret_cast<void*>(one.at));
      } else {
        status = d->ctx_synchronize(d->user);
        if (status == EMM_SUCCESS && one.slab == nullptr)
          status = one.kind == Kind::managed || pool == 0 ? d->mem_free(d->user, one.at)
                                                          : d->mem_free_async(d->user, one.at, own);
      }
      const std::lock_guard guard(lock);
      if (status != EMM_SUCCESS) {
        if (first == EMM_SUCCESS) first = status;
        late.push_back(one);
        late_bytes += one.size;
        if (W(late_frees_end_at_refusal)) break;
        continue;
      }
      ++count;
      bytes += one.size;
      if (one.slab != nullptr) back({one.at, one.slab, {}});
      if (one.kind == Kind::managed) managed_held -= up(one.size, 64 * KiB);
      if (one.kind == Kind::device && one.slab == nullptr && pool == 0) plain_held -= one.size;
    }
    tell_flushed(count, bytes);
    tell(first);
    return first;
  }
  emm_status flush() {
    if (in_child()) return EMM_SUCCESS;
    return make_late_frees(false);
  }

  // ---- the other kinds

  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    void* at = nullptr;
    u64 device = 0;
    emm_status status = d->mem_host_alloc(d->user, size, flags, &at);
    if (status == EMM_OUT_OF_MEMORY && !W(host_out_keeps_late) &&
        !(W(unmapped_out_keeps_late) && (flags & EMM_HOST_MAPPED) == 0)) {
      make_late_frees(false);
      status = d->mem_host_alloc(d->user, size, flags, &at);
    }
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
    if ((flags & EMM_HOST_MAPPED) != 0)
      status = d->mem_host_get_device_pointer(d->user, at, &device);
    Live one;
    one.kind = Kind::host;
    one.size = size;
    one.at = reinterpret_cast<u64>(at);
    if (status != EMM_SUCCESS) {
      if (W(refused_pointer_frees_late))
        put_off(one, Kind::host);
      else
        tell(d->mem_free_host(d->user, at));
      return fail(status, "no device pointer");
    }
    const std::lock_guard guard(lock);
    memory->token = born(one);
    memory->device_pointer = device;
    memory->host_pointer = at;
    return EMM_SUCCESS;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      make_late_frees(false);
      status = d->mem_host_register(d->user, pointer, size, flags);
    }
    if (status != EMM_SUCCESS) return fail(status, "not pinned");
    u64 device = 0;
    if ((flags & EMM_PIN_MAPPED) != 0 || W(pin_is_always_mapped))
      status = d->mem_host_get_device_pointer(d->user, pointer, &device);
    if (status != EMM_SUCCESS) {
      tell(d->mem_host_unregister(d->user, pointer));
      return fail(status, "no device pointer");
    }
    Live one;
    one.kind = Kind::region;
    one.size = size;
    one.at = reinterpret_cast<u64>(pointer);
    const std::lock_guard guard(lock);
    memory->token = born(one);
    memory->device_pointer = device;
    memory->host_pointer = pointer;
    return EMM_SUCCESS;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "no bytes");
    if (size > kNoSize) return refuse("larger than any device");
    if (attach != EMM_ATTACH_GLOBAL && attach != EMM_ATTACH_HOST)
      return fail(EMM_INVALID_VALUE, "no such attachment");
    const u64 need = up(size, 64 * KiB);
    Managed block;
    std::vector<Managed> others;
    for (;;) {
      {
        const std::lock_guard guard(lock);
        const auto found =
            std::find_if(idle_managed.begin(), idle_managed.end(), [&](const Managed& one) {
              return one.size == need && (one.attach == attach || W(managed_serves_any_attach));
            });
        if (found == idle_managed.end()) break;
        block = std::move(*found);
        idle_managed.erase(found);
      }
      if (passed(block.fences) || (W(managed_is_not_asked_after_reset) && resets > 0)) break;
      others.push_back(std::move(block));
      block = Managed{};
    }
    {
      const std::lock_guard guard(lock);
      for (auto& one : others) idle_managed.push_back(std::move(one));
      others.clear();
    }
    if (block.at == 0) {
      emm_status status = d->mem_alloc_managed(d->user, need, attach, &block.at);
      if (status == EMM_OUT_OF_MEMORY) {
        if (W(managed_out_keeps_slabs))
          release_managed(0);
        else
          make_room();
        status = d->mem_alloc_managed(d->user, need, attach, &block.at);
      }
      if (status == EMM_OUT_OF_MEMORY) return refuse("no managed memory");
      if (status != EMM_SUCCESS) return fail(status, "no managed memory");
      const std::lock_guard guard(lock);
      managed_held += need;
    }
    block.fences.clear();
    Live one;
    one.kind = Kind::managed;
    one.size = size;
    one.held = need;
    one.at = block.at;
    one.attach = attach;
    one.thread = thread_number;
    const std::lock_guard guard(lock);
    memory->token = born(one);
    memory->device_pointer = block.at;
    memory->host_pointer = reinterpret_cast<void*>(block.at);
    return EMM_SUCCESS;
  }
  // Frees idle managed memory until no more than `keep` bytes of it are left.
  emm_status release_managed(u64 keep) {
    emm_status first = EMM_SUCCESS;
    std::vector<Managed> refused;
    for (;;) {
      Managed block;
      {
        const std::lock_guard guard(lock);
        u64 idle = 0;
        for (const Managed& one : idle_managed) idle += one.size;
        if (idle <= keep || idle_managed.empty()) break;
        block = std::move(idle_managed.back());
        idle_managed.pop_back();
      }
      const emm_status status = d->mem_free(d->user, block.at);
      const std::lock_guard guard(lock);
      if (status == EMM_SUCCESS) {
        if (!W(released_managed_stays_reserved)) managed_held -= block.size;
        continue;
      }
      if (first == EMM_SUCCESS) first = status;
      refused.push_back(std::move(block));
    }
    const std::lock_guard guard(lock);
    for (auto& one : refused) idle_managed.push_back(std::move(one));
    return first;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    u64 free = 0, total = 0;
    const emm_status status = d->mem_get_info(d->user, &free, &total);
    if (status != EMM_SUCCESS) return fail(status, "no information");
    const std::lock_guard guard(lock);
    if (W(info_adds_idle_twice)) free += 2 * empty_bytes();
    if (W(info_is_of_limit_after_out) && was_full) free = limit;
    info->free = W(info_adds_idle_twice) ? free : std::min(total, free + empty_bytes());
    info->total = total;
    return EMM_SUCCESS;
  }

  // ---- the life of the manager

  u64 resets = 0;

  void initialize() {
    if (in_child()) return;
    begin();
    if (W(initialize_counts_limit_again)) {
      const std::lock_guard guard(lock);
      device_live = 0;
    }
  }
  void reset(bool last) {
    if (in_child()) return;
    std::map<emm_token, Live> gone;
    bool deferred = false;
    {
      const std::lock_guard guard(lock);
      deferred = deferrals > 0 && !last;
      gone.swap(live);
      for (const auto& [token, one] : gone) {
        if (W(reset_keeps_limit) && one.kind == Kind::device) device_live += one.held;
        died(one);
      }
      ++resets;
    }
    const bool ordered = gone.empty() || W(reset_does_not_wait) || wait_for_all();
    for (const auto& [token, one] : gone) {
      if (W(reset_leaves_managed_in_deferral) && deferred && one.kind == Kind::managed) continue;
      end(one, one.stream, ordered);
    }
    if (deferred) return;
    if (!W(reset_forgets_late)) make_late_frees(last);
    if (W(reset_keeps_idle) && !last) return;
    trim(0);
  }
  void end_manager() {
    if (in_child()) return;
    if (!W(janitor_is_left_in_wait)) stop_janitor();
    reset(true);
    if (W(janitor_is_left_in_wait)) stop_janitor();
    slabs.clear();
    idle_managed.clear();
    if (pool != 0) {
      if (own != 0) d->stream_synchronize(d->user, own);
      tell(d->mem_pool_destroy(d->user, pool));
    }
    if (own != 0 && !W(end_leaks_own_stream)) tell(d->stream_destroy(d->user, own));
    for (const emm_handle event : spare) tell(d->event_destroy(d->user, event));
  }
  void stop_janitor() {
    {
      const std::lock_guard guard(lock);
      ending = true;
    }
    wake.notify_all();
    if (janitor.joinable()) janitor.join();
  }
  void begin_deferral() {
    if (in_child()) return;
    const std::lock_guard guard(lock);
    ++deferrals;
  }
  void end_deferral() {
    if (in_child()) return;
    {
      const std::lock_guard guard(lock);
      if (deferrals > 0) --deferrals;
      if (W(inner_end_ends_all)) deferrals = 0;
    }
    wake.notify_one();
  }
  u64 attribute(u32 which) {
    u64 value = 0;
    if (pool != 0 && d->mem_pool_get_attribute(d->user, pool, which, &value) != EMM_SUCCESS)
      return EMM_NOT_KNOWN;
    return value;
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    if (!made) return EMM_SUCCESS;
    wait_for_janitor();
    const emm_status first = release_managed(keep / 4);
    const emm_status second = release_slabs(keep / 4);
    emm_status third = EMM_SUCCESS;
    if (pool != 0 && !W(trim_leaves_pool) && !(W(trim_leaves_pool_in_deferral) && deferrals > 0)) {
      if (!W(trim_does_not_wait)) third = d->ctx_synchronize(d->user);
      const u64 used = attribute(kUsed);
      if (third == EMM_SUCCESS && used != EMM_NOT_KNOWN)
        third = d->mem_pool_trim_to(d->user, pool,
                                    W(trim_keeps_by_pool) ? keep + used : used + keep / 2);
    }
    return first != EMM_SUCCESS ? first : second != EMM_SUCCESS ? second : third;
  }
  void state(emm_state* state) {
    if (in_child()) return;
    const u64 reserved = made ? attribute(kReserved) : 0;
    const std::lock_guard guard(lock);
    set(state, &emm_state::live_bytes, W(live_has_no_managed) ? device_live : live_bytes);
    if (reserved != EMM_NOT_KNOWN)
      set(state, &emm_state::reserved_bytes,
          (W(reserved_has_no_managed) ? 0 : managed_held) + plain_held + reserved);
    set(state, &emm_state::pending_count, late.size());
    set(state, &emm_state::pending_bytes, late_bytes);
  }
  std::size_t statistics(emm_statistic* out, std::size_t count) {
    if (in_child()) return 0;
    const std::lock_guard guard(lock);
    const emm_statistic all[] = {
        {"requested_bytes.all.current", live_bytes},    {"requested_bytes.all.peak", peak_bytes},
        {"requested_bytes.all.allocated", total_bytes}, {"allocation.all.current", live_count},
        {"allocation.all.allocated", total_count},      {"num_ooms", ooms}};
    for (std::size_t i = 0; i < std::min(count, std::size(all)); ++i) out[i] = all[i];
    return std::size(all);
  }
};

extern "C" const emm_plugin_table_v1* emm_plugin_v1() {
  static const emm_plugin_table_v1 table =
      table_of<emm_manager>("seventeenth", "slabs from the driver's pool, and a thread");
  return &table;
}
