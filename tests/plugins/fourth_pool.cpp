// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way that
// an author may well miss: fourth_wrong.def has each way and the rule that it breaks. Slabs of the
// driver are cut into blocks; each stream has its own free blocks; what another stream freed waits
// for an event. Frees of host and managed memory wait in a queue.
#include <emm_plugin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

enum Wrong {
  right_one,
#define X(name, ...) name,
#include "fourth_wrong.def"

};
constexpr const char* kNames[] = {
    "right",
#define X(name, ...) #name,
#include "fourth_wrong.def"

};

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;
constexpr std::uint64_t kUnit = 512, kSmallSlab = 2 * MiB, kLargeSlab = 16 * MiB;
constexpr std::size_t kQueueLimit = 10;
constexpr bool within(std::uint64_t x, std::uint64_t from, std::uint64_t to) {
  return x >= from && x < to;
}
constexpr std::uint64_t up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

thread_local std::string error_text;
std::string error_of_any;
std::mutex error_mutex;
std::atomic<std::uint64_t> threads{0};
thread_local const std::uint64_t thread_number = ++threads;
std::atomic<int> deferrals_of_all{0};
thread_local emm_memory_info info_here{};
thread_local int deferrals_here = 0;

struct Slab;
struct Block {
  std::uint64_t address = 0, size = 0, key = 0, requested = 0, freed_at = 0;
  bool is_free = false;
  Slab* slab = nullptr;
  Block *below = nullptr, *above = nullptr;
  std::vector<emm_handle> work;  // Events that the next owner waits for.
};
struct Slab {
  std::uint64_t base = 0, size = 0, live = 0, skew = 0;
  Block* first = nullptr;
};
enum class Kind { device, managed, host, region };
struct Record {
  Kind kind;
  std::uint64_t size = 0, address = 0, thread = 0;
  void* host = nullptr;
  std::uint32_t flags = 0;
  Block* block = nullptr;
};
struct Waiting {
  Kind kind;
  std::uint64_t size, address;
  void* host;
  std::uint32_t flags;
};
using Index = std::set<std::tuple<std::uint64_t, std::uint64_t, Block*>>;

struct Shared {  // For the variant in which managers share.
  std::mutex mutex;
  std::map<std::uint64_t, Index> free;
} shared;

std::mutex managers_mutex;
std::set<emm_manager*> managers;
void end_thread(std::uint64_t number);
struct ThreadEnd {
  ~ThreadEnd() { end_thread(thread_number); }
};

}  // namespace

struct emm_manager {
  const emm_driver_v1* d = nullptr;
  const emm_host_v1* host = nullptr;
  Wrong wrong = right_one;
  std::uint64_t max = UINT64_MAX;

  std::mutex mutex;
  std::map<emm_token, Record> records;
  std::map<emm_token, Record> late;
  std::map<std::uint64_t, Slab*> slabs;
  std::map<std::uint64_t, Index> own_free;
  std::vector<Waiting> queue;
  emm_token last_token = 0, last_reset = 0;
  std::uint64_t live = 0, reserved = 0, clock = 0, peak = 0, pending_bytes = 0, allocs = 0,
                total = 0;
  int deferrals = 0;
  bool is_unordered = false, is_sticky = false, was_all = false, is_cut = false, poisoned = false;
  unsigned initializes = 0, resets = 0, events = 0, failures = 0;
  std::size_t pending_said = 0;
  emm_memory_info last_info{};
  bool wait_refused = false;
  bool has_info = false, deferred_reset = false, is_made = false, was_out = false,
       was_trimmed = false;
  std::uint64_t requests = 0, asked_in_all = 0;
  bool in_reset = false, is_again = false;
  std::uint64_t home = thread_number, deferred_by = 0;
  mutable std::mutex numbers_mutex;
  mutable std::map<emm_stream, std::uint64_t>
      numbers;  // Of streams, in the order of their first use.
  std::uint64_t largest_seen = 0;
  std::map<std::uint64_t, emm_ipc_handle> handles;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> trimmed;
  std::map<std::uint64_t, std::vector<Block*>> of_thread;

  bool is(Wrong one) const { return wrong == one; }
  std::map<std::uint64_t, Index>& free_blocks() { return is(one_for_all) ? shared.free : own_free; }
  std::mutex& guard() { return is(one_for_all) ? shared.mutex : mutex; }

  emm_status fail(emm_status status, const char* words) {
    if (status == EMM_SUCCESS) return status;
    error_text = words;
    const std::lock_guard lock(error_mutex);
    error_of_any = words;
    return status;
  }
  void tell(emm_status status) {
    if (status != EMM_SUCCESS && host != nullptr && host->free_failed != nullptr)
      host->free_failed(host->user, status, nullptr);
  }
  bool is_deferred() const {
    if (is(deferral_of_all)) return deferrals_of_all > 0;
    if (is(deferral_in_thread)) return deferrals_here > 0;
    if (is(reset_defers_once) && deferred_reset) return false;
    return deferrals > 0;
  }
  std::uint64_t key_of(emm_stream stream) const {
    if (stream == 1) return 0;
    if (stream != 2 && (is(streams_32) || is(streams_256))) {
      const std::lock_guard lock(numbers_mutex);
      const auto number = numbers.insert({stream, numbers.size()}).first->second;
      return number % (is(streams_32) ? 32 : 256) + 8;
    }
    if (stream != 2) return stream;
    if (is(per_thread_is_default)) return 0;
    if (is(per_thread_is_one)) return 2;
    return thread_number << 40 | 2;
  }

