// What the pools from the sixth on share: the option `wrong`, the words of errors, writing into a
// struct of the host no further than it reaches, what a forked child may do, and the table.
#pragma once
#include <emm_plugin.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {
using u64 = std::uint64_t;
using u32 = std::uint32_t;

enum Wrong {
  right_one,
#define X(name, ...) name,
#include WRONG_TABLE
#undef X
};
constexpr const char* kNames[] = {
    "right",
#define X(name, ...) #name,
#include WRONG_TABLE
#undef X
};

constexpr u64 KiB = 1024, MiB = 1024 * KiB;
constexpr u64 up(u64 size, u64 unit) { return (size + unit - 1) / unit * unit; }

thread_local std::string error_text;
std::atomic<u64> thread_count{0};
thread_local const u64 thread_number = ++thread_count;

enum class Kind { device, managed, host, region };

// True where the host's struct reaches as far as this member.
template <class Struct, class Member>
bool has(const Struct* one, Member Struct::*member) {
  const auto* at = reinterpret_cast<const char*>(&(one->*member));
  return static_cast<std::size_t>(at - reinterpret_cast<const char*>(one)) + sizeof(Member) <=
         one->struct_size;
}
template <class Struct>
void set(Struct* one, u64 Struct::*member, u64 value, bool anyway = false) {
  if (anyway || has(one, member)) one->*member = value;
}

std::size_t write(const std::string& text, char* buffer, std::size_t size) {
  if (size > 0) {
    const std::size_t count = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), count);
    buffer[count] = 0;
  }
  return text.size();
}

// What every pool here has.
struct Common {
  const emm_driver_v1* d = nullptr;
  const emm_host_v1* h = nullptr;
  Wrong wrong = right_one;
  const pid_t process = getpid();

  bool W(Wrong one) const { return wrong == one; }
  // The driver does not work in a forked child, and another thread's lock is never given up there.
  bool in_child() const { return getpid() != process; }
  static emm_status fail(emm_status status, const char* words) {
    if (status != EMM_SUCCESS) error_text = words;
    return status;
  }
  std::size_t last_error(char* buffer, std::size_t size) const {
    return write(error_text, buffer, size);
  }
  static emm_status fail_in_child() { return fail(EMM_NOT_INITIALIZED, "a forked child"); }
  void tell(emm_status status) const {
    if (status != EMM_SUCCESS && h != nullptr && h->free_failed != nullptr)
      h->free_failed(h->user, status, nullptr);
  }
  void tell_added(Kind kind, u64 size) const {
    if (h != nullptr && h->pending_added != nullptr)
      h->pending_added(h->user, kind == Kind::host ? "mem_free_host" : "mem_free", size);
  }
  void tell_flushed(u64 count, u64 bytes) const {
    if (count > 0 && h != nullptr && h->flushed != nullptr) h->flushed(h->user, count, bytes);
  }
  void identify(emm_ipc_handle* handle) const {
    std::int32_t pci[3];
    d->device_identity(d->user, pci);
    handle->pci_domain_id = pci[0];
    handle->pci_bus_id = pci[1];
    handle->pci_device_id = pci[2];
  }
};

// Makes a manager. `wrong` is the only option.
template <class Manager>
emm_status make(const emm_create_v1* asked, Manager** answer) {
  auto made = std::make_unique<Manager>();
  const std::string options = asked->options;
  if (!options.empty()) {
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const char* name) {
      return options == std::string("wrong=") + name;
    });
    if (found == std::end(kNames)) {
      error_text = "unknown option: " + options;
      return EMM_INVALID_VALUE;
    }
    made->wrong = static_cast<Wrong>(found - std::begin(kNames));
  }
  if (asked->driver == nullptr && (asked->flags & EMM_CREATE_PROBE) == 0) {
    error_text = "it needs a table of the driver";
    return EMM_NOT_SUPPORTED;
  }
  made->d = asked->driver;
  made->h = asked->host;
  *answer = made.release();
  return EMM_SUCCESS;
}

// The table whose slots call the methods of a pool. A slot without a method is NULL.
template <class Manager>
emm_plugin_table_v1 table_of(const char* name, const char* summary) {
  emm_plugin_table_v1 table{};
  table.struct_size = sizeof table;
  table.abi_version = EMM_PLUGIN_ABI_VERSION;
  table.name = name;
  table.summary = summary;
  table.options = "wrong=NAME";
  table.create = make<Manager>;
  table.destroy = [](Manager* self) {
    if (self->d != nullptr) self->end_manager();
    if (!self->in_child()) delete self;
  };
  table.last_error = [](Manager* self, char* buffer, std::size_t size) {
    return self != nullptr ? self->last_error(buffer, size) : write(error_text, buffer, size);
  };
  if constexpr (requires { &Manager::initialize; })
    table.initialize = [](Manager* self) {
      self->initialize();
      return emm_status{EMM_SUCCESS};
    };
  table.memalloc = [](Manager* self, u64 size, emm_stream stream, emm_memory* memory) {
    return self->memalloc(size, stream, memory);
  };
  table.free = [](Manager* self, emm_token token, emm_stream stream) {
    return self->free_token(token, stream);
  };
  table.memhostalloc = [](Manager* self, u64 size, u32 flags, emm_memory* memory) {
    return self->memhostalloc(size, flags, memory);
  };
  table.mempin = [](Manager* self, void* pointer, u64 size, u32 flags, emm_memory* memory) {
    return self->mempin(pointer, size, flags, memory);
  };
  table.memallocmanaged = [](Manager* self, u64 size, u32 attach, emm_memory* memory) {
    return self->memallocmanaged(size, attach, memory);
  };
  if constexpr (requires { &Manager::get_ipc_handle; })
    table.get_ipc_handle = [](Manager* self, u64 pointer, u64 size, emm_ipc_handle* handle) {
      return self->get_ipc_handle(pointer, size, handle);
    };
  table.get_memory_info = [](Manager* self, emm_memory_info* info) {
    return self->get_memory_info(info);
  };
  table.reset = [](Manager* self) { self->reset(false); };
  table.defer_cleanup = [](Manager* self) { self->begin_deferral(); };
  table.end_defer_cleanup = [](Manager* self) { self->end_deferral(); };
  table.flush = [](Manager* self) { return self->flush(); };
  table.state = [](Manager* self, emm_state* state) { self->state(state); };
  if constexpr (requires { &Manager::report; })
    table.report = [](Manager* self, char* buffer, std::size_t size) {
      return self->report(buffer, size);
    };
  if constexpr (requires { &Manager::trim; })
    table.trim = [](Manager* self, u64 keep) { return self->trim(keep); };
  if constexpr (requires { &Manager::statistics; })
    table.statistics = [](Manager* self, emm_statistic* statistics, std::size_t count) {
      return self->statistics(statistics, count);
    };
  return table;
}
}  // namespace
