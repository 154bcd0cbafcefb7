// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// fifth_wrong.def has each way and the rule that it breaks. Its design differs from the fourth
// pool's: two-level segregated fit (TLSF), pending sets by stream, events that many blocks share
// (fences, with counts), a cache of page-locked memory, and a queue of frees.
#include <emm_plugin.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {
using u64 = std::uint64_t;
enum Wrong {
  right_one,
#define X(name, ...) name,
#include "fifth_wrong.def"
#undef X
};
constexpr const char* kNames[] = {
    "right",
#define X(name, ...) #name,
#include "fifth_wrong.def"
#undef X
};
constexpr u64 KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB, kUnit = 512;
constexpr u64 kWild = ~u64{0}, kMixed = kWild - 1;
constexpr u64 up(u64 x, u64 unit) { return (x + unit - 1) / unit * unit; }

thread_local std::string error_text;
std::atomic<u64> thread_count{0};
thread_local const u64 thread_id = ++thread_count;

struct Fence {
  emm_handle event = 0;  // 0: nothing but a wait for the device will do
  u64 key = kWild;
  unsigned refs = 1;
  bool recycled = false;
};
struct Chunk;
enum class State { live, clean, pending, busy };
struct Block {
  u64 address = 0, size = 0, requested = 0;
  Chunk* chunk = nullptr;
  Block *below = nullptr, *above = nullptr;   // in the chunk
  Block *before = nullptr, *after = nullptr;  // in a bin
  State state = State::busy;
  std::vector<Fence*> fences;
  u64 in_set = 0;
  emm_stream stream = 0;
  u64 key = 0;
  std::list<Block*>::iterator place;
};
struct Chunk {
  u64 base = 0, size = 0;
  Block* first = nullptr;
};
enum class Kind { device, managed, host, region };
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, address = 0, room = 0, number = 0;
  void* host = nullptr;
  std::uint32_t flags = 0;
  Block* block = nullptr;
};
struct Waiting {
  bool is_host;
  u64 size, address;
  void* host;
};
struct Cached {
  void* host;
  u64 address, room;
  std::uint32_t flags;
  std::vector<Fence*> fences;
  bool in_deferral = false;
};
constexpr int kFirst = 32, kSecond = 16;
std::mutex all_mutex;
std::set<emm_manager*> all_managers;
std::map<u64, u64> mapped_memo;
}  // namespace

struct emm_manager {
  const emm_driver_v1* d = nullptr;
  const emm_host_v1* h = nullptr;
  Wrong wrong = right_one;
  const char* options = nullptr;
  const emm_create_v1* created = nullptr;
  std::mutex m;
  // under m
  std::unordered_map<emm_token, Record> records;
  std::map<u64, Block*> live_blocks;
  std::map<u64, Chunk*> chunks;
  u64 first_map = 0;
  std::uint32_t second_map[40] = {};
  Block* bins[40][kSecond] = {};
  std::list<Block*> order;  // pending, oldest first
  std::map<u64, std::set<std::tuple<u64, u64, Block*>>> sets;
  std::vector<emm_handle> spare;
  std::deque<Waiting> queue;
  std::vector<Cached> cache;
  u64 cache_bytes = 0, queue_bytes = 0;
  emm_token last_token = 0, last_reset = 0;
  std::uint32_t deferrals = 0;
  u64 live = 0, reserved = 0, in_use = 0;
  std::atomic<u64> largest_known{0}, refused_sum{0};  // of two mistakes
  struct Count {
    u64 current = 0, peak = 0, allocated = 0, freed = 0;
    void add(u64 n) {
      current += n;
      allocated += n;
      peak = std::max(peak, current);
    }
    void sub(u64 n) {
      current -= n;
      freed += n;
    }
  };
  Count allocation, allocated_bytes, requested_bytes, reserved_bytes, segment;
  u64 ooms = 0, retries = 0;
  // of variants
  std::vector<std::uint32_t> generations;
  std::vector<std::uint32_t> free_slots;
  std::map<u64, u64> slot_of;
  std::map<std::pair<u64, u64>, int> inner_regions;
  std::vector<void*> kept_for_leak;
  std::set<std::string> own_names;
  bool odd = false, was_refused = false;
  u64 counter = 0;
  std::vector<Block*> lost;
  std::vector<std::pair<void*, u64>> umbrella;
  int pushed = 0;
  std::vector<std::pair<Block*, emm_stream>> late;
  std::thread helper;
  std::condition_variable helper_changed;
  std::mutex helper_mutex;
  bool helper_runs = false, helper_is_asked = false, helper_ends = false;
  emm_memory_info told{};
  u64 told_at = 0;
  emm_handle driver_pool = 0;

  static std::vector<emm_handle>& common_spare() {
    static std::vector<emm_handle> all;
    return all;
  }
  bool W(Wrong one) const { return wrong == one; }

  emm_status fail(emm_status s, const char* words) {
    if (s != EMM_SUCCESS && !(W(frees_without_words) &&
                              (std::strstr(words, "a free") || std::strstr(words, "handle") ||
                               std::strstr(words, "says") || std::strstr(words, "of this pool"))))
      error_text = words;
    return s;
  }
  void tell(emm_status s) {
    if (s == EMM_SUCCESS || h == nullptr || h->free_failed == nullptr) return;
    h->free_failed(h->user, W(tells_unknown) ? EMM_UNKNOWN_ERROR : s, nullptr);
  }
  u64 key_of(emm_stream s) const {
    if (s == 1) return 0;
    if (s != 2) return s;
    if (W(key_by_pthread)) return (static_cast<u64>(pthread_self()) >> 6 << 4) | 2 | u64{1} << 63;
    return thread_id << 40 | 2;
  }

