// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// seventh_wrong.def has each way and the rule that it breaks. A block is one allocation of the
// driver. What was freed stays idle, with the events of the streams that may use it; memory of all
// kinds does. What is freed inside a deferral is held back, and is idle after it.
#define WRONG_TABLE "seventh_wrong.def"
#include "wrong_by_option.hpp"

namespace {
struct Fence {
  emm_handle event = 0;  // 0: nothing but a wait for all work will do.
  u64 key = 0;
};
struct Block {
  Kind kind = Kind::device;
  u64 size = 0, requested = 0, address = 0;
  void* host = nullptr;
  u32 flags = 0;
  emm_stream stream = 0;
  u64 key = 0;
  u32 level = 0;  // Of wrong ones: deferrals at its end.
  bool by_reset = false;
  std::vector<Fence> fences = {};
};
constexpr u64 kWild = ~u64{0};
}  // namespace

struct emm_manager : Common {
  std::mutex releasing;  // Held by trim() and reset() alone.
  std::mutex m;          // Guards what follows, and is held in no call.
  std::map<emm_token, Block> records;
  std::multimap<u64, Block> idle[3];  // Of each kind before `region`, by size.
  std::list<Block> held;
  u64 idle_bytes[3] = {};
  std::vector<emm_handle> spare;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  u64 live = 0, reserved = 0;
  // Only wrong variants use these.
  std::vector<Block> lost;
  std::list<Block> regions;
  std::map<u64, std::string> handles;
  std::atomic<bool> was_out = false, was_refused = false, is_closed = false, is_used = false;

  static u64 key_of(emm_stream stream) {
    if (stream == 1) return 0;
    return stream == 2 ? thread_number << 40 | 2 : stream;
  }
  static u64 room(u64 size, Kind kind) {
    if (kind == Kind::host) return up(size, 4 * KiB);
    return size >= MiB ? up(size, 64 * KiB) : up(size, 512);
  }

  // Events.
  bool record(emm_stream stream, u64 key, std::vector<Fence>* fences) {
    emm_handle event = 0;
    {
      std::lock_guard lock(m);
      if (!spare.empty()) {
        event = spare.back();
        spare.pop_back();
      }
    }
    if (event == 0 && d->event_create(d->user, &event) != EMM_SUCCESS) return false;
    if (d->event_record(d->user, event, stream) != EMM_SUCCESS) {
      std::lock_guard lock(m);
      spare.push_back(event);
      return false;
    }
    fences->push_back({event, key});
    return true;
  }
  void wait_or_wild(std::vector<Fence>* fences) {
    if (d->ctx_synchronize(d->user) != EMM_SUCCESS) fences->push_back({0, kWild});
  }
  void drop(std::vector<Fence>* fences) {  // Under the lock.
    for (const Fence& fence : *fences)
      if (fence.event != 0) spare.push_back(fence.event);
    fences->clear();
  }
  emm_status wait_on_host(const Block& block) {
    for (const Fence& fence : block.fences) {
      const emm_status status = fence.event != 0 ? d->event_synchronize(d->user, fence.event)
                                                 : d->ctx_synchronize(d->user);
      if (status != EMM_SUCCESS) return status;
    }
    return EMM_SUCCESS;
  }
  emm_status wait_on_stream(const Block& block, emm_stream stream, u64 key) {
    for (const Fence& fence : block.fences) {
      if (fence.key == key) continue;
      const emm_status status = fence.event != 0
                                    ? d->stream_wait_event(d->user, stream, fence.event)
                                    : d->ctx_synchronize(d->user);
      if (status != EMM_SUCCESS) return status;
    }
    return EMM_SUCCESS;
  }

  emm_status end_at_driver(const Block& block) {
    switch (block.kind) {
      case Kind::host:
        return d->mem_free_host(d->user, block.host);
      case Kind::region:
        return d->mem_host_unregister(d->user, block.host);
      default:
        return d->mem_free(d->user, block.address);
    }
  }

  void add_idle(Block block) {  // Under the lock.
    const int kind = static_cast<int>(block.kind);
    idle_bytes[kind] += block.size;
    idle[kind].emplace(block.size, std::move(block));
  }

