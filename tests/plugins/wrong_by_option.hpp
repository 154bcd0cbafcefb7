// What the sixth, seventh, eighth, ninth and tenth pool share: the option `wrong`, the words of
// errors, writing into a struct of the host no further than it reaches, and what a forked child may
// do.
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
}  // namespace
