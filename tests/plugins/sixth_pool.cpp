// A manager behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// sixth_wrong.def has each way and the rule that it breaks. Every request is one allocation of the
// driver; frees of each kind wait in a queue of their own. Requests go to the driver one at a time.
#define WRONG_TABLE "sixth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, address = 0;
  void* host = nullptr;
  u32 flags = 0;
};
struct Waiting {
  Kind kind;
  u64 size, address;
  void* host;
  u32 flags;
};
constexpr std::size_t kMostWaiting = 24;
constexpr u64 kMostBytes = 64 * MiB;
}  // namespace

struct emm_manager : Common {
  std::mutex asking;   // Held while the driver is asked for memory: no free needs it.
  std::mutex telling;  // Held while the driver is asked how much memory there is.
  std::mutex m;        // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::deque<Waiting> queues[3];  // Of the kinds before `region`.
  u64 queue_bytes = 0, live = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  std::map<emm_token, Record> ended;
  std::deque<Waiting> regions;
  std::vector<Waiting> lost;
  std::map<u64, u64> thread_of_level;
  std::atomic<bool> was_refused = false, was_initialized = false, was_reset = false,
                    was_out = false;

  bool deferred_but(bool nested_ends) const { return nested_ends ? deferrals == 1 : deferrals > 0; }

  emm_status end_at_driver(const Waiting& one) {
    switch (one.kind) {
      case Kind::host:
        return d->mem_free_host(d->user, one.host);
      case Kind::region:
        return d->mem_host_unregister(d->user, one.host);
      default:
        return d->mem_free(d->user, one.address);
    }
  }