  // What was held back is idle, where nothing is deferred.
  void settle_held(bool anyway = false, bool nested_ends = false) {
    std::lock_guard lock(m);
    const bool deferred = nested_ends ? deferrals == 1 : deferrals > 0;
    if (deferred && !anyway) return;
    for (Block& block : held) {
      if (W(held_unfenced)) drop(&block.fences);
      if (W(held_nested_unfenced) && block.level > 1) drop(&block.fences);
      if (W(held_after_out_unfenced) && was_out && block.kind == Kind::device) drop(&block.fences);
      if (W(held_by_reset_unfenced) && block.by_reset) drop(&block.fences);
      if (W(held_host_unfenced) && block.kind == Kind::host) drop(&block.fences);
      if (W(held_managed_unfenced) && block.kind == Kind::managed) drop(&block.fences);
      if (W(held_keeps_first_fence) && block.fences.size() > 1) {
        std::vector<Fence> rest(block.fences.begin() + 1, block.fences.end());
        block.fences.resize(1);
        drop(&rest);
      }
      if (W(held_wild_is_done))
        std::erase_if(block.fences, [](const Fence& one) { return one.event == 0; });
    }
    for (Block& block : held) add_idle(std::move(block));
    held.clear();
  }

  // Releases idle memory until no more than `keep` bytes of it are held.
  std::vector<emm_status> release_idle(u64 keep, bool by_trim = false) {
    std::list<Block> out;
    {
      std::lock_guard lock(m);
      u64 bytes = idle_bytes[0] + idle_bytes[1] + idle_bytes[2];
      for (int kind = 0; kind < 3; ++kind) {
        if (W(trim_after_out_keeps_managed) && by_trim && was_out && kind == 1) continue;
        for (auto at = idle[kind].begin(); at != idle[kind].end() && bytes > keep;) {
          const auto one = at++;
          if (W(trim_after_out_keeps_large) && by_trim && was_out && one->first >= 4 * MiB)
            continue;
          bytes -= one->first;
          idle_bytes[kind] -= one->first;
          if (kind == 0) reserved -= one->first;
          out.push_back(std::move(one->second));
          idle[kind].erase(one);
        }
      }
    }
    std::vector<emm_status> answers;
    for (Block& block : out) {
      answers.push_back(end_at_driver(block));
      const bool ends = W(release_ends_at_refusal) && answers.back() != EMM_SUCCESS;
      std::lock_guard lock(m);
      drop(&block.fences);
      if (ends) break;
    }
    return answers;
  }
  void tell_all(const std::vector<emm_status>& answers) {
    for (const emm_status status : answers) {
      if (status != EMM_SUCCESS) was_refused = true;
      tell(status);
    }
  }

  // Ends a block whose record is gone.
  emm_status give(Block block, emm_stream stream, bool by_reset) {
    if (block.kind == Kind::region) {
      std::unique_lock lock(m);
      if ((W(region_waits_after_refusal) && was_out && deferrals > 0) ||
          (W(reset_nested_keeps_regions) && deferrals > 1 && by_reset)) {
        regions.push_back(block);
        return EMM_SUCCESS;
      }
      lock.unlock();
      return end_at_driver(block);
    }
    bool deferred;
    {
      std::lock_guard lock(m);
      deferred = deferrals > 0;
      block.level = deferrals;
      block.by_reset = by_reset;
    }
    const u64 key = by_reset ? block.key : key_of(stream);
    const bool is_nameable = block.stream != 2 || block.key == key_of(2);
    bool done = is_nameable;
    if (block.kind == Kind::device) {
      if (done && !(W(deferred_free_by_others_alone) && deferred && key != block.key))
        done = record(block.stream, block.key, &block.fences);
      const bool other = key != block.key && !by_reset;
      if (done && other && !(W(other_stream_unseen_in_deferral) && deferred))
        done = record(stream, key, &block.fences);
      if (W(per_thread_unseen_in_deferral) && deferred && !is_nameable)
        done = record(stream, key, &block.fences);
    } else {
      done = !by_reset && record(stream, key, &block.fences);
    }
    if (!done) {
      if (W(refused_event_in_deferral_is_done) && deferred && is_nameable && !by_reset)
        ;
      else if (W(reset_after_refusal_unfenced) && by_reset && was_refused)
        ;
      else
        wait_or_wild(&block.fences);
    }
    std::lock_guard lock(m);
    if (deferrals > 0)
      held.push_back(std::move(block));
    else
      add_idle(std::move(block));
    return EMM_SUCCESS;
  }