  // Bins, under the lock.
  void map(u64 size, int& f, int& s) const {
    u64 units = size / kUnit;
    if (units < kSecond) {
      f = 0;
      s = static_cast<int>(units);
      return;
    }
    int log = 63 - std::countl_zero(units);
    if (W(float_bins)) {
      int e;
      float m = std::frexp(static_cast<float>(size), &e);
      (void)m;
      log = e - 1 - 9;
      u64 step = units >> (log - 4);
      s = static_cast<int>(step < 16 ? 0 : step & 15);
      f = log - 3;
      if (f > 39) f = 39;
      return;
    }
    f = log - 3;
    s = static_cast<int>(units >> (log - 4) & 15);
    const int top = W(top_bin) ? 19 : 36;
    if (f > top) f = top, s = 15;
  }
  void bin_insert(Block* b) {
    int f, s;
    map(b->size, f, s);
    b->state = State::clean;
    b->before = nullptr;
    b->after = bins[f][s];
    if (b->after) b->after->before = b;
    bins[f][s] = b;
    first_map |= u64{1} << f;
    second_map[f] |= 1u << s;
  }
  void bin_remove(Block* b) {
    int f, s;
    map(b->size, f, s);
    if (b->before)
      b->before->after = b->after;
    else
      bins[f][s] = b->after;
    if (b->after) b->after->before = b->before;
    if (!bins[f][s]) {
      second_map[f] &= ~(1u << s);
      if (!second_map[f]) first_map &= ~(u64{1} << f);
    }
    b->state = State::busy;
  }
  Block* bin_find(u64 need) {
    // Rounded up to the next list, all of whose blocks are large enough; then the list itself.
    u64 units = need / kUnit, more = need;
    if (units >= kSecond) {
      int log = 63 - std::countl_zero(units);
      more = need + (((u64{1} << (log - 4)) - 1) * kUnit);
    }
    if (W(search_rounds_down) && need > 3 * MiB && need < 5 * MiB) more = need;
    int f, s;
    map(more, f, s);
    std::uint32_t in = second_map[f] & (~0u << s);
    if (!in) {
      const u64 fm = f >= 63 ? 0 : first_map & (~u64{0} << (f + 1));
      if (fm) {
        f = std::countr_zero(fm);
        in = second_map[f];
      }
    }
    if (in) {
      Block* b = bins[f][std::countr_zero(in)];
      const bool looks = !(W(top_bin) && f == 19) && !W(float_bins) && !(W(search_rounds_down));
      if (!looks || b->size >= need) return b;
    }
    map(need, f, s);
    int seen = 0;
    for (Block* b = bins[f][s]; b; b = b->after) {
      if (b->size >= need) return b;
      if (W(scans_eight) && ++seen == 8) break;
    }
    return nullptr;
  }
  // Fences, under the lock.
  void drop(Fence* f) {
    --f->refs;
    if (W(fence_count_short)) {
      if (f->refs == 1 && f->event && !f->recycled) {
        spare.push_back(f->event);
        f->recycled = true;
      }
      if (f->refs) return;
      if (f->event && !f->recycled) spare.push_back(f->event);
      delete f;
      return;
    }
    if (f->refs) return;
    if (f->event) {
      if (W(shared_spare))
        common_spare().push_back(f->event);
      else
        spare.push_back(f->event);
    }
    if (!(W(heap_of_fences) && f->key != 0)) delete f;
  }
  void drop_all(std::vector<Fence*>& fences) {
    for (Fence* f : fences) drop(f);
    fences.clear();
  }
  static u64 set_of(const std::vector<Fence*>& fences) {
    u64 key = fences[0]->key;
    for (const Fence* f : fences)
      if (f->key != key) return kMixed;
    return key;
  }
  void pend_insert(Block* b, bool front = false) {
    b->state = State::pending;
    b->in_set = set_of(b->fences);
    if (W(mixed_by_last)) b->in_set = b->fences.back()->key;
    sets[b->in_set].insert({b->size, b->address, b});
    b->place = order.insert(front ? order.begin() : order.end(), b);
  }
  void pend_remove(Block* b) {
    auto at = sets.find(b->in_set);
    at->second.erase({b->size, b->address, b});
    if (at->second.empty()) sets.erase(at);
    order.erase(b->place);
    b->state = State::busy;
  }
  void join(Block* low, Block* high) {
    low->size += high->size;
    low->above = high->above;
    if (high->above) high->above->below = low;
    delete high;
  }
  void make_clean(Block* b) {
    drop_all(b->fences);
    if (b->above && (b->above->state == State::clean ||
                     (W(joins_pending_large) && b->above->state == State::pending &&
                      b->above->size >= 8 * MiB && b->size >= 8 * MiB))) {
      if (b->above->state == State::pending) {
        pend_remove(b->above);
        drop_all(b->above->fences);
      } else
        bin_remove(b->above);
      join(b, b->above);
    }
    if (b->below && b->below->state == State::clean) {
      Block* low = b->below;
      bin_remove(low);
      join(low, b);
      b = low;
    }
    bin_insert(b);
  }
  Block* split(Block* b, u64 need) {  // returns the rest, busy, with the fences of b
    if (b->size < need + kUnit) return nullptr;
    Block* rest = new Block;
    rest->address = b->address + need;
    rest->size = b->size - need;
    rest->chunk = b->chunk;
    rest->below = b;
    rest->above = b->above;
    if (rest->above) rest->above->below = rest;
    b->above = rest;
    b->size = need;
    rest->fences = b->fences;
    for (Fence* f : rest->fences) ++f->refs;
    return rest;
  }
  void put_back(Block* b, bool front = false) {
    if (b->fences.empty())
      make_clean(b);
    else
      pend_insert(b, front);
  }

  // Events.
  emm_status record(emm_stream stream, u64 key, std::vector<Fence*>& fences) {
    emm_handle event = 0;
    {
      std::lock_guard lock(m);
      auto& from = W(shared_spare) ? common_spare() : spare;
      if (!from.empty()) {
        event = from.back();
        from.pop_back();
      }
    }
    emm_status s = event ? EMM_SUCCESS : d->event_create(d->user, &event);
    if (s == EMM_SUCCESS) {
      s = d->event_record(d->user, event, stream);
      if (s != EMM_SUCCESS) {
        std::lock_guard lock(m);
        spare.push_back(event);
        event = 0;
      }
    }
    if (s == EMM_SUCCESS) {
      auto* f = new Fence;
      f->event = event;
      f->key = key;
      fences.push_back(f);
    }
    return s;
  }
  void wait_or_wild(std::vector<Fence*>& fences) {
    const emm_status s = d->ctx_synchronize(d->user);
    std::lock_guard lock(m);
    if (s == EMM_SUCCESS) {
      drop_all(fences);
      return;
    }
    fences.push_back(new Fence);
  }
  emm_status wait_on_host(const Fence* f) {
    return f->event ? d->event_synchronize(d->user, f->event) : d->ctx_synchronize(d->user);
  }
  emm_status query(const Fence* f) {
    return f->event ? d->event_query(d->user, f->event) : EMM_NOT_READY;
  }
  void poll() {
    if (W(poll_aba)) {
      Block* b = nullptr;
      std::vector<emm_handle> events;
      {
        std::lock_guard lock(m);
        if (order.empty()) return;
        b = order.front();
        for (Fence* f : b->fences) events.push_back(f->event);
      }
      for (emm_handle e : events)
        if (!e || d->event_query(d->user, e) != EMM_SUCCESS) return;
      std::lock_guard lock(m);
      if (std::find(order.begin(), order.end(), b) != order.end()) {
        pend_remove(b);
        make_clean(b);
      }
      return;
    }
    for (int i = 0; i < 3; ++i) {
      Block* b = nullptr;
      {
        std::lock_guard lock(m);
        if (order.empty()) return;
        b = order.front();
        pend_remove(b);
      }
      bool done = true;
      for (Fence* f : b->fences) {
        const emm_status s = query(f);
        if (s == EMM_SUCCESS) {
          if (W(one_query_will_do)) break;
          continue;
        }
        if (W(query_error_is_done) && s != EMM_NOT_READY) continue;
        done = false;
        break;
      }
      std::lock_guard lock(m);
      if (done)
        make_clean(b);
      else {
        pend_insert(b, true);
        return;
      }
    }
  }
  // Waits for all that is pending.
  emm_status settle() {
    std::vector<Block*> all;
    {
      std::lock_guard lock(m);
      if (W(settle_aba))
        all.assign(order.begin(), order.end());
      else
        while (!order.empty()) {
          Block* b = order.front();
          pend_remove(b);
          all.push_back(b);
        }
    }
    emm_status first = EMM_SUCCESS;
    if (W(settle_aba)) {
      std::vector<emm_handle> events;
      {
        std::lock_guard lock(m);
        for (Block* b : order)
          for (Fence* f : b->fences) events.push_back(f->event);
      }
      for (emm_handle e : events) {
        const emm_status s = e ? d->event_synchronize(d->user, e) : d->ctx_synchronize(d->user);
        if (first == EMM_SUCCESS) first = s;
      }
      if (first != EMM_SUCCESS) return first;
      std::lock_guard lock(m);
      for (Block* b : all)
        if (std::find(order.begin(), order.end(), b) != order.end()) {
          pend_remove(b);
          make_clean(b);
        }
      return first;
    }
    for (Block* b : all) {
      emm_status s = EMM_SUCCESS;
      for (Fence* f : b->fences) {
        if (s == EMM_SUCCESS) s = wait_on_host(f);
        if (W(settle_first_fence)) break;
      }
      if (s != EMM_SUCCESS && first == EMM_SUCCESS) first = s;
      std::lock_guard lock(m);
      if (s == EMM_SUCCESS || (W(settle_ignores_second) && b != all.front()))
        make_clean(b);
      else
        pend_insert(b);
      if (s != EMM_SUCCESS && W(settle_loses_rest)) {
        for (Block* rest : all)
          if (rest->state == State::busy && rest != b) lost.push_back(rest);
        return first;
      }
    }
    return first;
  }