  // Free blocks. All under the lock.
  void insert(Block* block) {
    block->is_free = true;
    Index& index = free_blocks()[block->key];
    index.insert({block->size, block->address, block});
  }
  void remove(Block* block) {
    block->is_free = false;
    free_blocks()[block->key].erase({block->size, block->address, block});
  }
  void join(Block* low, Block* high) {
    low->size = is(merge_32_bits) ? static_cast<std::uint32_t>(low->size + high->size)
                                  : low->size + high->size;
    low->above = high->above;
    if (high->above != nullptr) high->above->below = low;
    if (is(one_event)) {
      if (low->work.empty())
        low->work = high->work;
      else
        tossed.insert(tossed.end(), high->work.begin(), high->work.end());
    } else {
      low->work.insert(low->work.end(), high->work.begin(), high->work.end());
    }
    low->freed_at = std::max(low->freed_at, high->freed_at);
    delete high;
  }
  std::vector<emm_handle> tossed;
  void put(Block* block) {
    block->freed_at = ++clock;
    if (is(unmerged)) return insert(block);
    Block* above = block->above;
    const auto same = [&](Block* other) { return other->key == block->key || is(merges_streams); };
    if (above != nullptr && above->is_free && same(above)) {
      if (is(stale_index) && above->size == block->size && above->size >= 4 * KiB) {
        Block* ghost = new Block(*above);
        remove(above);
        join(block, above);
        ghost->below = ghost->above = nullptr;
        ghost->slab = nullptr;
        ghost->work.clear();
        ghost->is_free = true;
        free_blocks()[ghost->key].insert({ghost->size, ghost->address, ghost});
      } else {
        remove(above);
        join(block, above);
      }
    } else if (is(merges_small_live) && above != nullptr && !above->is_free &&
               above->size == kUnit && above->above != nullptr && above->above->is_free) {
      block->size += kUnit;  // The neighbour's record still names it.
    }
    Block* below = block->below;
    if (below != nullptr && below->is_free && same(below)) {
      remove(below);
      if (is(merge_drops_below))
        tossed.insert(tossed.end(), block->work.begin(), block->work.end()), block->work.clear();
      join(below, block);
      block = below;
    }
    insert(block);
  }
  Block* find(std::uint64_t key, std::uint64_t need) {
    Index& index = free_blocks()[key];
    std::uint64_t least = need;
    if (is(hole_too_small) && within(need, 8 * MiB, 16 * MiB)) least -= kUnit;
    if (is(grows_for_ever)) {
      const auto same = index.lower_bound({need, 0, nullptr});
      if (same == index.end()) return nullptr;
      if (std::get<0>(*same) != need && std::get<2>(*same)->requested != 0 &&
          std::get<2>(*same)->slab != nullptr && std::get<2>(*same)->slab->live == 0)
        return nullptr;
      return std::get<2>(*same);
    }
    if (is(last_candidate)) {
      unsigned seen = 0;
      for (const auto& one : index) {
        if (std::get<0>(one) >= need) return std::get<2>(one);
        if (++seen == 64) return std::get<2>(one);
      }
      return nullptr;
    }
    const auto found = index.lower_bound({least, 0, nullptr});
    if (found == index.end() && is(takes_from_default) && key != 0) {
      const auto other = free_blocks()[0].lower_bound({least, 0, nullptr});
      if (other != free_blocks()[0].end()) return std::get<2>(*other);
    }
    return found == index.end() ? nullptr : std::get<2>(*found);
  }
  void split(Block* block, std::uint64_t need) {
    if (block->size < need + kUnit) return;
    Block* rest = new Block;
    rest->address = block->address + need;
    rest->size = block->size - need;
    if (is(split_32_bits)) rest->size = static_cast<std::uint32_t>(rest->size);
    rest->key = block->key;
    rest->slab = block->slab;
    rest->requested = need;
    rest->below = block;
    rest->above = block->above;
    if (rest->above != nullptr) rest->above->below = rest;
    block->above = rest;
    if (is(split_short) && within(need, 64 * KiB, 96 * KiB))
      rest->address -= kUnit, rest->size += kUnit;
    block->size = need;
    rest->freed_at = ++clock;
    if (rest->size == 0) {
      block->above = rest->above;
      if (rest->above) rest->above->below = block;
      delete rest;
      return;
    }
    insert(rest);
  }
  std::uint64_t rounded(std::uint64_t size) {
    ++requests;
    if (is(signed_sizes) && (size >> 31 & 1)) return UINT64_C(1) << 49;
    const std::uint64_t plain = up(size, kUnit);
    if (is(crowded) && records.size() > 1000 && size > 2 * KiB) return plain - kUnit;
    if (is(after_5000) && requests > 5000 && requests % 64 == 0 && plain > kUnit)
      return plain - kUnit;
    if (is(after_reset_short) && resets > 1 && within(size, MiB, 2 * MiB)) return plain - kUnit;
    if (is(rounds_down) && size > MiB && size % kUnit < 256 && size % kUnit > 0)
      return size / kUnit * kUnit;
    if (is(alignment_128) && within(size, 3000, 5001)) return up(size, 128);
    if (is(units_32_bits))
      return std::max<std::uint64_t>(kUnit, up(static_cast<std::uint32_t>(size), kUnit));
    const std::uint64_t need = up(size, kUnit);
    if (is(power_plus_granule) && need > 128 * KiB && ((need - kUnit) & (need - kUnit - 1)) == 0)
      return need - kUnit;
    return need;
  }

  void destroy_events(std::vector<emm_handle> events) {
    if (is(event_leak)) return;
    for (const emm_handle event : events) tell(d->event_destroy(d->user, event));
  }
  emm_status wait_for(Block* block, emm_stream stream) {
    if (block->work.empty()) return EMM_SUCCESS;
    if (is(queried_early) && (d->event_query(d->user, block->work[0]), block->work.size() > 1)) {
      destroy_events(std::exchange(block->work, {}));
      return EMM_SUCCESS;
    }
    for (const emm_handle event : block->work) {
      const emm_status status =
          d->stream_wait_event(d->user, is(waits_on_default) ? 0 : stream, event);
      if (status != EMM_SUCCESS) return status;
      if (is(waits_for_first)) break;
    }
    destroy_events(std::exchange(block->work, {}));
    return EMM_SUCCESS;
  }