  // Finds idle memory that serves, the smallest first.
  bool find(Kind kind, u64 need, u32 flags, Block* answer, bool any_size, bool any_flags) {
    std::lock_guard lock(m);
    auto& blocks = idle[static_cast<int>(kind)];
    const u64 most = kind == Kind::host ? need : any_size ? ~u64{0} : need * 2 + 1;
    auto best = blocks.lower_bound(need);
    while (best != blocks.end() && best->first <= most && best->second.flags != flags && !any_flags)
      ++best;
    if (best == blocks.end() || best->first > most) return false;
    *answer = std::move(best->second);
    idle_bytes[static_cast<int>(kind)] -= best->first;
    blocks.erase(best);
    return true;
  }

  void hand_out(Block block, emm_memory* memory) {
    std::lock_guard lock(m);
    drop(&block.fences);
    const emm_token token = ++last_token;
    if (block.kind == Kind::device || block.kind == Kind::managed) live += block.requested;
    memory->token = token;
    memory->device_pointer = block.address;
    memory->host_pointer = block.host;
    records[token] = std::move(block);
  }
  void uncount(const Block& block) {
    if (block.kind == Kind::device || block.kind == Kind::managed) live -= block.requested;
  }

  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (W(closed_by_early_reset) && is_closed) return fail(EMM_INVALID_CONTEXT, "it was reset");
    is_used = true;
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    if (size >> 50 != 0) return fail(EMM_OUT_OF_MEMORY, "more than any device has");
    settle_held();
    const u64 need = room(size, Kind::device), key = key_of(stream);
    Block block;
    bool any_size = false;
    for (int turn = 0;; ++turn) {
      if (find(Kind::device, need, 0, &block, any_size, false)) {
        const emm_status status = wait_on_stream(block, stream, key);
        bool deferred;
        {
          std::lock_guard lock(m);
          deferred = deferrals > 0;
        }
        if (status == EMM_SUCCESS) break;
        std::lock_guard lock(m);
        if (W(refused_wait_in_deferral_forgets) && deferred) drop(&block.fences);
        if (W(refused_wait_in_deferral_loses) && deferred)
          lost.push_back(std::move(block));
        else
          add_idle(std::move(block));
        return fail(status, "no order with the work before");
      }
      block = Block{};
      const emm_status status = d->mem_alloc(d->user, need, &block.address);
      if (status == EMM_SUCCESS) {
        std::lock_guard lock(m);
        block.size = need;
        reserved += need;
        break;
      }
      if (status != EMM_OUT_OF_MEMORY || turn > 1) {
        std::lock_guard lock(m);
        if (W(refused_ends_deferral) && deferrals > 1) --deferrals;
        if (W(refused_reserves_in_deferral) && deferrals > 0) reserved += need;
        return fail(status, "no device memory");
      }
      was_out = true;
      settle_held(W(out_settles_held), W(out_settles_nested));
      if (W(out_in_deferral_unfenced) && turn == 0) {
        std::lock_guard lock(m);
        if (deferrals > 0)
          for (auto& [size, one] : idle[0]) drop(&one.fences);
      }
      any_size = true;  // All that is idle, before it is given back.
      if (turn == 1) tell_all(release_idle(0));
    }
    block.requested = size;
    block.stream = stream;
    block.key = key;
    hand_out(std::move(block), memory);
    return EMM_SUCCESS;
  }

  // Memory that has no stream: idle memory is waited for, and the driver is asked otherwise.
  template <class How>
  emm_status take(Block* block, u64 need, How how) {
    settle_held();
    const Kind kind = block->kind;
    const u32 flags = block->flags;
    emm_status status = EMM_SUCCESS;
    bool any_flags = false;
    for (int turn = 0; turn < 3; ++turn) {
      Block found;
      if (find(kind, need, flags, &found, turn > 0, any_flags)) {
        status = wait_on_host(found);
        if (W(busy_host_in_deferral_taken) && kind == Kind::host && found.level > 0)
          status = EMM_SUCCESS;
        if (status == EMM_SUCCESS) {
          found.requested = block->requested;
          *block = std::move(found);
          return status;
        }
        std::lock_guard lock(m);
        add_idle(std::move(found));
      }
      status = how();
      if (status == EMM_SUCCESS) block->size = need;
      if (status != EMM_OUT_OF_MEMORY) return status;
      was_out = true;
      bool deferred;
      {
        std::lock_guard lock(m);
        deferred = deferrals > 0;
      }
      settle_held((W(host_out_settles_held) && kind == Kind::host) ||
                  (W(managed_out_settles_held) && kind == Kind::managed));
      if (W(managed_out_any_attach) && kind == Kind::managed) any_flags = true;
      if (W(host_out_any_flags) && kind == Kind::host) any_flags = true;
      if (W(managed_out_refuses) && kind == Kind::managed) return status;
      if (W(host_out_refuses) && kind == Kind::host) return status;
      if (W(managed_out_in_deferral_refuses) && kind == Kind::managed && deferred) return status;
      if (turn == 1) tell_all(release_idle(0));
    }
    return status;
  }

  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    if (size >> 50 != 0) return fail(EMM_OUT_OF_MEMORY, "more than any host has");
    Block block{.kind = Kind::host, .requested = size, .flags = flags};
    const u64 need = room(size, Kind::host);
    emm_status status =
        take(&block, need, [&] { return d->mem_host_alloc(d->user, need, flags, &block.host); });
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
    const bool is_new = block.address == 0;
    if ((flags & EMM_HOST_MAPPED) != 0 && is_new) {
      status = d->mem_host_get_device_pointer(d->user, block.host, &block.address);
      if (status != EMM_SUCCESS) {
        tell(d->mem_free_host(d->user, block.host));
        return fail(status, "it cannot be mapped");
      }
    }
    hand_out(std::move(block), memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    Block block{.kind = Kind::region, .requested = size, .host = pointer, .flags = flags};
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      was_out = true;
      settle_held();
      tell_all(release_idle(0));
      status = d->mem_host_register(d->user, pointer, size, flags);
    }
    if (status != EMM_SUCCESS) return fail(status, "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0) {
      status = d->mem_host_get_device_pointer(d->user, pointer, &block.address);
      if (status != EMM_SUCCESS) {
        tell(d->mem_host_unregister(d->user, pointer));
        return fail(status, "it cannot be mapped");
      }
    }
    hand_out(std::move(block), memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    if (size >> 50 != 0) return fail(EMM_OUT_OF_MEMORY, "more than any device has");
    Block block{.kind = Kind::managed, .requested = size, .flags = attach};
    const u64 need = room(size, Kind::managed);
    const emm_status status = take(
        &block, need, [&] { return d->mem_alloc_managed(d->user, need, attach, &block.address); });
    if (status != EMM_SUCCESS) return fail(status, "no managed memory");
    block.host = reinterpret_cast<void*>(block.address);
    hand_out(std::move(block), memory);
    return status;
  }

  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    Block block;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end())
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      block = std::move(at->second);
      records.erase(at);
      uncount(block);
    }
    return fail(give(std::move(block), stream, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child() && !W(child_reset_waits)) return;
    std::vector<emm_status> answers;
    {
      std::lock_guard held_long(releasing);
      if (in_child()) return;
      if (!is_used) is_closed = true;
      std::map<emm_token, Block> all;
      {
        std::lock_guard lock(m);
        last_reset = last_token;
        all.swap(records);
        for (const auto& [token, block] : all) uncount(block);
      }
      for (auto& [token, block] : all) answers.push_back(give(std::move(block), 0, true));
      bool deferred;
      {
        std::lock_guard lock(m);
        deferred = deferrals > 0 && !at_end;
      }
      settle_held(at_end || (W(reset_settles_nested) && deferrals > 1));
      std::list<Block> ended;
      {
        std::lock_guard lock(m);
        if (at_end || !deferred) ended.swap(regions);
      }
      for (const Block& region : ended) answers.push_back(end_at_driver(region));
      if (!deferred || (W(reset_settles_nested) && deferrals > 1)) {
        const auto more = release_idle(0);
        answers.insert(answers.end(), more.begin(), more.end());
      }
    }
    tell_all(answers);
  }
  emm_status flush() {
    if (in_child()) return fail_in_child();
    settle_held(W(flush_after_out_settles) && was_out);
    std::list<Block> ended;
    {
      std::lock_guard lock(m);
      if (deferrals == 0) ended.swap(regions);
    }
    emm_status first = EMM_SUCCESS;
    for (const Block& region : ended) first = std::max(first, end_at_driver(region));
    return fail(first, "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child() && !W(child_trim_waits)) return fail_in_child();
    std::vector<emm_status> answers;
    {
      std::lock_guard held_long(releasing);
      if (in_child()) return fail_in_child();
      settle_held(W(trim_settles_held), W(trim_settles_nested));
      answers = release_idle(keep, true);
    }
    for (const emm_status status : answers)
      if (status != EMM_SUCCESS) return fail(status, "the device refused a free");
    return EMM_SUCCESS;
  }

  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    {
      std::lock_guard lock(m);
      if (W(info_refused_nested) && deferrals > 1) return fail(EMM_NOT_READY, "deferred");
    }
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    std::lock_guard lock(m);
    info->free = std::min(info->total, info->free + idle_bytes[0]);
    if (W(info_swaps_after_out_in_deferral) && was_out && deferrals > 0)
      std::swap(info->free, info->total);
    return status;
  }

  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0;
    std::string known;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records)
        if (one.kind == Kind::device && pointer >= one.address &&
            pointer - one.address < one.requested &&
            size <= one.requested - (pointer - one.address))
          base = one.address;
      if (W(ipc_refused_in_nested) && deferrals > 1) return fail(EMM_NOT_READY, "deferred");
      if (W(ipc_outlives_reset)) known = handles[base];
    }
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this pool");
    if (known.empty()) {
      const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
      if (status != EMM_SUCCESS) return fail(status, "no handle");
      std::lock_guard lock(m);
      handles[base].assign(reinterpret_cast<const char*>(handle->bytes), sizeof handle->bytes);
    } else {
      std::memcpy(handle->bytes, known.data(), sizeof handle->bytes);
    }
    handle->offset = pointer - base;
    identify(handle);
    return EMM_SUCCESS;
  }

  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    ++deferrals;
  }
  void end_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (deferrals > 0) --deferrals;
    if (W(end_in_out_loses_held) && was_out && deferrals == 0) {
      for (Block& block : held)
        if (block.kind != Kind::device) lost.push_back(block);
      std::erase_if(held, [](const Block& block) { return block.kind != Kind::device; });
    }
  }

  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 largest = idle[0].empty() ? 0 : idle[0].rbegin()->first, bytes = 0;
    u64 held_device = 0;
    for (const Block& block : held) {
      bytes += block.requested;
      if (block.kind != Kind::device) continue;
      held_device += block.size;
      if (W(largest_counts_held)) largest = std::max(largest, block.size);
    }
    set(answer, &emm_state::live_bytes, live + (W(live_counts_held_managed) ? managed_held() : 0));
    set(answer, &emm_state::reserved_bytes,
        reserved - (W(reserved_without_held) ? held_device : 0));
    set(answer, &emm_state::largest_free_bytes, largest);
    set(answer, &emm_state::pending_count,
        W(pending_nested_hidden) && deferrals > 1 ? 0 : held.size());
    set(answer, &emm_state::pending_bytes, W(pending_nested_hidden) && deferrals > 1 ? 0 : bytes);
  }
  u64 managed_held() const {
    u64 bytes = 0;
    for (const Block& block : held)
      if (block.kind == Kind::managed) bytes += block.requested;
    return bytes;
  }

  void end_manager() {
    if (in_child()) return;
    if (!(W(end_in_deferral_loses_host) && deferrals > 0)) {
      deferrals = 0;
    } else {
      deferrals = 0;
      std::erase_if(held, [](const Block& block) { return block.kind == Kind::host; });
    }
    reset(true);
    for (const emm_handle event : spare) tell(d->event_destroy(d->user, event));
  }
};

namespace {
const emm_plugin_table_v1 table =
    table_of<emm_manager>("seventh", "Memory of all kinds stays idle with its events");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