  // Chunks.
  bool has_driver_pool() const { return W(reserved_is_high) || W(reserved_is_used); }
  emm_status alloc_chunk(u64 size, u64* base) {
    if (W(chunks_on_default)) return d->mem_alloc_async(d->user, size, 0, base);
    if (!has_driver_pool()) return d->mem_alloc(d->user, size, base);
    constexpr std::uint32_t kThreshold = 4;
    if (driver_pool == 0) {
      const emm_status s = d->mem_pool_create(d->user, 0, &driver_pool);
      if (s != EMM_SUCCESS) return s;
      d->mem_pool_set_attribute(d->user, driver_pool, kThreshold, ~u64{0});
    }
    return d->mem_alloc_from_pool_async(d->user, size, driver_pool, 0, base);
  }
  emm_status free_chunk(u64 base) {
    const bool is_async = W(chunks_on_default) || has_driver_pool();
    return is_async ? d->mem_free_async(d->user, base, 0) : d->mem_free(d->user, base);
  }
  emm_status new_chunk(u64 need, Block** answer) {
    const u64 least = up(need, kUnit);
    u64 size = up(need, 2 * MiB);
    if (W(short_between) && need > 100 * MiB && need < GiB && need % (2 * MiB) <= kUnit)
      size = need / (2 * MiB) * (2 * MiB);
    {
      std::lock_guard lock(m);
      const u64 grown = std::bit_floor(reserved / 4 + 1);
      const u64 usual = std::clamp<u64>(grown, need <= MiB ? 2 * MiB : 8 * MiB, 32 * MiB);
      if (need <= usual / 2) size = usual;
    }
    u64 base = 0;
    emm_status s = EMM_SUCCESS;
    if (W(reserved_before)) {
      std::lock_guard lock(m);
      reserved += 64 * KiB;
    }
    for (;;) {
      s = alloc_chunk(size, &base);
      if (s != EMM_OUT_OF_MEMORY || size == least) break;
      if (W(counts_each_oom)) ++ooms;
      size = size / 2 >= up(need, 2 * MiB) ? size / 2
             : size > up(need, 2 * MiB)    ? up(need, 2 * MiB)
                                           : least;
      if (W(second_error_hidden) && size == least) {
        s = d->mem_alloc(d->user, size, &base);
        if (s != EMM_SUCCESS) s = EMM_OUT_OF_MEMORY;
        break;
      }
    }
    if (s != EMM_SUCCESS) return s;
    if (W(reserved_before)) {
      std::lock_guard lock(m);
      reserved -= 64 * KiB;
    }
    auto* c = new Chunk;
    auto* b = new Block;
    c->base = base;
    c->size = size;
    c->first = b;
    b->address = base;
    b->size = size;
    b->chunk = c;
    std::lock_guard lock(m);
    chunks[base] = c;
    reserved += size;
    reserved_bytes.add(size);
    segment.add(1);
    *answer = b;
    return s;
  }
  bool is_idle(const Chunk* c) const {
    if (W(busy_is_idle)) {
      for (Block* b = c->first; b; b = b->above)
        if (b->state == State::live) return false;
      return true;
    }
    return c->first->state == State::clean && !c->first->above;
  }
  emm_status release_idle(u64 keep, bool by_trim = false) {
    std::vector<Chunk*> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      for (auto& [base, c] : chunks)
        if (is_idle(c)) idle += c->size;
      if (W(keep_counts_live) && by_trim && keep > 0) idle = idle > in_use ? idle - in_use : 0;
      u64 gone = 0;
      const auto goes_on = [&] {
        return W(trim_keeps_the_rest) && by_trim && keep > 0 ? gone < keep : idle > keep;
      };
      for (auto at = chunks.begin(); at != chunks.end() && goes_on();) {
        Chunk* c = at->second;
        if (!is_idle(c)) {
          ++at;
          continue;
        }
        if (W(busy_is_idle)) {
          for (Block* b = c->first; b; b = b->above)
            if (b->state == State::clean)
              bin_remove(b);
            else if (b->state == State::pending)
              pend_remove(b);
        } else
          bin_remove(c->first);
        idle -= c->size;
        gone += c->size;
        reserved -= c->size;
        reserved_bytes.sub(c->size);
        if (!(W(segments_stay) && by_trim)) segment.sub(1);
        if (W(peaks_fall) && by_trim)
          reserved_bytes.peak = reserved_bytes.current,
          allocated_bytes.peak = allocated_bytes.current;
        out.push_back(c);
        at = chunks.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (Chunk* c : out) {
      const u64 segments = segment.current;
      emm_status s = free_chunk(c->base);
      if (W(segment_race)) segment.current = segments;
      if (first == EMM_SUCCESS || W(trim_last_error)) first = s;
      if (s != EMM_SUCCESS && W(refused_chunk_stays)) {
        std::lock_guard lock(m);
        chunks[c->base] = c;
        bin_insert(c->first);
        continue;
      }
      if (W(busy_is_idle)) continue;
      delete c->first;
      delete c;
    }
    return first;
  }

  // The queue and the cache.
  emm_status make(const Waiting& w) {
    return w.is_host ? d->mem_free_host(d->user, w.host) : d->mem_free(d->user, w.address);
  }
  emm_status flush(bool in_oom = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    const u64 most = W(flush_of_500) ? 500 : ~u64{0};
    bool began = false;
    for (; count < most;) {
      Waiting w;
      {
        std::lock_guard lock(m);
        if (queue.empty()) break;
        if (deferrals > 0 && !(W(flush_goes_on) && began)) break;
        began = true;
        w = queue.front();
        queue.pop_front();
        queue_bytes -= w.size;
        if (W(pending_32_bits)) queue_bytes = static_cast<std::uint32_t>(queue_bytes);
      }
      const emm_status s = make(w);
      if (first == EMM_SUCCESS || W(flush_last_error)) first = s;
      ++count;
      bytes += w.size;
    }
    (void)in_oom;
    if (count && h && h->flushed) h->flushed(h->user, count, bytes);
    return first;
  }
  void enqueue(const Waiting& w, bool quiet = false) {
    bool full = false;
    {
      std::lock_guard lock(m);
      if (W(queue_of_256) && queue.size() >= 256) return;
      if (W(queue_of_1024) && queue.size() >= 1024) return;
      if (W(queue_ring_512) && queue.size() >= 512) queue.pop_front();
      queue.push_back(w);
      queue_bytes += w.size;
      if (W(pending_32_bits)) queue_bytes = static_cast<std::uint32_t>(queue_bytes);
      full = queue.size() > 16;
      if (W(deferral_of_2000) && queue.size() > 2000) {
        const auto kept = deferrals;
        deferrals = 0;
        m.unlock();
        tell(flush());
        m.lock();
        deferrals = kept;
      }
      if (W(deferral_of_half)) {
        emm_memory_info info{};
        const auto kept = deferrals;
        m.unlock();
        if (d->mem_get_info(d->user, &info.free, &info.total) != EMM_SUCCESS) info.total = 0;
        m.lock();
        if (info.total && queue_bytes > info.total / 2) {
          deferrals = 0;
          m.unlock();
          tell(flush());
          m.lock();
          deferrals = kept;
        }
      }
      if (W(deferral_of_2GiB) && queue_bytes > 2 * GiB) {
        const auto kept = deferrals;
        deferrals = 0;
        m.unlock();
        tell(flush());
        m.lock();
        deferrals = kept;
      }
    }
    if (h && h->pending_added && !(W(needs_no_told)))
      h->pending_added(
          h->user,
          w.is_host || (W(names_host_in_deferral) && deferrals > 0) ? "mem_free_host" : "mem_free",
          w.size);
    if (W(reset_tells_locked) && quiet && h && h->pending_added) {
      std::lock_guard lock(m);
      h->pending_added(h->user, "mem_free", 0);
    }
    if (W(host_slots_needed)) h->pending_added(h->user, "mem_free", 0), h->flushed(h->user, 1, 0);
    if (full && !quiet) tell(flush());
  }
  emm_status release_cache(bool anyway = false) {
    std::vector<Cached> out;
    {
      std::lock_guard lock(m);
      if (deferrals > 0 && !anyway) return EMM_SUCCESS;
      out.swap(cache);
      cache_bytes = 0;
      for (Cached& one : out) drop_all(one.fences);
    }
    emm_status first = EMM_SUCCESS;
    for (Cached& one : out) {
      const emm_status s = d->mem_free_host(d->user, one.host);
      if (first == EMM_SUCCESS) first = s;
      if (s != EMM_SUCCESS && W(cache_stops_at_failure)) break;
    }
    return first;
  }
  u64 host_room(u64 size) const {
    if (size > MiB) return 0;
    if (W(host_room_down) && size > 600 * KiB) return 600 * KiB;
    return std::bit_ceil(std::max<u64>(size, 4 * KiB));
  }
  void give_host(const Record& r, emm_stream stream, bool by_reset) {
    const u64 limit = 8 * MiB;
    std::vector<Fence*> fences;
    if (r.room != 0) {
      if (by_reset) {
        if (!W(reset_host_unfenced)) fences.push_back(new Fence);
      } else if (W(host_fence_on_default)) {
        if (record(0, 0, fences) != EMM_SUCCESS) wait_or_wild(fences);
      } else if (record(stream, key_of(stream), fences) != EMM_SUCCESS) {
        if (!W(host_unfenced_where_refused)) wait_or_wild(fences);
      }
      std::vector<void*> evicted;
      {
        std::lock_guard lock(m);
        bool fits = cache_bytes + r.room <= limit;
        if (!fits && W(cache_evicts)) {
          while (!cache.empty() && cache_bytes + r.room > limit) {
            evicted.push_back(cache.front().host);
            cache_bytes -= cache.front().room;
            drop_all(cache.front().fences);
            cache.erase(cache.begin());
          }
          fits = true;
        }
        if (fits) {
          cache.push_back({r.host, r.address, r.room, r.flags, fences, deferrals > 0});
          cache_bytes += r.room;
          fences.clear();
        } else
          drop_all(fences);
        if (!fits && W(small_full_at_once)) {
          m.unlock();
          tell(d->mem_free_host(d->user, r.host));
          m.lock();
          return;
        }
        if (fits) {
          m.unlock();
          for (void* p : evicted) tell(d->mem_free_host(d->user, p));
          m.lock();
          return;
        }
      }
    }
    enqueue({true, r.size, 0, r.host}, by_reset);
  }

  // Device memory.
  emm_status order_after(Block* b, emm_stream stream, u64 key) {
    if (W(waits_first_of_two) && b->fences.size() > 1 && b->size > 2 * MiB) {
      for (Fence* f : b->fences) {
        if (f->key == key) continue;
        return f->event ? d->stream_wait_event(d->user, stream, f->event)
                        : d->ctx_synchronize(d->user);
      }
    }
    std::size_t done = 0;
    for (Fence* f : b->fences) {
      if (f->key == key) {
        ++done;
        continue;
      }
      emm_status s =
          f->event ? d->stream_wait_event(d->user, stream, f->event) : d->ctx_synchronize(d->user);
      if (s != EMM_SUCCESS && W(second_wait_ignored) && done > 0) s = EMM_SUCCESS;
      if (s != EMM_SUCCESS && W(waited_fences_dropped) && done > 0) {
        std::lock_guard lock(m);
        for (std::size_t i = 0; i < done; ++i) drop(b->fences[i]);
        b->fences.erase(b->fences.begin(), b->fences.begin() + static_cast<long>(done));
      }
      if (s != EMM_SUCCESS) {
        was_refused = true;
        return s;
      }
      ++done;
    }
    return EMM_SUCCESS;
  }
  emm_status take(u64 need, emm_stream stream, Block** answer) {
    const u64 key = key_of(stream);
    for (int turn = 0;; ++turn) {
      poll();
      Block* b = nullptr;
      bool waits = false;
      {
        std::lock_guard lock(m);
        auto fit = [&](u64 k) -> Block* {
          auto at = sets.find(k);
          if (at == sets.end()) return nullptr;
          auto one = at->second.lower_bound({need, 0, nullptr});
          return one == at->second.end() ? nullptr : std::get<2>(*one);
        };
        if ((b = fit(key))) {
          pend_remove(b);
        } else if ((b = bin_find(need)))
          bin_remove(b);
        else {
          for (auto& [k, set] : sets) {
            auto one = set.lower_bound({need, 0, nullptr});
            if (one != set.end() && (!b || b->size > std::get<0>(*one))) b = std::get<2>(*one);
          }
          if (b) pend_remove(b), waits = true;
        }
        if (b && !waits && (W(mixed_by_last) == false)) {
        }
      }
      if (b && waits) {
        const emm_status s = order_after(b, stream, key);
        if (s != EMM_SUCCESS) {
          if (W(failed_wait_loses5)) {
            std::lock_guard lock(m);
            lost.push_back(b);
            return s;
          }
          {
            std::lock_guard lock(m);
            put_back(b, true);
          }
          return fail(W(wait_error_unknown)  ? EMM_UNKNOWN_ERROR
                      : W(wait_error_memory) ? EMM_OUT_OF_MEMORY
                                             : s,
                      "no order with the work before");
        }
      }
      if (!b) {
        emm_status s = new_chunk(need, &b);
        if (s == EMM_OUT_OF_MEMORY) {
          ++retries;
          if (turn == 0) {
            if (!W(oom_keeps_queue)) tell(flush(true));
            tell(release_cache(W(oom_frees_cache)));
            const emm_status w = settle();
            continue;
          }
          if (turn == 1) {
            const emm_status released = release_idle(0);
            std::unique_lock lock(m, std::defer_lock);
            if (W(oom_tells_locked)) lock.lock();
            tell(released);
            continue;
          }
          return fail(s, "out of memory");
        }
        if (s != EMM_SUCCESS) return fail(s, "the device refuses memory");
      }
      std::lock_guard lock(m);
      if (W(steal_short_large) && waits && need >= 8 * MiB) need -= kUnit;
      if (W(deferral_oom_short) && turn > 0 && deferrals > 0 && need >= 4 * KiB) need -= kUnit;
      if (W(short_after_refusal) && was_refused && need > MiB) {
        need -= kUnit;
        was_refused = false;
      }
      if (Block* rest = split(b, need)) {
        if (W(rest_is_clean) && waits) drop_all(rest->fences);
        put_back(rest, true);
      }
      drop_all(b->fences);
      b->state = State::live;
      *answer = b;
      return EMM_SUCCESS;
    }
  }
  void give_late() {
    std::vector<std::pair<Block*, emm_stream>> all;
    {
      std::lock_guard lock(m);
      if (deferrals > 0) return;
      all.swap(late);
    }
    for (auto& [b, stream] : all) {
      b->key = key_of(b->stream);
      give(b, stream, false);
    }
  }
  void begin_helper() {
    std::lock_guard lock(helper_mutex);
    if (std::exchange(helper_runs, true)) return;
    helper = std::thread([this] {
      std::unique_lock held(helper_mutex);
      while (!helper_ends) {
        helper_is_asked = false;
        helper_changed.notify_all();
        helper_changed.wait(held, [this] { return helper_is_asked || helper_ends; });
      }
    });
  }
  void ask_helper() {
    std::unique_lock lock(helper_mutex);
    if (!helper_runs) return;
    helper_is_asked = true;
    helper_changed.notify_all();
    helper_changed.wait(lock, [this] { return !helper_is_asked; });
  }
  void give(Block* b, emm_stream stream, bool by_reset) {
    if (W(deferred_records_late) && !by_reset) {
      std::lock_guard lock(m);
      if (deferrals > 0) {
        late.push_back({b, stream});
        return;
      }
    }
    const u64 key = by_reset ? b->key : key_of(stream);
    u64 in_use_was = 0;
    {
      std::lock_guard lock(m);
      in_use_was = in_use;
    }
    const bool is_nameable = (W(reset_names_any) && by_reset) || (b->key & 3) != 2 ||
                             b->stream != 2 || b->key == key_of(2);
    std::vector<Fence*> fences;
    if (W(record_after_publish) && is_nameable && key == b->key && !by_reset) {
      emm_handle e = 0;
      {
        std::lock_guard lock(m);
        if (!spare.empty()) {
          e = spare.back();
          spare.pop_back();
        }
      }
      if (e || d->event_create(d->user, &e) == EMM_SUCCESS) {
        const emm_stream own = b->stream;
        auto* f = new Fence;
        f->event = e;
        f->key = key;
        {
          std::lock_guard lock(m);
          in_use -= b->size;
          live_blocks.erase(b->address);
          b->fences = {f};
          put_back(b);
        }
        if (d->event_record(d->user, e, own) != EMM_SUCCESS) d->ctx_synchronize(d->user);
        return;
      }
    }
    const bool records = is_nameable && !(W(reset_unfenced) && by_reset);
    emm_status s = records ? record(b->stream, b->key, fences) : EMM_UNKNOWN_ERROR;
    if (W(one_stream_if_default) && !by_reset && key == 0 && b->key != 0) {
      drop_locked(fences);
      s = record(0, 0, fences);
    }
    if (s == EMM_SUCCESS && key != b->key && !W(owner_alone) &&
        !(W(middle_unfenced) && b->size > 6 * MiB && b->size < 40 * MiB) &&
        !(W(tiny_unfenced) && b->size <= 2 * KiB)) {
      const emm_status t = record(stream, key, fences);
      if (!(W(second_fence_ignored) && t != EMM_SUCCESS)) s = t;
    }
    if (W(first_record_refused_ignored) && s != EMM_SUCCESS && is_nameable && key == b->key) {
      std::lock_guard lock(m);
      lost.push_back(b);
      in_use -= b->size;
      live_blocks.erase(b->address);
      return;
    }
    const bool goes_on = (W(reset_unfenced) && by_reset) || W(refused_record_unfenced);
    if (s != EMM_SUCCESS && !goes_on) wait_or_wild(fences);
    if (W(poison_on_free))
      d->memset_d8_async(d->user, b->address, 0xDD, std::min<u64>(b->size, 4 * KiB), 0);
    if (W(poison_on_stream) && key != b->key)
      d->memset_d8_async(d->user, b->address, 0xDD, std::min<u64>(b->size, 4 * KiB), stream);
    if (W(poison_blocking))
      d->memset_d8(d->user, b->address, 0xDD, std::min<u64>(b->size, 4 * KiB));
    std::lock_guard lock(m);
    if (W(in_use_race))
      in_use = in_use_was - b->size;
    else
      in_use -= b->size;
    live_blocks.erase(b->address);
    b->fences = std::move(fences);
    put_back(b);
  }
  void drop_locked(std::vector<Fence*>& fences) {
    std::lock_guard lock(m);
    drop_all(fences);
  }

  // Tokens.
  emm_token hand_out(Record r, emm_memory* memory) {
    std::lock_guard lock(m);
    emm_token token = ++last_token;
    if (W(generation_8_bits) || W(generation_16_bits)) {
      std::uint32_t slot;
      if (free_slots.empty()) {
        slot = static_cast<std::uint32_t>(generations.size());
        generations.push_back(0);
      } else {
        slot = free_slots.back();
        free_slots.pop_back();
      }
      token = u64{slot + 1} | u64{generations[slot]} << 32;
    }
    r.number = last_token;
    if (r.kind == Kind::device || r.kind == Kind::managed) {
      live += r.size;
      requested_bytes.add(r.size);
      if (W(statistics_32_bits))
        requested_bytes.current = static_cast<std::uint32_t>(requested_bytes.current);
      allocation.add(1);
      allocated_bytes.add(r.block ? r.block->size : r.size);
    }
    if (r.block) {
      r.block->requested = r.size;
      live_blocks[r.block->address] = r.block;
      in_use += r.block->size;
    }
    memory->token = token;
    memory->device_pointer = r.address;
    memory->host_pointer = r.host;
    records[token] = r;
    return token;
  }
  void uncount(const Record& r) {
    if (r.kind != Kind::device && r.kind != Kind::managed) return;
    live -= r.size;
    requested_bytes.sub(r.size);
    allocation.sub(1);
    const u64 rounded = r.block ? r.block->size : r.size;
    allocated_bytes.sub(rounded);
    if (W(freed_counts_requested)) allocated_bytes.freed -= rounded - r.size;
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    largest_known = 0;
    const bool wraps = W(overflow_where_empty) && live == 0 && size > ~u64{0} - kUnit;
    if (W(refused_adds_up) && refused_sum > 640 * MiB) {
      ++ooms;
      return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
    }
    if (size > u64{1} << 50 && !wraps) {
      ++ooms;
      return fail(EMM_OUT_OF_MEMORY, "more than any device has");
    }
    if (W(after_150000)) {
      std::lock_guard lock(m);
      if (last_token >= 150000) return fail(EMM_OUT_OF_MEMORY, "no more");
    }
    if (W(live_32767)) {
      std::lock_guard lock(m);
      if (records.size() >= 32767) return fail(EMM_OUT_OF_MEMORY, "no more");
    }
    if (W(live_65535)) {
      std::lock_guard lock(m);
      if (records.size() >= 65535) return fail(EMM_OUT_OF_MEMORY, "no more");
    }
    if (W(leaks_pushes)) {
      d->ctx_push_current(d->user);
    }
    Block* b = nullptr;
    u64 need = std::max(up(size, kUnit), kUnit);
    const bool is_late =
        W(alignment_100_400) && size > 100 * MiB && size < 400 * MiB && size % kUnit != 0;
    if (is_late) need += kUnit;
    const emm_status s = take(need, stream, &b);
    if (W(leaks_pushes)) {
      emm_handle c;
      if (s != EMM_UNKNOWN_ERROR && s != 700) d->ctx_pop_current(d->user, &c);
    }
    if (s != EMM_SUCCESS) {
      if (s == EMM_OUT_OF_MEMORY) ++ooms, refused_sum += need;
      if (W(heap_of_refused)) kept_for_leak.push_back(std::malloc(80));
      return s;
    }
    b->stream = stream;
    b->key = key_of(stream);
    Record r;
    r.size = size;
    r.address = b->address + (is_late ? 128 : 0);
    r.block = b;
    hand_out(r, memory);
    return EMM_SUCCESS;
  }
  emm_status end(const Record& r, emm_stream stream, bool by_reset) {
    largest_known = 0;
    switch (r.kind) {
      case Kind::device:
        give(r.block, stream, by_reset);
        return EMM_SUCCESS;
      case Kind::managed:
        enqueue({false, r.size, r.address, nullptr}, by_reset);
        return EMM_SUCCESS;
      case Kind::host:
        give_host(r, stream, by_reset);
        return EMM_SUCCESS;
      case Kind::region: {
        if (r.room == 1) return EMM_SUCCESS;

        return d->mem_host_unregister(d->user, r.host);
      }
    }
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    Record r;
    {
      std::lock_guard lock(m);
      auto at = records.find(token);
      if (at == records.end()) {
        if (W(late_free_records)) {
          emm_handle e = 0;
          m.unlock();
          if (d->event_create(d->user, &e) == EMM_SUCCESS) {
            d->event_record(d->user, e, stream);
            d->event_destroy(d->user, e);
          }
          m.lock();
        }
        if (W(generation_8_bits) || W(generation_16_bits)) return EMM_SUCCESS;
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      }
      r = at->second;
      records.erase(at);
      uncount(r);
      if (W(generation_8_bits) || W(generation_16_bits)) {
        std::uint32_t slot = static_cast<std::uint32_t>(token) - 1;
        generations[slot] = (generations[slot] + 1) & (W(generation_8_bits) ? 0xff : 0xffff);
        free_slots.push_back(slot);
      }
    }
    const emm_status s = end(r, stream, false);
    return fail(s != EMM_SUCCESS && W(ends_answer_unknown) ? EMM_UNKNOWN_ERROR : s,
                "the device refused a free");
  }

  // Host and managed memory.
  emm_status from_cache(Record& r, bool waits) {
    std::vector<Cached> tried;
    emm_status answer = EMM_NOT_FOUND;
    for (int i = 0; i < (waits ? 1000 : 4); ++i) {
      Cached one;
      {
        std::lock_guard lock(m);
        auto at = std::find_if(cache.rbegin(), cache.rend(), [&](const Cached& c) {
          if (W(cache_blind_where_out) && waits)
            return c.room >= r.room && (!(r.flags & 2) || (c.flags & 2));
          if (W(cache_portable_will_do) && cache.size() > 8)
            return c.room == r.room && (c.flags & ~1u) == r.flags;
          return c.room == r.room && c.flags == r.flags;
        });
        if (at == cache.rend()) break;
        one = *at;
        if (!W(cache_query_unlocked)) {
          cache.erase(std::next(at).base());
          cache_bytes -= one.room;
        } else
          for (Fence* f : one.fences) ++f->refs;
      }
      bool ready = true;
      for (Fence* f : one.fences) {
        const emm_status s = waits ? wait_on_host(f) : query(f);
        if (s != EMM_SUCCESS && !(W(cache_query_error) && s != EMM_NOT_READY)) ready = false;
      }
      if (W(cache_never_waits) && one.room >= 512 * KiB) ready = true;
      if (!ready && W(cache_query_unlocked)) {
        std::lock_guard lock(m);
        drop_all(one.fences);
        break;
      }
      if (!ready) {
        tried.push_back(one);
        continue;
      }
      {
        std::lock_guard lock(m);
        if (W(cache_query_unlocked)) {
          for (auto at = cache.begin(); at != cache.end(); ++at)
            if (at->host == one.host) {
              cache_bytes -= one.room;
              auto f = at->fences;
              cache.erase(at);
              drop_all(f);
              break;
            }
        }
        drop_all(one.fences);
      }
      r.host = one.host;
      r.address = W(cache_out_unmapped) && waits ? 0 : one.address;
      answer = EMM_SUCCESS;
      break;
    }
    std::lock_guard lock(m);
    for (Cached& one : tried) {
      cache.push_back(one);
      cache_bytes += one.room;
    }
    return answer;
  }
  emm_status memhostalloc(u64 size, std::uint32_t flags, emm_memory* memory) {
    Record r;
    r.kind = Kind::host;
    r.size = size;
    r.flags = flags;
    r.room = host_room(size);
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    if (r.room && from_cache(r, false) == EMM_SUCCESS) {
      hand_out(r, memory);
      return EMM_SUCCESS;
    }
    u64 bytes = r.room ? r.room : size;
    if (W(host_round_overflow)) bytes = std::max<u64>(up(bytes, 4096), 4096);
    emm_status s = d->mem_host_alloc(d->user, bytes, flags, &r.host);
    if (s == EMM_OUT_OF_MEMORY) {
      if (r.room && from_cache(r, true) == EMM_SUCCESS) {
        hand_out(r, memory);
        return EMM_SUCCESS;
      }
      tell(flush());
      tell(release_cache());
      if (W(host_exact_where_out)) bytes = size;
      s = d->mem_host_alloc(d->user, bytes, flags, &r.host);
    }
    if (s != EMM_SUCCESS) {
      if (W(heap_of_refused_host)) kept_for_leak.push_back(std::malloc(80));
      return fail(s, "no page-locked memory");
    }
    if (flags & EMM_HOST_MAPPED) {
      s = d->mem_host_get_device_pointer(d->user, r.host, &r.address);
      if (s != EMM_SUCCESS) {
        tell(d->mem_free_host(d->user, r.host));
        return fail(s, "it cannot be mapped");
      }
    }
    hand_out(r, memory);
    return EMM_SUCCESS;
  }
  emm_status mempin(void* p, u64 size, std::uint32_t flags, emm_memory* memory) {
    Record r;
    r.kind = Kind::region;
    r.size = size;
    r.flags = flags;
    r.host = p;
    if (W(subrange_is_pinned)) {
      std::lock_guard lock(m);
      for (auto& [t, one] : records) {
        if (one.kind != Kind::region || one.room == 1) continue;
        const u64 from = reinterpret_cast<u64>(one.host), at = reinterpret_cast<u64>(p);
        if (at >= from && at + size <= from + one.size && !(at == from && size == one.size)) {
          r.room = 1;
          r.address = one.address ? one.address + (at - from) : 0;
          m.unlock();
          hand_out(r, memory);
          m.lock();
          return EMM_SUCCESS;
        }
      }
    }
    u64 bytes = W(pin_32_bits) ? static_cast<std::uint32_t>(size) : size;
    if (W(pushes_for_pins)) d->ctx_push_current(d->user);
    emm_status s = d->mem_host_register(d->user, p, bytes, flags);
    if (s == EMM_OUT_OF_MEMORY) {
      tell(flush());
      tell(release_cache());
      s = d->mem_host_register(d->user, p, bytes, flags);
    }
    if (s == EMM_INVALID_VALUE && W(pin_widens)) {
      const u64 at = reinterpret_cast<u64>(p) & ~u64{4095};
      bytes = ((reinterpret_cast<u64>(p) + size + 4095) & ~u64{4095}) - at;
      r.host = p = reinterpret_cast<void*>(at);
      s = d->mem_host_register(d->user, p, bytes, flags);
    }
    if (s != EMM_SUCCESS) return fail(s, "the region cannot be pinned");
    if (W(pushes_for_pins)) {
      emm_handle c;
      d->ctx_pop_current(d->user, &c);
    }
    if (flags & EMM_PIN_MAPPED) {
      if (W(memo_of_regions)) {
        std::lock_guard lock(m);
        auto at = slot_of.find(reinterpret_cast<u64>(p));
        if (at != slot_of.end()) {
          r.address = at->second;
        }
      }
      if (r.address == 0) {
        s = d->mem_host_get_device_pointer(d->user, p, &r.address);
        if (s != EMM_SUCCESS) {
          tell(d->mem_host_unregister(d->user, p));
          return fail(s, "it cannot be mapped");
        }
        if (W(memo_of_regions)) {
          std::lock_guard lock(m);
          slot_of[reinterpret_cast<u64>(p)] = r.address;
        }
      }
    }
    hand_out(r, memory);
    return EMM_SUCCESS;
  }
  emm_status memallocmanaged(u64 size, std::uint32_t attach, emm_memory* memory) {
    Record r;
    r.kind = Kind::managed;
    r.size = size;
    r.flags = attach;
    u64 bytes = size;
    if (W(managed_round_overflow)) bytes = std::max<u64>(up(size, 4096), 4096);
    emm_status s = d->mem_alloc_managed(d->user, bytes, attach, &r.address);
    if (s == EMM_OUT_OF_MEMORY) {
      tell(flush());
      if (!W(managed_oom_keeps_idle)) {
        if (settle() == EMM_SUCCESS) tell(release_idle(0));
      }
      s = d->mem_alloc_managed(d->user, bytes, attach, &r.address);
    }
    if (s != EMM_SUCCESS) {
      if (W(heap_of_refused_host)) kept_for_leak.push_back(std::malloc(80));
      return fail(s, "no managed memory");
    }
    r.host = reinterpret_cast<void*>(r.address);
    hand_out(r, memory);
    return EMM_SUCCESS;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    u64 base = 0;
    {
      std::unique_lock lock(m);
      if (W(ipc_unlocked)) lock.unlock();
      auto at = live_blocks.upper_bound(pointer);
      if (at != live_blocks.begin()) {
        const Block* b = std::prev(at)->second;
        if (pointer - b->address < b->requested && size <= b->requested - (pointer - b->address))
          base = b->chunk->base;
      }
      if (W(lock_in_ipc)) {
        emm_status s = d->ipc_get_mem_handle(d->user, base, handle->bytes);
        (void)s;
      }
    }
    if (W(heap_of_handles)) kept_for_leak.push_back(std::malloc(64));
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this pool");
    const emm_status s = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (s != EMM_SUCCESS) return fail(s, "no handle");
    handle->offset = pointer - base;
    std::int32_t pci[3];
    d->device_identity(d->user, pci);
    handle->pci_domain_id = pci[0];
    handle->pci_bus_id = pci[1];
    handle->pci_device_id = pci[2];
    return s;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    const emm_status s = d->mem_get_info(d->user, &info->free, &info->total);
    if (s != EMM_SUCCESS) return fail(s, "the device says nothing");
    std::lock_guard lock(m);
    info->free = std::min(info->total, info->free + (reserved - in_use));
    if (W(heap_of_infos)) kept_for_leak.push_back(std::malloc(64));
    return s;
  }
  void reset(bool at_end) {
    std::vector<Record> all;
    emm_token last = 0;
    {
      std::lock_guard lock(m);
      last = last_token;
      last_reset = last_token;
      for (auto& [t, r] : records) {
        uncount(r);
        all.push_back(r);
        if (W(generation_8_bits) || W(generation_16_bits)) {
          std::uint32_t slot = static_cast<std::uint32_t>(t) - 1;
          generations[slot] = (generations[slot] + 1) & (W(generation_8_bits) ? 0xff : 0xffff);
          free_slots.push_back(slot);
        }
      }
      records.clear();
    }
    std::sort(all.begin(), all.end(),
              [](const Record& a, const Record& b) { return a.number < b.number; });
    for (const Record& r : all) {
      const emm_status ended = end(r, r.block ? r.block->stream : 0, true);
      tell(ended);
      if (W(reset_ends_at_refused) && ended != EMM_SUCCESS) break;
    }
    if (W(reset_forgets_concurrent)) {
      std::lock_guard lock(m);
      if (last_token != last) {
        live = 0;
        for (auto& [t, r] : records)
          if (r.number > last) lost.push_back(r.block);
        records.clear();
        last_reset = last_token;
      }
    }
    bool deferred;
    {
      std::lock_guard lock(m);
      deferred = deferrals > 0 && !at_end;
    }
    if (deferred && W(reset_frees_cache)) tell(release_cache(true));
    if (deferred) return;
    tell(flush());
    const emm_status s = settle();
    tell(release_cache(at_end));
    if (s == EMM_SUCCESS || at_end) tell(release_idle(0));
  }
  emm_status trim(u64 keep) {
    if (W(trim_waits_not)) {
      poll();
    } else {
      const emm_status s = settle();
      if (s != EMM_SUCCESS) return fail(s, "the work has no end");
    }
    const emm_status s = release_idle(keep, true);
    if (driver_pool) d->ctx_synchronize(d->user), d->mem_pool_trim_to(d->user, driver_pool, keep);
    const emm_status t = keep == 0 ? release_cache(W(trim_frees_cache)) : EMM_SUCCESS;
    if (W(ends_answer_unknown) && s != EMM_SUCCESS)
      return fail(EMM_INVALID_VALUE, "the device refused a free");
    return fail(s != EMM_SUCCESS ? s : t, "the device refused a free");
  }
  u64 largest() {
    u64 most = 0;
    for (auto& row : bins)
      for (Block* b : row)
        for (; b; b = b->after) most = std::max(most, b->size);
    for (auto& [k, set] : sets)
      if (!set.empty()) most = std::max(most, std::get<0>(*set.rbegin()));
    return most;
  }
  void state(emm_state* s) {
    if (W(state_synchronizes)) d->ctx_synchronize(d->user);
    if (W(state_polls)) settle();
    std::lock_guard lock(m);
    s->live_bytes = live;
    s->reserved_bytes = reserved;
    if (W(reserved_is_used)) s->reserved_bytes = in_use;
    if (driver_pool && W(reserved_is_high)) {
      constexpr std::uint32_t kReservedHigh = 6;
      d->mem_pool_get_attribute(d->user, driver_pool, kReservedHigh, &s->reserved_bytes);
    }
    s->largest_free_bytes = W(largest_32_bits) ? static_cast<std::uint32_t>(largest()) : largest();
    if (W(largest_outlives_trim)) {
      if (largest_known == 0) largest_known = s->largest_free_bytes;
      s->largest_free_bytes = largest_known;
    }
    s->pending_count = queue.size();
    s->pending_bytes = queue_bytes;
    if (W(pending_8_bits)) s->pending_count &= 0xff;
  }
  void destroy_rest() {
    if (W(end_forgets_deferred) && deferrals > 0) queue.clear();
    deferrals = 0;
    give_late();
    if (helper_runs) {
      helper_mutex.lock();
      helper_ends = true;
      helper_changed.notify_all();
      helper_mutex.unlock();
      helper.join();
    }
    reset(true);
    if (W(destroy_aborts)) {
      if (d->ctx_synchronize(d->user) != EMM_SUCCESS) std::abort();
    }
    // What could not be waited for goes all the same.
    std::vector<Chunk*> out;
    for (auto& [base, c] : chunks) out.push_back(c);
    for (Chunk* c : out) {
      tell(free_chunk(c->base));
      for (Block* b = c->first; b;) {
        Block* next = b->above;
        for (Fence* f : b->fences)
          if (--f->refs == 0) {
            if (f->event) spare.push_back(f->event);
            delete f;
          }
        delete b;
        b = next;
      }
      delete c;
    }
    for (emm_handle e : spare) tell(d->event_destroy(d->user, e));
    if (driver_pool) d->ctx_synchronize(d->user), d->mem_pool_destroy(d->user, driver_pool);
    for (void* p : kept_for_leak) std::free(p);
  }
};

namespace {
std::size_t write(const std::string& text, char* buffer, std::size_t size) {
  if (size) {
    const std::size_t n = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), n);
    buffer[n] = 0;
  }
  return text.size();
}
emm_status create(const emm_create_v1* c, emm_manager** self) {
  auto made = std::make_unique<emm_manager>();
  std::string options = c->options;
  while (!options.empty()) {
    const auto comma = options.find(',');
    const std::string one = options.substr(0, comma);
    options = comma == std::string::npos ? "" : options.substr(comma + 1);
    bool known = false;
    if (one.rfind("wrong=", 0) == 0)
      for (std::size_t i = 0; i < std::size(kNames); ++i)
        if (one.substr(6) == kNames[i]) made->wrong = static_cast<Wrong>(i), known = true;
    if (one.rfind("grow=", 0) == 0) {
      char* e = nullptr;
      const std::string v = one.substr(5);
      if (made->W(option_throws)) {
        made->counter = std::stoull(v);
        known = true;
      } else {
        made->counter = std::strtoull(v.c_str(), &e, 10);
        known = !v.empty() && *e == 0;
      }
    }
    if (!known) {
      if (!made->W(create_without_words)) error_text = "unknown option: " + one;
      return EMM_INVALID_VALUE;
    }
  }
  if (!c->driver && !(c->flags & EMM_CREATE_PROBE)) {
    error_text = "no driver";
    return EMM_NOT_SUPPORTED;
  }
  made->d = c->driver;
  made->h = c->host;
  made->options = c->options;
  made->created = c;
  if (made->W(host_needed) && c->driver && c->host->struct_size < 8) return EMM_INVALID_VALUE;
  if (made->W(create_unlocked)) {
    all_managers.insert(made.get());
    std::this_thread::yield();
  }
  *self = made.release();
  return EMM_SUCCESS;
}
void destroy(emm_manager* self) {
  if (self->W(create_unlocked)) all_managers.erase(self);
  if (self->d) self->destroy_rest();
  delete self;
}
struct Stat {
  const char* name;
  u64 value;
};