  struct Making {
    bool even_deferred = false, nested_ends = false;
    bool device = true, managed = true, host = true;
    bool ends_at_refusal = false;
  };
  // Makes the frees that wait, oldest kind by kind. Returns the first error.
  emm_status make_frees(const Making& how) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    const bool takes[] = {how.device, how.managed, how.host};
    for (;;) {
      Waiting one{};
      {
        std::lock_guard lock(m);
        if (!how.even_deferred && deferred_but(how.nested_ends)) break;
        std::deque<Waiting>* from = nullptr;
        for (int kind = 0; kind < 3; ++kind)
          if (takes[kind] && !queues[kind].empty()) {
            from = &queues[kind];
            break;
          }
        if (from == nullptr && W(regions_wait_for_nested) && !regions.empty()) from = &regions;
        if (from == nullptr && W(reset_defers_regions) && !regions.empty()) from = &regions;
        if (from == nullptr && W(reset_defers_mapped_regions) && !regions.empty()) from = &regions;
        if (from == nullptr && W(unmapped_pin_failure_waits) && !regions.empty()) from = &regions;
        if (from == nullptr) break;
        one = from->front();
        from->pop_front();
        if (from != &regions) queue_bytes -= one.size;
      }
      const emm_status status = end_at_driver(one);
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
      if (status != EMM_SUCCESS) {
        was_refused = true;
        if (how.ends_at_refusal) break;
      }
    }
    tell_flushed(count, bytes);
    return first;
  }

  void enqueue(const Waiting& one, bool by_reset) {
    bool full = false, host_full = false;
    {
      std::lock_guard lock(m);
      if (W(refused_frees_forgotten_in_deferral) && was_refused && deferrals > 0) {
        lost.push_back(one);
        return;
      }
      if (W(second_reset_in_deferral_forgets) && by_reset && deferrals > 0 && was_reset) {
        lost.push_back(one);
        return;
      }
      queues[static_cast<int>(one.kind)].push_back(one);
      queue_bytes += one.size;
      std::size_t waiting = 0;
      for (const auto& queue : queues) waiting += queue.size();
      full = waiting > kMostWaiting || queue_bytes > kMostBytes;
      host_full = queues[2].size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (!full || by_reset) return;
    tell(make_frees({.even_deferred = W(managed_full_ends_deferral) && one.kind == Kind::managed &&
                                      queues[1].size() > kMostWaiting,
                     .nested_ends = W(full_in_nested) && host_full}));
  }

  emm_status end(const Record& record, bool by_reset) {
    const Waiting one{record.kind, record.size, record.address, record.host, record.flags};
    if (record.kind != Kind::region) {
      enqueue(one, by_reset);
      return EMM_SUCCESS;
    }
    {
      std::lock_guard lock(m);
      const bool is_mapped = (record.flags & EMM_PIN_MAPPED) != 0;
      if ((W(regions_wait_for_nested) && deferrals > 1 && !by_reset) ||
          (W(reset_defers_regions) && deferrals > 0 && by_reset) ||
          (W(reset_defers_mapped_regions) && deferrals > 0 && by_reset && is_mapped)) {
        regions.push_back(one);
        return EMM_SUCCESS;
      }
      if (W(region_forgotten_after_refusal) && was_out && deferrals > 0) {
        lost.push_back(one);
        return EMM_SUCCESS;
      }
    }
    return end_at_driver(one);  // It can be pinned again at once.
  }

  // Asks the driver, and where it has none makes the frees that wait and asks again.
  template <class How>
  emm_status ask(Kind kind, How how, bool is_mapped, bool in_child_too = false) {
    if (in_child() && !in_child_too) return fail_in_child();
    emm_status status;
    {
      std::lock_guard lock(asking);
      status = how();
    }
    if (status == EMM_SUCCESS) return status;
    if (status != EMM_OUT_OF_MEMORY) {
      if (W(other_error_flushes_in_deferral)) tell(make_frees({.even_deferred = true}));
      return status;
    }
    was_out = true;
    Making making;
    if (W(host_out_ends_deferral) && kind == Kind::host) making.even_deferred = true;
    if (W(managed_out_ends_deferral) && kind == Kind::managed) making.even_deferred = true;
    if (W(pin_out_ends_deferral) && kind == Kind::region) making.even_deferred = true;
    if (W(device_out_ends_nested) && kind == Kind::device) making.nested_ends = true;
    if (W(host_out_spares_host) && kind == Kind::host) making.host = false;
    if (W(mapped_out_spares_unmapped) && kind == Kind::host && is_mapped) making.host = false;
    if (W(managed_out_spares_managed) && kind == Kind::managed) making.managed = false;
    if (W(device_out_after_host) && kind == Kind::device) {
      std::lock_guard lock(m);
      if (!queues[2].empty()) making.device = false;
    }
    if (W(out_ends_at_refused_free)) making.ends_at_refusal = true;
    tell(make_frees(making));
    bool deferred;
    {
      std::lock_guard lock(m);
      deferred = deferrals > 0;
    }
    {
      std::lock_guard lock(asking);
      if (W(no_retry_after_deferral) && deferred) return EMM_NOT_READY;
      status = how();
    }
    std::lock_guard lock(m);
    if (status != EMM_SUCCESS && deferrals > 0) {
      if (W(host_out_loses_level) && kind == Kind::host) --deferrals;
      if (W(managed_out_loses_level) && kind == Kind::managed) --deferrals;
      if (W(pin_out_adds_level) && kind == Kind::region) ++deferrals;
    }
    return status;
  }

  void hand_out(const Record& record, emm_memory* memory) {
    std::lock_guard lock(m);
    const emm_token token = ++last_token;
    records[token] = record;
    if (record.kind == Kind::device || record.kind == Kind::managed) live += record.size;
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  void uncount(const Record& record) {
    if (record.kind == Kind::device || record.kind == Kind::managed) live -= record.size;
  }

  emm_status memalloc(u64 size, emm_stream, emm_memory* memory) {
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    Record record{.kind = Kind::device, .size = size};
    const emm_status status = ask(
        Kind::device, [&] { return d->mem_alloc(d->user, size, &record.address); }, false,
        W(child_memalloc_waits));
    if (status != EMM_SUCCESS) {
      std::lock_guard lock(m);
      if (W(refused_counts_live_in_deferral) && deferrals > 0) live += size;
      return fail(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status map(Record* record) {
    const emm_status status =
        d->mem_host_get_device_pointer(d->user, record->host, &record->address);
    if (status == EMM_SUCCESS) return status;
    const Waiting one{record->kind, record->size, 0, record->host, record->flags};
    std::unique_lock lock(m);
    if (W(unmapped_failure_leaks_in_deferral) && record->kind == Kind::host && deferrals > 0) {
      lost.push_back(one);
      return fail(status, "it cannot be mapped");
    }
    if (W(unmapped_pin_failure_waits) && record->kind == Kind::region && deferrals > 0) {
      regions.push_back(one);
      return fail(status, "it cannot be mapped");
    }
    lock.unlock();
    tell(end_at_driver(one));
    return fail(status, "it cannot be mapped");
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .flags = flags};
    const bool is_mapped = (flags & EMM_HOST_MAPPED) != 0;
    was_out = false;
    emm_status status = ask(
        Kind::host, [&] { return d->mem_host_alloc(d->user, size, flags, &record.host); },
        is_mapped, W(child_memhostalloc_waits));
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
    const bool is_mapped_anyway = W(unmapped_has_address_after_out) && was_out;
    if (is_mapped || is_mapped_anyway) {
      status = map(&record);
      if (status != EMM_SUCCESS) return status;
    }
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    Record record{.kind = Kind::region, .size = size, .host = pointer, .flags = flags};
    bool deferred;
    {
      std::lock_guard lock(m);
      deferred = deferrals > 0;
    }
    emm_status status = ask(
        Kind::region, [&] { return d->mem_host_register(d->user, pointer, size, flags); },
        (flags & EMM_PIN_MAPPED) != 0);
    if (status != EMM_SUCCESS) return fail(status, "the region cannot be pinned");
    if ((flags & EMM_PIN_MAPPED) != 0 || (W(pin_has_address_in_deferral) && deferred)) {
      status = map(&record);
      if (status != EMM_SUCCESS) return status;
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .flags = attach};
    was_out = false;
    const emm_status status = ask(
        Kind::managed,
        [&] {
          const u32 flags = W(managed_retry_global) && was_out ? u32{EMM_ATTACH_GLOBAL} : attach;
          return d->mem_alloc_managed(d->user, size, flags, &record.address);
        },
        false);
    if (status != EMM_SUCCESS) return fail(status, "no managed memory");
    record.host = reinterpret_cast<void*>(record.address);
    if (W(managed_retry_no_host) && was_out) record.host = nullptr;
    hand_out(record, memory);
    return status;
  }

  emm_status free_token(emm_token token, emm_stream) {
    if (in_child()) return fail_in_child();
    Record record;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end()) {
        const auto late = ended.find(token);
        if (late != ended.end()) {
          const Record again = late->second;
          ended.erase(late);
          if (deferrals > 0 && W(late_free_lowers_live_in_deferral))
            live -= std::min(live, again.size);
          if (deferrals > 0 && W(late_free_in_deferral_frees)) {
            queues[static_cast<int>(again.kind)].push_back(
                {again.kind, again.size, again.address, again.host, again.flags});
            queue_bytes += again.size;
          }
        }
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      }
      record = at->second;
      records.erase(at);
      const bool stays_live = W(managed_lives_in_deferral) && record.kind == Kind::managed;
      if (!(stays_live && deferrals > 0)) uncount(record);
    }
    return fail(end(record, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      last_reset = last_token;
      all.swap(records);
      for (const auto& [token, record] : all) uncount(record);
      if (W(reset_in_deferral_keeps_live) && deferrals > 0)
        for (const auto& [token, record] : all)
          if (record.kind == Kind::device) live += record.size;
      if (W(late_free_in_deferral_frees) || W(late_free_lowers_live_in_deferral))
        for (const auto& [token, record] : all)
          if (record.kind != Kind::region) ended.insert({token, record});
      if (W(reset_ends_nested) && deferrals > 1) deferrals = 1;
    }
    for (const auto& [token, record] : all) tell(end(record, true));
    if (!all.empty()) was_reset = true;
    tell(make_frees({.even_deferred = at_end,
                     .nested_ends = W(reset_frees_in_nested),
                     .host = !(W(reset_spares_host_after_refusal) && was_refused && !at_end)}));
  }

  emm_status flush() {
    if (in_child()) return fail_in_child();
    const bool spares = W(flush_spares_host_after_refusal) && was_refused;
    return fail(make_frees({.nested_ends = W(flush_in_nested), .host = !spares}),
                "the device refused a free");
  }

  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child() && !W(child_info_waits)) return fail_in_child();
    if (W(info_flushes_in_deferral)) tell(make_frees({.even_deferred = true}));
    std::lock_guard lock(telling);
    return fail(d->mem_get_info(d->user, &info->free, &info->total), "the device says nothing");
  }

  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    if (W(ipc_flushes_in_deferral)) tell(make_frees({.even_deferred = true}));
    u64 base = 0;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records)
        if (one.kind == Kind::device && pointer >= one.address &&
            pointer - one.address < one.size && size <= one.size - (pointer - one.address))
          base = one.address;
      if (W(ipc_refused_after_out) && was_out && deferrals > 0)
        return fail(EMM_NOT_READY, "cleanup is deferred");
    }
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this manager");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return fail(status, "no handle");
    handle->offset = pointer - base;
    identify(handle);
    return status;
  }

  void initialize() {
    if (in_child()) return;
    const bool again = was_initialized.exchange(true);
    if (W(initialize_flushes_in_deferral) && again) tell(make_frees({.even_deferred = true}));
    std::lock_guard lock(m);
    if (W(initialize_ends_all_deferrals)) deferrals = 0;
    if (W(first_initialize_ends_deferrals) && !again) deferrals = 0;
    if (W(initialize_forgets_queue) && again)
      for (auto& queue : queues) {
        lost.insert(lost.end(), queue.begin(), queue.end());
        queue.clear();
        queue_bytes = 0;
      }
  }
  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    thread_of_level[++deferrals] = thread_number;
  }
  void end_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (W(nested_ends_in_its_thread) && deferrals > 1 &&
        thread_of_level[deferrals] != thread_number)
      return;
    if (deferrals > 0) --deferrals;
  }

  void state(emm_state* answer) {
    if (in_child()) return;
    std::lock_guard lock(m);
    set(answer, &emm_state::live_bytes, live);
    u64 count = 0;
    for (const auto& queue : queues) count += queue.size();
    if (W(pending_without_host_nested) && deferrals > 1) count -= queues[2].size();
    if (W(pending_without_managed_after_reset) && last_reset > 0) count -= queues[1].size();
    const bool anyway = W(state_writes_past_end);
    const bool in_deferral = W(state_writes_past_end_in_deferral) && deferrals > 0;
    set(answer, &emm_state::pending_count, count, anyway || in_deferral);
    set(answer, &emm_state::pending_bytes, queue_bytes, anyway || in_deferral);
  }

  void end_manager() {
    if (in_child() && !W(child_destroy_waits)) return;
    std::unique_lock lock(asking);  // Nobody asks any more.
    lock.unlock();
    if (in_child()) return;
    if (W(end_forgets_nested) && deferrals > 1) return;
    if (W(end_forgets_reset_in_deferral) && deferrals > 0 && was_reset)
      for (auto& queue : queues) queue.clear();
    const bool was_deferred = deferrals > 0;
    if (!W(end_keeps_regions_in_deferral)) deferrals = 0;
    if (was_deferred && W(end_keeps_regions_in_deferral))
      std::erase_if(records, [](const auto& one) { return one.second.kind == Kind::region; });
    reset(true);
  }
};

namespace {
const emm_plugin_table_v1 table =
    table_of<emm_manager>("sixth", "Frees of each kind wait in a queue");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