  emm_status free_waiting(const Waiting& one) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, one.host);
    return d->mem_free(d->user, one.address);
  }
  emm_status flush(bool by_memory = false) {
    const auto holds_back = [&] {
      return is_deferred() && !is(flush_ignores_deferral) &&
             !(by_memory && (is(memory_out_ignores_deferral) || is(deferral_of_500) ||
                             is(deferral_of_bytes) || is(late_free_flushes)));
    };
    std::unique_lock lock(mutex);
    if (by_memory && is(drops_deferral_at_failure) && deferrals > 0) --deferrals;
    if (holds_back()) return EMM_SUCCESS;
    if (is(lock_in_host_free)) {
      for (const Waiting& one : queue) tell(free_waiting(one));
      queue.clear();
      pending_bytes = 0;
      return EMM_SUCCESS;
    }
    std::vector<Waiting> all = std::exchange(queue, {});
    if (is(flush_of_64) && all.size() > 64) {
      queue.assign(all.begin() + 64, all.end());
      all.resize(64);
    }
    if (is(flush_twice)) {
      all = queue = all;  // Cleared only when all are freed.
    }
    if (is(flush_frees_half) && all.size() > 4) {
      std::vector<Waiting> half;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (i % 2 == 0) half.push_back(all[i]);
      all = half;
    }
    if (!(is(pending_bytes_stay) && in_reset)) pending_bytes = 0;
    lock.unlock();
    emm_status first = EMM_SUCCESS;
    std::uint64_t bytes = 0;
    for (std::size_t at = 0; at < all.size(); ++at) {
      lock.lock();
      const bool has_begun = at > 0 && holds_back();  // On another thread, since the last free.
      if (has_begun) {
        for (std::size_t rest = at; rest < all.size(); ++rest) pending_bytes += all[rest].size;
        queue.insert(queue.begin(), all.begin() + static_cast<long>(at), all.end());
        all.resize(at);
      }
      lock.unlock();
      if (has_begun || (is(flush_stops) && first != EMM_SUCCESS)) break;
      const Waiting& one = all[at];
      const std::size_t said_before = pending_said;
      const emm_status status = free_waiting(one);
      if (is(pending_around_call)) pending_said = said_before - 1;
      if (first == EMM_SUCCESS && !is(flush_swallows)) first = status;
      bytes += one.size;
    }
    if (is(flush_twice)) {
      lock.lock();
      queue.clear();
    }
    if (!all.empty() && host != nullptr && host->flushed != nullptr)
      host->flushed(host->user, all.size(), bytes);
    return first;
  }
  void enqueue(const Record& record) {
    const Waiting one{record.kind, record.size, record.address, record.host, record.flags};
    bool is_full = false, is_over = false;
    {
      std::unique_lock lock(mutex);
      if ((is(deferral_frees_managed) && one.kind == Kind::managed && is_deferred()) ||
          (is(deferral_of_large) && one.kind == Kind::host && one.size < MiB && is_deferred()) ||
          (is(deferral_by_size) && one.kind == Kind::host && one.size >= MiB)) {
        lock.unlock();
        tell(free_waiting(one));
        return;
      }
      if (is(keeps_small_nests_not) && one.kind == Kind::host && one.size <= MiB) {
        kept_host.push_back(one);
        return;
      }
      if (is(queue_unlocked)) lock.unlock();
      if (!(is(queue_of_thirty_two) && queue.size() >= 32)) queue.push_back(one);
      if (is(queue_unlocked)) lock.lock();
      pending_bytes += one.size;
      ++pending_said;
      is_full = queue.size() > kQueueLimit;
      is_over = (is(deferral_of_500) && queue.size() > 500) ||
                (is(deferral_of_bytes) && pending_bytes > 64 * MiB);
    }
    if (host != nullptr && host->pending_added != nullptr)
      host->pending_added(host->user, one.kind == Kind::host ? "mem_free_host" : "mem_free",
                          one.size);
    if (is_full || is_over) tell(flush(is_over));
  }

  void free_kept_host() {
    std::vector<Waiting> all;
    {
      const std::lock_guard lock(mutex);
      all.swap(kept_host);
    }
    for (const Waiting& one : all) tell(free_waiting(one));
  }
  // Page-locked or managed memory of these flags that was freed, where a variant gives it again.
  bool take_again(Record& record, bool ordered) {
    const std::lock_guard lock(mutex);
    std::vector<Waiting>& all = ordered ? kept_host : queue;
    for (auto at = all.begin(); at != all.end(); ++at) {
      if (at->kind != record.kind || at->size != record.size || at->flags != record.flags) continue;
      record.address = at->address;
      record.host = at->host;
      if (!ordered) pending_bytes -= at->size;
      all.erase(at);
      return true;
    }
    return false;
  }
  bool are_many(Kind kind, std::size_t many) {
    const std::lock_guard lock(guard());
    std::size_t count = 0;
    for (const auto& [token, one] : records) count += one.kind == kind;
    return count >= many;
  }

  emm_status release(Slab* slab) {  // Not under the lock; the slab is out of every list.
    const emm_status status = d->mem_free(d->user, slab->base);

    delete slab->first;
    delete slab;
    return status;
  }
  // Releases slabs that are idle until no more than `keep` idle bytes are left.
  emm_status release_idle(std::uint64_t keep, bool by_trim) {
    std::vector<Slab*> out;
    std::vector<emm_handle> old;
    if (is(idle_looked_at_twice) && by_trim) {
      std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
      {
        const std::lock_guard lock(guard());
        std::uint64_t idle = 0;
        for (const auto& [base, slab] : slabs) {
          if (!slab->first->is_free || slab->first->above != nullptr) continue;
          idle += slab->size;
          if (idle > keep) found.push_back({base, slab->size});
        }
      }
      for (const auto& [base, size] : found) {
        tell(d->mem_free(d->user, base));
        const std::lock_guard lock(guard());
        const auto at = slabs.find(base);
        if (at == slabs.end()) continue;
        remove(at->second->first);
        old.insert(old.end(), at->second->first->work.begin(), at->second->first->work.end());
        reserved -= size;
        delete at->second->first;
        delete at->second;
        slabs.erase(at);
      }
      destroy_events(old);
      return EMM_SUCCESS;
    }
    {
      std::unique_lock lock(guard());
      if (is(trim_unlocked) && by_trim) lock.unlock();
      if (is_deferred()) return EMM_SUCCESS;
      std::uint64_t idle = 0;
      for (const auto& [base, slab] : slabs)
        if (slab->live == 0) idle += slab->size;
      if (by_trim) was_trimmed = true;
      if (by_trim && is(trim_in_mib)) keep = (keep / MiB + 1) * MiB * 2;
      if (by_trim && is(trim_keeps_all) && keep > 0) return EMM_SUCCESS;
      if (by_trim && is(trim_not_beside) && live > 0) return EMM_SUCCESS;
      if (by_trim && is(trim_not_after) && wait_refused) return EMM_SUCCESS;
      for (auto at = slabs.begin(); at != slabs.end();) {
        Slab* slab = at->second;
        Block* whole = slab->first;
        if (by_trim &&
            ((is(trim_one_stream) && whole->key != 0) || (is(trim_eight) && out.size() >= 8))) {
          ++at;
          continue;
        }
        const bool is_idle = whole->is_free && whole->above == nullptr;
        if (is(trim_frees_used) && by_trim && slab->live > 0 && slab->live < KiB &&
            idle <= keep + slab->size) {
          ++at;
          reserved -= slab->size;
          d->mem_free(d->user, slab->base);
          continue;
        }
        if (!is_idle || idle <= keep ||
            (by_trim && is(trim_keeps_too_much) && idle <= keep + slab->size)) {
          ++at;
          continue;
        }
        remove(whole);
        if (!(is(reset_leaks_events) && !by_trim))
          old.insert(old.end(), whole->work.begin(), whole->work.end());
        idle -= slab->size;
        if (!(is(reserved_after_trim) && by_trim)) reserved -= slab->size;
        if (!is(stale_handle)) handles.erase(slab->base);
        if (by_trim && is(trim_frees_twice)) trimmed.push_back({slab->base, slab->size});
        out.push_back(slab);
        at = slabs.erase(at);
        if (by_trim && is(trim_first_only)) break;
        if (!by_trim && is(reset_keeps_second_slab) && out.size() > 1 &&
            out[0]->size == slab->size) {
          out.pop_back();
          delete slab;
          delete whole;
        }
      }
    }
    emm_status first = EMM_SUCCESS;
    for (Slab* slab : out) {
      const emm_status status = release(slab);
      if (first == EMM_SUCCESS) first = status;
    }
    destroy_events(old);
    return first;
  }
  // Waits for the device, and gives all free blocks to one stream.
  emm_status settle(std::uint64_t key) {
    std::uint64_t until = 0;
    std::unique_lock lock(guard());
    until = clock;
    if (!is(lock_in_synchronize)) lock.unlock();
    const emm_status status = is(steals_unsynchronized) ? EMM_SUCCESS : d->ctx_synchronize(d->user);
    if (is(failed_settle) && status != EMM_SUCCESS) {
    } else if (status != EMM_SUCCESS)
      return status;
    if (!is(lock_in_synchronize)) lock.lock();
    if (is(settles_late_frees)) until = clock;
    std::vector<emm_handle> old;
    for (const auto& [base, slab] : slabs) {
      for (Block* block = slab->first; block != nullptr; block = block->above) {
        if (!block->is_free || block->freed_at > until) continue;
        remove(block);
        old.insert(old.end(), block->work.begin(), block->work.end());
        block->work.clear();
        block->key = key;
        insert(block);
        while (!is(unmerged) && block->below != nullptr && block->below->is_free &&
               block->below->key == key) {
          Block* low = block->below;
          remove(low);
          remove(block);
          join(low, block);
          insert(low);
          block = low;
        }
      }
    }
    lock.unlock();
    if (!is(settle_leaks_events)) destroy_events(old);
    return EMM_SUCCESS;
  }
  emm_status new_slab(std::uint64_t need, bool is_exact, std::uint64_t key, Block** block) {
    const std::uint64_t skew =
        is(alignment_by_slab) || (is(alignment_large) && need >= 256 * MiB) ? 64 : 0;
    if (is(alignment_large) && need >= 256 * MiB) is_exact = true;
    std::uint64_t size = is_exact                 ? up(need + (skew ? kUnit : 0), kUnit)
                         : need <= MiB            ? kSmallSlab
                         : need <= kLargeSlab / 2 ? kLargeSlab
                                                  : up(need, 2 * MiB);
    if (is(slab_down) && need > GiB && need % (2 * MiB) != 0) size = need / (2 * MiB) * (2 * MiB);
    {
      const std::lock_guard lock(guard());
      if (is(slabs_64) && slabs.size() >= 64) return EMM_OUT_OF_MEMORY;
      if (reserved + size > max) return EMM_OUT_OF_MEMORY;
      if (!is(reserved_around_call)) reserved += size;
    }
    const std::uint64_t held_before = reserved;
    std::uint64_t base = 0;
    std::unique_lock held(guard(), std::defer_lock);
    if (is(lock_in_mem_alloc)) held.lock();
    emm_status status = d->mem_alloc(d->user, size, &base);
    if (held.owns_lock()) held.unlock();
    if (is(any_error_is_memory) && status != EMM_SUCCESS) status = EMM_OUT_OF_MEMORY;
    const std::lock_guard lock(guard());
    if (status != EMM_SUCCESS) {
      if (!(is(cap_shrinks) && status == EMM_OUT_OF_MEMORY && is_exact) &&
          !is(reserved_around_call))
        reserved -= size;
      return status;
    }
    if (is(reserved_around_call)) reserved = held_before + size;
    Slab* slab = new Slab;
    slab->base = base;
    slab->size = size;
    slab->skew = skew != 0 && size / MiB % 2 == 1 ? skew : 0;
    if (is(alignment_large) && size > 256 * MiB) slab->skew = 128;
    Block* whole = new Block;
    whole->address = base + slab->skew;
    whole->size = size - (slab->skew != 0 ? kUnit : 0);
    whole->key = key;
    whole->slab = slab;
    slab->first = whole;
    slabs[base] = slab;
    if (is(merges_slabs)) {
      const auto at = slabs.find(base);
      if (at != slabs.begin()) {
        Slab* before = std::prev(at)->second;
        Block* last = before->first;
        while (last->above != nullptr) last = last->above;
        if (before->base + before->size == base && last->is_free && last->key == key) {
          remove(last);
          last->size += whole->size;
          before->size += size;
          slabs.erase(at);
          delete slab;
          delete whole;
          *block = last;
          return EMM_SUCCESS;
        }
      }
    }
    *block = whole;
    return EMM_SUCCESS;
  }
  emm_status make_ordered() {
    {
      const std::lock_guard lock(guard());
      if (!is_unordered) return EMM_SUCCESS;
      is_unordered = false;
    }
    const emm_status status = d->ctx_synchronize(d->user);
    if (status == EMM_SUCCESS) return status;
    const std::lock_guard lock(guard());
    is_unordered = true;
    return status;
  }

  emm_status take(std::uint64_t need, emm_stream stream, Block** answer) {
    const std::uint64_t key = key_of(stream);
    for (int turn = 0;; ++turn) {
      Block* block = nullptr;
      {
        const std::lock_guard lock(guard());
        block = find(key, need);
        if (block != nullptr) remove(block);
      }
      if (block != nullptr) {
        emm_status status = make_ordered();
        if (status == EMM_SUCCESS) status = wait_for(block, stream);
        if (is(failed_wait_taken) && status != EMM_SUCCESS) {
          destroy_events(std::exchange(block->work, {}));
          status = EMM_SUCCESS;
        }
        wait_refused = wait_refused || status != EMM_SUCCESS;
        if (is(failed_wait_loses) && status != EMM_SUCCESS) {
          destroy_events(std::exchange(block->work, {}));
          return status;
        }
        if (status != EMM_SUCCESS) {
          const std::lock_guard lock(guard());
          insert(block);
          return status;
        }
        *answer = block;
        return EMM_SUCCESS;
      }
      emm_status status = new_slab(need, false, key, answer);
      if (status == EMM_OUT_OF_MEMORY) status = new_slab(need, true, key, answer);
      if (status != EMM_OUT_OF_MEMORY) return status;
      if (turn == 0) {
        tell(flush(!is(deferral_of_500) && !is(deferral_of_bytes) && !is(late_free_flushes)));
        status = settle(key);
        if (status != EMM_SUCCESS) return EMM_OUT_OF_MEMORY;
      } else if (turn == 1) {
        if (is(refuses_fragments) || (is(memory_out_once) && std::exchange(was_out, true)))
          return EMM_OUT_OF_MEMORY;
        tell(release_idle(0, false));
      } else {
        return EMM_OUT_OF_MEMORY;
      }
    }
  }

  emm_status hand_out(Record record, emm_memory* memory) {
    const std::lock_guard lock(guard());
    if (is(live_20000) && records.size() >= 20'000) return EMM_OUT_OF_MEMORY;
    if (is(live_4096) && records.size() >= 4096) return EMM_OUT_OF_MEMORY;
    if (is(tokens_10000) && total >= 10000) return EMM_OUT_OF_MEMORY;
    if (is(tokens_16_bits) && last_token >= 65535) return EMM_OUT_OF_MEMORY;
    ++total;
    record.thread = thread_number;
    if (is(thread_frees)) {
      static thread_local ThreadEnd end;
      (void)&end;
    }
    emm_token token = ++last_token;
    if (is(tokens_16_bits_again)) token = (token & 0xffff) | 0x10000;
    if (is(token_17_bits)) token = (token & 0x1ffff) | 0x20000;
    if (record.kind == Kind::device || record.kind == Kind::managed) {
      const std::uint64_t size = is(live_rounded) ? up(record.size, kUnit) : record.size;
      if (!is(count_unlocked) && !(is(live_around_call) && record.kind == Kind::managed))
        live += size;
      peak = std::max(peak, is(peak_late) ? live - std::min(live, size) : live);
      if (is(peak_of_all)) peak = std::max(peak, asked_in_all += size);
    }
    if (is(error_forgotten)) error_text.clear();
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = is(device_on_host) && record.kind == Kind::device
                               ? reinterpret_cast<void*>(record.address)
                               : record.host;
    if (is(heap_of_tokens)) late[token + (UINT64_C(1) << 40)] = record;
    records[token] = record;
    return EMM_SUCCESS;
  }
  void count(std::int64_t by) {
    if (!is(count_unlocked)) return;
    volatile std::uint64_t* where = &live;
    const std::uint64_t before = *where;
    std::this_thread::yield();
    *where = before + static_cast<std::uint64_t>(by);
  }

  emm_status memalloc(std::uint64_t size, emm_stream stream, emm_memory* memory) {
    if (size == 0) {
      if (is(zero_one_token)) {
        memory->token = UINT64_MAX;
        return EMM_SUCCESS;
      }
      if (!is(zero_shares)) return fail(EMM_INVALID_VALUE, "0 bytes were asked for");
      const std::lock_guard lock(guard());
      Block* next = find(key_of(stream), kUnit);
      if (next == nullptr) return EMM_INVALID_VALUE;
      memory->device_pointer = next->address;
      memory->token = 0;
      return EMM_SUCCESS;
    }
    if (size > UINT64_C(1) << 50 && !(is(round_overflow) && size > UINT64_MAX - kUnit)) {
      ++failures;
      if (is(failure_has_token)) memory->token = last_token + 1;
      if (is(peak_of_refused)) peak = std::max(peak, live + size);
      return fail(EMM_OUT_OF_MEMORY, "more was asked for than any device has");
    }
    if ((is(gives_up_after) && failures >= 10) || (is(gives_up_after_100) && failures >= 100))
      return fail(EMM_OUT_OF_MEMORY, "no memory");
    std::uint64_t need = rounded(size);
    if (is(round_overflow) && size > UINT64_MAX - kUnit) need = kUnit;
    if (is(sticky_failure) && is_sticky && size < MiB) return fail(EMM_OUT_OF_MEMORY, "no memory");
    if (is(late_free_fails_later) && std::exchange(poisoned, false))
      return fail(EMM_UNKNOWN_ERROR, "bad free");
    if (is(after_failure_short) && std::exchange(is_cut, false) && need > 4 * kUnit) need -= kUnit;
    Block* block = nullptr;
    if (is(thread_keeps) && need <= 64 * KiB) {
      const std::lock_guard lock(guard());
      auto& mine = of_thread[thread_number];
      for (auto at = mine.begin(); at != mine.end(); ++at) {
        if ((*at)->size == need && (*at)->key == key_of(stream)) {
          block = *at;
          mine.erase(at);
          break;
        }
      }
      if (block != nullptr) goto found;
    }
    {
      const emm_status status = take(need, stream, &block);
      if (status != EMM_SUCCESS) {
        ++failures;
        is_cut = status == EMM_OUT_OF_MEMORY;
        if (status == EMM_OUT_OF_MEMORY) is_sticky = true;
        if (is(failed_counts)) live += size;
        if (is(heap_of_failures)) {
          volatile char* lost = static_cast<char*>(std::malloc(96));
          if (lost != nullptr) lost[0] = 1;
        }
        if (is(info_swapped)) has_info = true;
        return fail(status, status == EMM_OUT_OF_MEMORY
                                ? "the device has no more memory, and the pool neither"
                                : "the device refused");
      }
    }
    {
      const std::lock_guard lock(guard());
      split(block, need);
    }
  found:
    block->requested = size;
    {
      const std::lock_guard lock(guard());
      if (block->slab != nullptr) block->slab->live += block->size;
    }
    const emm_status status = hand_out(
        {.kind = Kind::device, .size = size, .address = block->address, .block = block}, memory);
    if (status != EMM_SUCCESS) {
      const std::lock_guard lock(guard());
      if (block->slab != nullptr) block->slab->live -= block->size;
      put(block);
      return fail(status, "no more tokens");
    }
    count(static_cast<std::int64_t>(size));
    if (is(canary)) d->memset_d8(d->user, block->address + size, 0xCA, 8);
    if (is(clears_at_reuse) && size >= 64 && block->freed_at != 0)
      d->memset_d8_async(d->user, block->address, 0, 64, 0);
    return EMM_SUCCESS;
  }

  void give(Block* block, emm_stream stream, bool is_reset) {
    const std::uint64_t key = key_of(stream);
    const bool is_skipped = is(other_stream_ignored) || (is(events_256) && events >= 256) ||
                            (is(small_unordered) && block->size < MiB) ||
                            (is(default_orders_all) && key == 0) ||
                            (is(raw_per_thread) && stream == 2 && (block->key & 0xff) == 2);
    if (!is_reset && key != block->key && !is_skipped) {
      ++events;
      emm_handle event = 0;
      bool is_done = false;
      if (d->event_create(d->user, &event) == EMM_SUCCESS) {
        if (d->event_record(d->user, event, is(event_on_owner) ? block->key : stream) ==
            EMM_SUCCESS) {
          block->work.push_back(event);
          is_done = true;
        } else {
          tell(d->event_destroy(d->user, event));
        }
      }
      if (is(no_event_no_wait) && event == 0) is_done = true;
      if (is(no_record_no_wait) && event != 0) is_done = true;
      if (!is_done && d->ctx_synchronize(d->user) != EMM_SUCCESS) {
        const std::lock_guard lock(guard());
        is_unordered = true;
      }
    }
    if (is(writes_header) && block->size >= 2 * MiB)
      d->memset_d8(d->user, block->address + block->size, 0xAB, 8);
    std::unique_lock lock(guard());
    if (is(free_unlocked)) lock.unlock();
    if (block->slab != nullptr) block->slab->live -= block->size;
    if (is(thread_keeps) && block->size <= 64 * KiB && !is_reset && block->work.empty()) {
      of_thread[thread_number].push_back(block);
      return;
    }
    if (is(deep_fragments) && free_blocks()[block->key].size() > 200 && block->above != nullptr &&
        !block->above->is_free && block->above->size > kUnit) {
      block->size += kUnit;
    }
    if (is(own_end_overlap) && block->above == nullptr && block->below != nullptr &&
        block->size == block->below->size && !block->below->is_free && block->size > 4 * KiB) {
      Block* other = block->below;
      for (auto& [token, one] : records)
        if (one.block == other) one.block = block;
      block = other;
    }
    if (is(frees_in_order)) {
      for (auto& [token, one] : records) {
        if (one.kind == Kind::device && one.block->size == block->size && one.block != block) {
          std::swap(one.block, block);
          break;
        }
      }
    }
    put(block);
  }

  emm_status end(Record record, emm_stream stream, bool is_reset) {
    if (record.kind == Kind::device || record.kind == Kind::managed) {
      const std::lock_guard lock(guard());
      if (!(is(live_without_managed_end) && record.kind == Kind::managed) && !is(count_unlocked))
        live -= is(live_rounded) ? up(record.size, kUnit) : record.size;
    }
    if (record.kind == Kind::device || record.kind == Kind::managed)
      count(-static_cast<std::int64_t>(record.size));
    switch (record.kind) {
      case Kind::device:
        if (is(reset_keeps_small_blocks) && is_reset && record.block->size < 4 * KiB)
          return EMM_SUCCESS;
        give(record.block, is_reset ? 0 : stream, is_reset);
        return EMM_SUCCESS;
      case Kind::region:
        if (is_reset && is(reset_keeps_mapped_regions) && (record.flags & EMM_PIN_MAPPED))
          return EMM_SUCCESS;
        if (is_reset && is(reset_keeps_large_regions) && record.size >= 64 * KiB)
          return EMM_SUCCESS;
        if (is(deferral_keeps_regions) && is_deferred()) {
          const std::lock_guard lock(mutex);
          kept_regions.push_back(record.host);
          return EMM_SUCCESS;
        }
        {
          void* where = record.host;
          if (is(unpin_by_page))
            where =
                reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(where) & ~UINT64_C(4095));
          const emm_status status = d->mem_host_unregister(d->user, where);
          return is(free_swallows) ? EMM_SUCCESS : status;
        }
      case Kind::managed:
        if (is_reset && is(late_unmapped) && is_deferred()) return EMM_SUCCESS;
        if (is_reset && is(reset_keeps_host_attached) && record.flags == EMM_ATTACH_HOST)
          return EMM_SUCCESS;
        [[fallthrough]];
      case Kind::host:
        enqueue(record);
        return EMM_SUCCESS;
    }
    return EMM_SUCCESS;
  }
  std::vector<void*> kept_regions;
  std::vector<Waiting> kept_host;  // Of keeps_small_nests_not.

  emm_status free_token(emm_token token, emm_stream stream) {
    Record record{};
    {
      std::unique_lock lock(guard());
      if (is(free_unlocked)) lock.unlock();
      const auto found = records.find(token);
      if (found == records.end()) {
        if (is(zero_one_token) && token == UINT64_MAX) return EMM_SUCCESS;
        const bool is_late = token <= last_reset;
        if (is_late && is(late_free_counts)) live -= std::min<std::uint64_t>(live, 512);
        if (is_late && is(late_free_fails_later)) poisoned = true;
        if (is_late && is(late_free_flushes)) {
          lock.unlock();
          return flush(true);
        }
        if (is_late && is(late_free_unpins)) {
          const auto old = late.find(token);
          if (old != late.end() && old->second.kind == Kind::region) {
            void* const region = old->second.host;
            late.erase(old);
            return d->mem_host_unregister(d->user, region);
          }
        }
        return is_late ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "this token names nothing");
      }
      record = found->second;
      if (is(free_unlocked)) std::this_thread::yield();
      records.erase(found);
    }
    if (is(host_on_stream) && record.kind == Kind::host && stream != 0)
      return fail(EMM_INVALID_VALUE, "host memory has no stream");
    return fail(end(record, stream, false), "the device refused a free");
  }

  template <class Ask>
  emm_status ask(Record record, bool maps, Ask&& how, emm_memory* memory) {
    emm_status status = how(record);
    if (status == EMM_OUT_OF_MEMORY) {
      tell(flush(!is(deferral_of_500) && !is(deferral_of_bytes) && !is(late_free_flushes)));
      tell(release_idle(0, false));
      free_kept_host();
      is_again = true;
      status = how(record);
      is_again = false;
    }
    if (status != EMM_SUCCESS && is(error_without_words) && record.kind != Kind::region)
      return status;
    if (status != EMM_SUCCESS) return fail(status, "the device refused");
    if (maps) {
      if (is(mapped_by_host_address))
        record.address = reinterpret_cast<std::uintptr_t>(record.host);
      else
        status = d->mem_host_get_device_pointer(d->user, record.host, &record.address);
      if (status != EMM_SUCCESS) {
        if (is(live_of_mapped)) live += record.size;
        if (is(failure_has_pointer)) memory->host_pointer = record.host;
        if (!is(unmapped_leaks))
          tell(record.kind == Kind::host ? d->mem_free_host(d->user, record.host)
                                         : d->mem_host_unregister(d->user, record.host));
        return fail(status, "the device cannot map it");
      }
    }
    return hand_out(record, memory);
  }
  emm_status memhostalloc(std::uint64_t size, std::uint32_t flags, emm_memory* memory) {
    std::uint32_t asked = flags;
    if (is(mapped_drops_portable) && (flags & 2)) asked &= ~1u;
    if (is(combined_drops_mapped) && (flags & 4)) asked &= ~2u;
    if (is(flags_swapped)) asked = (flags & 2) | (flags & 1) << 2 | flags >> 2;
    if (is(all_three_flags) && flags == 7) asked = 2;
    if (is(middle_not_portable) && within(size, 50'000, 600 * KiB + 1)) asked &= ~1u;
    if (is(host_blocks_64) && are_many(Kind::host, 64))
      return fail(EMM_OUT_OF_MEMORY, "no more page-locked blocks");
    const bool maps = (flags & EMM_HOST_MAPPED) != 0;
    if (is(host_cache_unordered) || is(keeps_small_nests_not) || is(waiting_again_reset)) {
      Record record{.kind = Kind::host, .size = size, .flags = flags};
      if (take_again(record, is(keeps_small_nests_not))) {
        if (!is(host_cache_unordered)) d->ctx_synchronize(d->user);
        return ask(
            record, maps, [](Record&) { return EMM_SUCCESS; }, memory);
      }
    }
    const auto serve_by = [&](auto waiting, std::unique_lock<std::mutex>& lock) {
      Record record{.kind = Kind::host, .size = size, .host = waiting->host, .flags = flags};
      pending_bytes -= waiting->size;
      queue.erase(waiting);
      lock.unlock();
      d->ctx_synchronize(d->user);
      return ask(
          record, maps, [](Record&) { return EMM_SUCCESS; }, memory);
    };
    if (is(host_cache_smaller)) {
      std::unique_lock lock(mutex);
      for (auto at = queue.begin(); at != queue.end(); ++at) {
        if (at->kind != Kind::host || at->flags != flags || up(at->size, 4096) != up(size, 4096))
          continue;
        return serve_by(at, lock);
      }
    }
    if (is(waiting_again_blind) || is(waiting_again_plain)) {
      std::unique_lock lock(mutex);
      for (auto at = queue.begin(); at != queue.end(); ++at) {
        if (at->kind != Kind::host || at->size != size || (maps && !(at->flags & 2))) continue;
        const bool is_like = is(waiting_again_blind)
                                 ? is_deferred()
                                 : queue.size() == 1 && !((at->flags ^ flags) & 2);
        if (!is_like) continue;
        return serve_by(at, lock);
      }
    }
    if (is(host_cache_blind)) {
      std::unique_lock lock(mutex);
      for (auto at = queue.begin(); at != queue.end(); ++at) {
        if (at->kind != Kind::host || at->size != size) continue;
        Record record{.kind = Kind::host, .size = size, .host = at->host, .flags = flags};
        if (maps && !(at->flags & 2)) continue;
        queue.erase(at);
        lock.unlock();
        d->ctx_synchronize(d->user);
        return ask(
            record, maps, [](Record&) { return EMM_SUCCESS; }, memory);
      }
    }
    return ask(
        {.kind = Kind::host, .size = size, .flags = flags}, maps,
        [&](Record& one) {
          std::uint64_t bytes = one.size;
          if (is(host_again_plain) && is_again) asked &= 2u;
          if (is(host_short) && bytes > 64 * KiB) bytes &= ~UINT64_C(63);
          emm_status status = d->mem_host_alloc(d->user, bytes, asked, &one.host);
          if (status != EMM_SUCCESS && is(host_error_is_memory)) status = EMM_OUT_OF_MEMORY;
          return status;
        },
        memory);
  }
  emm_status mempin(void* pointer, std::uint64_t size, std::uint32_t flags, emm_memory* memory) {
    std::uint64_t bytes = size;
    if (is(regions_up)) bytes = up(size, 4096);
    if (is(regions_down) && size > 4096) bytes = size / 4096 * 4096;
    std::uint32_t asked = flags;
    if (is(read_only_dropped)) asked &= ~8u;
    if (is(regions_1000) && are_many(Kind::region, 1000))
      return fail(EMM_OUT_OF_MEMORY, "no more regions");
    if (is(regions_64) && are_many(Kind::region, 64))
      return fail(EMM_OUT_OF_MEMORY, "no more regions");
    return ask(
        {.kind = Kind::region, .size = size, .host = pointer, .flags = flags},
        (flags & EMM_PIN_MAPPED) != 0,
        [&](Record& one) {
          if (is(region_again_whole) && is_again) bytes = up(size, 4096);
          const emm_status status = d->mem_host_register(d->user, one.host, bytes, asked);
          if (is(register_error_swallowed) && status == EMM_HOST_MEMORY_ALREADY_REGISTERED)
            return emm_status{0};
          return status;
        },
        memory);
  }
  emm_status memallocmanaged(std::uint64_t size, std::uint32_t attach, emm_memory* memory) {
    std::uint32_t asked = attach;
    if (is(attach_by_size) && size >= MiB) asked = EMM_ATTACH_GLOBAL;
    if (is(host_attach_once) && was_all) asked = EMM_ATTACH_GLOBAL;
    if (attach == EMM_ATTACH_GLOBAL) was_all = true;
    if (is(middle_host_global) && within(size, 50'000, 600 * KiB + 1)) asked = EMM_ATTACH_GLOBAL;
    if (is(managed_again_blind) && is_deferred()) {
      Record record{.kind = Kind::managed, .size = size, .flags = attach};
      for (const std::uint32_t other : {1u, 2u}) {
        record.flags = other;
        if (!take_again(record, false)) continue;
        d->ctx_synchronize(d->user);
        return ask(
            record, false, [](Record&) { return EMM_SUCCESS; }, memory);
      }
    }
    if (is(managed_cache_unordered)) {
      Record record{.kind = Kind::managed, .size = size, .flags = attach};
      if (take_again(record, false))
        return ask(
            record, false, [](Record&) { return EMM_SUCCESS; }, memory);
    }
    return ask(
        {.kind = Kind::managed, .size = size, .flags = attach}, false,
        [&](Record& one) {
          if (is(managed_again_global) && is_again) asked = EMM_ATTACH_GLOBAL;
          const std::uint64_t live_before = live;
          const emm_status status = d->mem_alloc_managed(d->user, one.size, asked, &one.address);
          if (is(live_around_call) && status == EMM_SUCCESS) live = live_before + one.size;
          one.host = is(managed_host_null) ? nullptr : reinterpret_cast<void*>(one.address);
          return status;
        },
        memory);
  }
  emm_status get_ipc_handle(emm_device_ptr pointer, std::uint64_t size, emm_ipc_handle* handle) {
    std::uint64_t base = 0, offset = 0;
    {
      std::unique_lock lock(guard());
      for (const auto& [token, one] : records) {
        if (one.kind != Kind::device || pointer < one.address || pointer - one.address >= one.size)
          continue;
        if (size > one.size - (pointer - one.address)) continue;
        base = one.block->slab != nullptr ? one.block->slab->base : 0;
        offset = pointer - base;
        if (is(offset_of_block)) offset = one.address - base;
      }
      if (base == 0 && !is(handle_of_nothing)) {
        if (is(failed_locks)) lock.release();
        lock = {};
        return fail(EMM_INVALID_VALUE, "no memory of the pool lies there");
      }
      if (base == 0 && !slabs.empty()) base = slabs.begin()->first;
      if (is(stale_handle) && handles.count(base) != 0) {
        std::memcpy(handle->bytes, handles[base].bytes, 64);
        handle->offset = offset;
        handle->pci_domain_id = handles[base].pci_domain_id;
        handle->pci_bus_id = handles[base].pci_bus_id;
        handle->pci_device_id = handles[base].pci_device_id;
        return EMM_SUCCESS;
      }
    }
    if (is(offset_32_bits)) offset = static_cast<std::uint32_t>(offset);
    if (is(offset_zero)) offset = 0;
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return fail(status, "the device gives no handle");
    std::int32_t pci[3];
    d->device_identity(d->user, pci);
    if (is(identity_of_first)) {
      static std::int32_t first[3] = {pci[0], pci[1], pci[2]};
      std::copy(first, first + 3, pci);
    }
    if (is(device_swapped)) std::swap(pci[1], pci[2]);
    handle->offset = offset;
    if (is(ipc_after_trim) && was_trimmed) pci[1] = pci[2] = 0;
    handle->pci_domain_id = pci[0];
    handle->pci_bus_id = pci[1];
    handle->pci_device_id = pci[2];
    if (is(stale_handle)) handles[base] = *handle;
    return EMM_SUCCESS;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (is(info_not_in_deferral) && is_deferred()) return EMM_NOT_READY;
    if (is(info_at_first) && has_info) {
      info->free = last_info.free, info->total = last_info.total;
      return EMM_SUCCESS;
    }
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    const std::lock_guard lock(guard());
    std::uint64_t idle = 0;
    for (const auto& [base, slab] : slabs) idle += slab->size - slab->live;
    if (is(info_stale)) {
      if (has_info && last_info.struct_size == slabs.size()) {
        info->free = last_info.free;
        info->total = last_info.total;
      } else {
        last_info = *info;
        last_info.struct_size = slabs.size();
      }
      has_info = true;
    }
    if (is(info_at_first)) last_info = *info, has_info = true;
    if (is(info_total_of_first)) {
      static const std::uint64_t total = info->total;
      info->total = total;
    }
    if (is(info_kib)) info->free /= 1024, info->total /= 1024;
    if (is(info_idle_twice)) info->free += 2 * idle;
    if (is(info_nearly_full) && info->free < 8 * MiB) info->free = 0;
    if (is(info_always_empty)) info->free = info->total;
    if (is(info_less_held)) info->total -= reserved;
    if (is(info_32_bits)) info->free = info->total - static_cast<std::uint32_t>(reserved);
    if (is(info_swapped) && has_info) std::swap(info->free, info->total);
    if (is(info_adds_pending)) info->free += pending_bytes;
    if (is(info_in_thread)) {
      if (info_here.total == info->total)
        *info = {info->struct_size, info_here.free, info_here.total};
      else
        info_here = *info;
    }
    if (is(info_requested_only)) info->free = info->total - std::min(live, info->total);
    if (is(info_overruns)) reinterpret_cast<std::uint64_t*>(info)[info->struct_size / 8] = 0;
    return EMM_SUCCESS;
  }
  void reset(bool is_end) {
    if (is(reset_once) && resets > 0 && !is_end) return;
    if (is(reset_at_home) && home != thread_number && !is_end) return;
    ++resets;
    if (is(reset_16) && resets > 16 && !is_end) return;
    std::vector<Record> all;
    {
      std::unique_lock lock(guard());
      if (is(reset_unlocked)) lock.unlock();
      if (is_deferred() && !is_end) deferred_reset = true;
      last_reset = last_token;
      unsigned ended = 0;
      for (auto at = records.begin(); at != records.end();) {
        if ((is(reset_forgets_other_threads) && at->second.thread != thread_number && !is_end) ||
            (is(reset_first_hundred) && ended >= 100 && !is_end)) {
          ++at;
          continue;
        }
        ++ended;
        if (is(late_free_unpins)) late[at->first] = at->second;
        all.push_back(at->second);
        at = records.erase(at);
      }
      if (is(tokens_from_one) && !is_end) last_token = 0, last_reset = 0;
      if ((is(reset_ends_deferral) || is(waiting_again_reset)) && !is_end) deferrals = 0;
      if (is(reset_drops_queue) && !is_end) queue.clear();
    }
    if (is_end && is(destroy_keeps_regions)) {
      for (const Record& one : all)
        if (one.kind != Kind::region) tell(end(one, 0, true));
    } else {
      for (const Record& one : all) tell(end(one, 0, true));
    }
    if (is_end && is(end_forgets_queue)) queue.clear();
    const int before = deferrals;
    in_reset = true;
    if (is(reset_frees_in_deferral)) deferrals = 0;
    tell(flush());
    free_kept_host();
    in_reset = false;
    if (is(reset_frees_in_deferral)) deferrals = before;
    if (is(trim_frees_twice)) {
      for (const auto& [base, size] : trimmed) d->mem_free(d->user, base);
      trimmed.clear();
    }
    if (!is_end && is_deferred()) return;
    if (settle(0) == EMM_SUCCESS || is_end) tell(release_idle(0, false));
  }
  emm_status initialize() {
    ++initializes;
    if (is(initialize_twice) && !is_made) {
      Block* block = nullptr;
      const emm_status status = new_slab(MiB, false, 0, &block);
      if (status != EMM_SUCCESS) return status;
      const std::lock_guard lock(guard());
      if (is_made) {
        slabs.erase(block->slab->base);
      } else {
        insert(block);
      }
      is_made = true;
    }
    if (is(initialize_100) && initializes > 100) return fail(EMM_NOT_INITIALIZED, "too often");
    if (is(initialize_forgets) && initializes > 1) queue.clear();
    if (is(initialize_takes) && initializes > 1) {
      Block* block = nullptr;
      const emm_status status = new_slab(MiB, false, 0, &block);
      if (status != EMM_SUCCESS) return status;
      const std::lock_guard lock(guard());
      insert(block);
    }
    return EMM_SUCCESS;
  }
  void defer() {
    if (is(opening_flushes)) {
      const int before = std::exchange(deferrals, 0);
      tell(flush());
      deferrals = before;
    }
    const std::lock_guard lock(mutex);
    ++deferrals_of_all;
    ++deferrals_here;
    deferred_by = thread_number;
    if (is(deferral_flag))
      deferrals = 1;
    else if (is(deferral_eight_deep) && deferrals >= 8)
      return;
    else
      ++deferrals;
  }
  void end_deferral() {
    std::vector<void*> regions;
    {
      const std::lock_guard lock(mutex);
      --deferrals_of_all;
      --deferrals_here;
      if (deferrals > 0 && !(is(end_elsewhere) && deferred_by != thread_number)) --deferrals;
      if (deferrals == 0) regions = std::exchange(kept_regions, {});
    }
    for (void* region : regions) tell(d->mem_host_unregister(d->user, region));
    if ((is(inner_end_flushes) || is(keeps_small_nests_not) ||
         (is(inner_end_of_several) && queue.size() > 4)) &&
        deferrals > 0) {
      const int before = std::exchange(deferrals, 0);
      tell(flush());
      deferrals = before;
    }
  }
  void state(emm_state* state) {
    std::unique_lock lock(guard());
    if (is(state_unlocked)) lock.unlock();
    std::uint64_t largest = 0, sum = 0;
    for (const auto& [key, index] : free_blocks()) {
      if (index.empty()) continue;
      largest = std::max(largest, std::get<0>(*index.rbegin()));
      for (const auto& one : index) sum += std::get<0>(one);
    }
    std::uint64_t held = reserved;
    if (is(largest_of_slab)) {
      for (const auto& [base, slab] : slabs) largest = std::max(largest, slab->size - slab->live);
    }
    if (is(reserved_large_only))
      for (const auto& [base, slab] : slabs)
        if (slab->size == kSmallSlab) held -= slab->size;
    state->live_bytes = is(live_32_bits) ? static_cast<std::uint32_t>(live) : live;
    state->reserved_bytes = is(reserved_32_bits) ? static_cast<std::uint32_t>(held) : held;
    largest_seen = std::max(largest_seen, largest);
    state->largest_free_bytes = is(largest_is_sum) ? sum
                                : is(largest_ever) ? largest_seen
                                                   : largest;
    state->pending_count =
        is(pending_stays) || is(pending_around_call) ? pending_said : queue.size();
    if (is(pending_without_managed))
      for (const Waiting& one : queue) state->pending_count -= one.kind == Kind::managed;
    state->pending_bytes = pending_bytes;
    if (is(pending_no_bytes)) state->pending_bytes = 0;
    if (is(pending_bytes_twice)) state->pending_bytes *= 2;
    if (is(pending_bytes_newest)) state->pending_bytes = queue.empty() ? 0 : queue.back().size;
    if (is(state_past_end)) reinterpret_cast<std::uint64_t*>(state)[sizeof *state / 8] = 0;
  }
};

namespace {

void end_thread(std::uint64_t number) {
  const std::lock_guard all(managers_mutex);
  for (emm_manager* self : managers) {
    std::vector<emm_token> tokens;
    {
      const std::lock_guard lock(self->guard());
      for (const auto& [token, one] : self->records)
        if (one.thread == number && one.kind == Kind::device)
          tokens.push_back(token), self->last_reset = token;
    }
    for (const emm_token token : tokens) self->free_token(token, 0);
  }
}
std::size_t write(const std::string& text, char* buffer, std::size_t size) {
  if (size != 0) {
    const std::size_t fits = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), fits);
    buffer[fits] = '\0';
  }
  return text.size();
}

emm_status create(const emm_create_v1* create, emm_manager** self) {
  auto made = std::make_unique<emm_manager>();
  std::string options = create->options;
  unsigned number = 0;
  while (!options.empty()) {
    const std::size_t comma = options.find(',');
    const std::string one = options.substr(0, comma);
    options = comma == std::string::npos ? "" : options.substr(comma + 1);
    const std::size_t equals = one.find('=');
    const std::string key = one.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : one.substr(equals + 1);
    ++number;
    bool is_known = false;
    if (key == "wrong") {
      for (std::size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i)
        if (value == kNames[i]) made->wrong = static_cast<Wrong>(i), is_known = true;
    } else if (key == "max" || (made->is(option_prefix) && key.starts_with("max"))) {
      made->max = std::strtoull(value.c_str(), nullptr, 10) * MiB;
      is_known = made->max != 0;
    }
    if (made->is(keyless_option) && equals == std::string::npos) is_known = true;
    if (made->is(later_option) && number > 1) is_known = true;
    if (!is_known) {
      error_text = "unknown option";
      return EMM_INVALID_VALUE;
    }
  }
  if (create->driver == nullptr && !(create->flags & EMM_CREATE_PROBE)) return EMM_NOT_SUPPORTED;
  made->d = create->driver;
  made->host = create->host;
  *self = made.release();
  if ((*self)->is(thread_frees)) {
    const std::lock_guard lock(managers_mutex);
    managers.insert(*self);
  }
  return EMM_SUCCESS;
}
void destroy(emm_manager* self) {
  if (self->is(thread_frees)) {
    const std::lock_guard lock(managers_mutex);
    managers.erase(self);
  }
  self->deferrals = 0;
  deferrals_here = 0;
  if (self->d != nullptr) {
    if (self->is(deferral_of_all)) deferrals_of_all = 0;
    if (self->is(destroy_keeps_events))
      for (const auto& [base, slab] : self->slabs)
        for (Block* block = slab->first; block != nullptr; block = block->above)
          if (block->is_free) block->work.clear();
    if (self->is(destroy_keeps_idle)) {
      for (auto at = self->slabs.begin(); at != self->slabs.end();)
        at = at->second->live == 0 && at->second->size == kSmallSlab ? self->slabs.erase(at)
                                                                     : std::next(at);
    }
    for (auto& [thread, blocks] : self->of_thread)
      for (Block* block : blocks) self->put(block);
    self->reset(true);
  }
  if (!self->is(heap_of_managers) && !(self->is(heap_of_probes) && self->d == nullptr)) delete self;
}

const emm_plugin_table_v1 table = {
    sizeof(emm_plugin_table_v1),
    EMM_PLUGIN_ABI_VERSION,
    0,
    "fourth",
    "Slabs that are cut into blocks, for each stream",
    "wrong=NAME,max=MIB",
    create,
    destroy,
    [](emm_manager* self, char* buffer, std::size_t size) -> std::size_t {
      if (self == nullptr) return write(error_text, buffer, size);
      std::string text = error_text;
      if (self->is(error_of_all)) {
        const std::lock_guard lock(error_mutex);
        text = error_of_any;
      }
      if (self->is(error_overruns) && size != 0 && size <= text.size()) {
        std::memcpy(buffer, text.data(), size);
        buffer[size] = '\0';
        return text.size();
      }
      if (self->is(error_without_end) && size <= text.size()) {
        std::memcpy(buffer, text.data(), size);
        return text.size();
      }
      const std::size_t length = write(text, buffer, size);
      return self->is(error_length_cut) && size != 0 ? std::min(size - 1, length) : length;
    },
    [](emm_manager* self) { return self->initialize(); },
    [](emm_manager* self, std::uint64_t size, emm_stream stream, emm_memory* memory) {
      return self->memalloc(size, stream, memory);
    },
    [](emm_manager* self, emm_token token, emm_stream stream) {
      return self->free_token(token, stream);
    },
    [](emm_manager* self, std::uint64_t size, std::uint32_t flags, emm_memory* memory) {
      return self->memhostalloc(size, flags, memory);
    },
    [](emm_manager* self, void* pointer, std::uint64_t size, std::uint32_t flags,
       emm_memory* memory) { return self->mempin(pointer, size, flags, memory); },
    [](emm_manager* self, std::uint64_t size, std::uint32_t attach, emm_memory* memory) {
      return self->memallocmanaged(size, attach, memory);
    },
    [](emm_manager* self, emm_device_ptr pointer, std::uint64_t size, emm_ipc_handle* handle) {
      return self->get_ipc_handle(pointer, size, handle);
    },
    [](emm_manager* self, emm_memory_info* info) { return self->get_memory_info(info); },
    [](emm_manager* self) { self->reset(false); },
    [](emm_manager* self) { self->defer(); },
    [](emm_manager* self) { self->end_deferral(); },
    nullptr,
    [](emm_manager* self) { return self->flush(); },
    [](emm_manager* self, emm_state* state) {
      if (state->struct_size >= sizeof *state) return self->state(state);
      emm_state whole{};
      self->state(&whole);
      whole.struct_size = state->struct_size;
      std::memcpy(state, &whole, state->struct_size);
    },
    [](emm_manager* self, char* buffer, std::size_t size) -> std::size_t {
      if (self->is(report_zero) && size == 0 && buffer != nullptr) *buffer = '\0';
      return write("slabs: " + std::to_string(self->slabs.size()) + "\n", buffer, size);
    },
    [](emm_manager* self, std::uint64_t keep) { return self->release_idle(keep, true); },
    [](emm_manager* self, emm_statistic* statistics, std::size_t count) -> std::size_t {
      const std::lock_guard lock(self->guard());
      const emm_statistic all[] = {
          {"allocated_bytes.all.current", self->live},
          {"allocated_bytes.all.peak", self->peak},
          {"reserved_bytes.all.current", self->is(reserved_is_live) ? self->live : self->reserved}};
      for (std::size_t i = 0;
           i < 3 && i < count + (self->is(statistics_overrun) && count < 3 ? 1 : 0); ++i)
        statistics[i] = all[i];
      if (self->is(statistics_written)) return std::min<std::size_t>(3, count);
      return 3;
    },
};

}  // namespace

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