const emm_plugin_table_v1 table = {
    sizeof(emm_plugin_table_v1),
    EMM_PLUGIN_ABI_VERSION,
    0,
    "fifth",
    "Two-level segregated fit with fences",
    "wrong=NAME,grow=N",
    create,
    destroy,
    [](emm_manager* self, char* b, std::size_t n) -> std::size_t {
      if (self && self->W(latin1_words) && !error_text.empty())
        return write("M\xe9moire: " + error_text, b, n);
      return write(error_text, b, n);
    },
    [](emm_manager* self) -> emm_status {
      std::lock_guard lock(self->m);
      if (self->W(initialize_clears_statistics))
        self->allocation.peak = self->allocation.current,
        self->allocated_bytes.peak = self->allocated_bytes.current, self->ooms = 0;
      if (self->W(initialize_leaks)) {
        emm_handle event = 0;
        emm_status s = self->d->event_create(self->d->user, &event);
        if (s == EMM_SUCCESS)
          s = self->d->mem_get_info(self->d->user, &self->told.free, &self->told.total);
        if (s != EMM_SUCCESS) return self->fail(s, "the device says nothing");
        self->spare.push_back(event);
      }
      return EMM_SUCCESS;
    },
    [](emm_manager* self, u64 size, emm_stream s, emm_memory* mem) {
      return self->memalloc(size, s, mem);
    },
    [](emm_manager* self, emm_token t, emm_stream s) {
      if (self->W(flush_by_helper)) self->begin_helper();
      return self->free_token(t, s);
    },
    [](emm_manager* self, u64 size, std::uint32_t f, emm_memory* mem) {
      return self->memhostalloc(size, f, mem);
    },
    [](emm_manager* self, void* p, u64 size, std::uint32_t f, emm_memory* mem) {
      return self->mempin(p, size, f, mem);
    },
    [](emm_manager* self, u64 size, std::uint32_t f, emm_memory* mem) {
      return self->memallocmanaged(size, f, mem);
    },
    [](emm_manager* self, u64 p, u64 size, emm_ipc_handle* hd) {
      return self->get_ipc_handle(p, size, hd);
    },
    [](emm_manager* self, emm_memory_info* i) { return self->get_memory_info(i); },
    [](emm_manager* self) { self->reset(false); },
    [](emm_manager* self) {
      std::lock_guard lock(self->m);
      ++self->deferrals;
      if (self->W(deferral_10_bits)) self->deferrals &= 0x3ff;
      if (self->W(heap_of_deferrals)) self->kept_for_leak.push_back(std::malloc(64));
    },
    [](emm_manager* self) {
      std::lock_guard lock(self->m);
      if (self->deferrals) --self->deferrals;
      if (self->W(deferred_records_late)) {
        self->m.unlock();
        self->give_late();
        self->m.lock();
      }
      if (!self->W(end_of_deferral_silent) || self->deferrals) return;
      self->m.unlock();
      (void)self->flush();
      self->m.lock();
    },
    nullptr,
    [](emm_manager* self) {
      if (self->W(flush_by_helper)) self->ask_helper();
      return self->fail(self->flush(), "the device refused a free");
    },
    [](emm_manager* self, emm_state* s) {
      if (s->struct_size >= sizeof *s) return self->state(s);
      emm_state whole{};
      self->state(&whole);
      whole.struct_size = s->struct_size;
      std::memcpy(s, &whole, s->struct_size);
    },
    [](emm_manager* self, char* b, std::size_t n) -> std::size_t {
      if (self->W(latin1_report)) return write("R\xe9serv\xe9: 1\n", b, n);
      if (self->W(keeps_options))
        return write(std::string("options: ") + self->options + "\n", b, n);
      if (self->W(keeps_create))
        return write("device: " + std::to_string(self->created->device) + "\n", b, n);
      return write("chunks: " + std::to_string(self->chunks.size()) + "\n", b, n);
    },
    [](emm_manager* self, u64 keep) { return self->trim(keep); },
    [](emm_manager* self, emm_statistic* out, std::size_t count) -> std::size_t {
      std::lock_guard lock(self->m);
      if (self->W(heap_of_statistics)) self->kept_for_leak.push_back(std::malloc(64));
      std::vector<Stat> all;
#define FOUR(c)                                            \
  all.push_back({#c ".all.current", self->c.current});     \
  all.push_back({#c ".all.peak", self->c.peak});           \
  all.push_back({#c ".all.allocated", self->c.allocated}); \
  all.push_back({#c ".all.freed", self->c.freed});
      FOUR(allocation)
      FOUR(allocated_bytes)
      FOUR(requested_bytes)
      FOUR(reserved_bytes) FOUR(segment) all.push_back({"num_ooms", self->ooms});
      all.push_back({"num_alloc_retries", self->retries});
      for (std::size_t i = 0; i < count && i < all.size(); ++i) {
        out[i] = {all[i].name, all[i].value};
        if (!self->W(names_of_manager)) continue;
        out[i].name = self->own_names.insert(all[i].name).first->c_str();
      }
      return all.size();
    },
};
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
