// The C interface of libemm.so for the frameworks of one process: the managers that they share, and
// the functions for the pluggable allocators of PyTorch and CuPy.
#include <cstddef>
#include <cstdio>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "emm/memory_manager.hpp"
#include "libemm/answer.hpp"
#include "libemm/shared_managers.hpp"
#include "plugin/abi.hpp"

namespace emm::libemm {
namespace {

thread_local std::string last_words;
thread_local emm_status last_status = EMM_SUCCESS;

/// Calls answer(). Keeps words and status for emm_shared_error() and emm_shared_status().
template <class Body>
emm_status told(Body body) noexcept {
  const auto status = answer(last_words, body);
  if (status != EMM_SUCCESS) last_status = status;
  return status;
}

SharedManagers& all() { return SharedManagers::of_process(); }

/// PyTorch takes a null pointer for memory. Only an exception tells it that there is none.
class NoMemory final : public std::bad_alloc {
 public:
  explicit NoMemory(std::string words) noexcept : words_(std::move(words)) {}
  const char* what() const noexcept override { return words_.c_str(); }

 private:
  std::string words_;
};

StreamHandle handle_of(const void* stream) noexcept {
  return {reinterpret_cast<std::uint64_t>(stream)};
}
DevicePtr address_of(const void* ptr) noexcept { return {reinterpret_cast<std::uint64_t>(ptr)}; }
void* pointer_to(DevicePtr ptr) noexcept { return reinterpret_cast<void*>(ptr.value); }

Result<DevicePtr> take(std::uint64_t size, int device, StreamHandle stream) {
  if (auto* const known = all().known(device)) [[likely]]
    return known->addressed.take(size, stream);
  const auto shared = all().device(device);
  if (!shared) return shared.error();
  return (*shared)->addressed.take(size, stream);
}

/// The caller cannot receive an error. So a wrong free is counted, and the first of each kind is
/// written to stderr.
void free_by_address(void* ptr, int device, std::optional<std::uint64_t> size) noexcept {
  static WrongFrees where_there_is_none;
  auto* const shared = all().known(device);
  if (shared != nullptr && shared->addressed.free_plain(address_of(ptr), size)) [[likely]]
    return;
  if (ptr == nullptr) return;
  static_cast<void>(told([&]() -> Status {
    auto wrong = shared != nullptr
                     ? shared->addressed.free(address_of(ptr), size)
                     : WrongFree{.kind = WrongFree::Kind::not_alive,
                                 .words = text::format("{} cannot be memory: none was handed out",
                                                       text::hex(address_of(ptr).value))};
    // a late free, as after the reset of a context
    if (!wrong || all().was_abandoned(device, address_of(ptr))) return {};
    auto& counts = shared != nullptr ? shared->manager->wrong_frees() : where_there_is_none;
    if (counts.add(wrong->kind)) {
      std::fprintf(stderr,
                   "emmctl: wrong free on device %d: %s (more of this kind are only counted)\n",
                   device, wrong->words.c_str());
    }
    return Error{.code = Errc::invalid_value, .message = std::move(wrong->words)};
  }));
}

}  // namespace
}  // namespace emm::libemm

using namespace emm;
using libemm::all;
using libemm::told;

extern "C" {

emm_status emm_shared_use(const char* options, std::uint32_t flags) {
  return told([&] { return all().use(options, flags); });
}

emm_status emm_shared_manager(std::int32_t device, emm_manager** self) {
  *self = nullptr;
  return told([&]() -> Status {
    const auto shared = all().device(device);
    if (!shared) return shared.error();
    *self = reinterpret_cast<emm_manager*>((*shared)->manager.get());
    return {};
  });
}

emm_status emm_shared_end(std::int32_t device) {
  bool ended = true;
  const auto status = told([&]() -> Status {
    ended = all().end(device);
    return {};
  });
  return ended ? status : EMM_NOT_READY;
}

emm_status emm_shared_reset_peaks(std::int32_t device) {
  bool can = true;
  const auto status = told([&]() -> Status {
    auto* const shared = all().known(device);
    can = shared == nullptr || shared->manager->manager().reset_peaks();
    return {};
  });
  return can ? status : EMM_NOT_SUPPORTED;
}

void emm_shared_abandon(std::int32_t device) { all().abandon(device); }

size_t emm_shared_error(char* buffer, size_t size) {
  return plugin::put_text(libemm::last_words, buffer, size);
}

emm_status emm_shared_status() { return libemm::last_status; }

void* emm_torch_alloc(ptrdiff_t size, int device, void* stream) {
  if (size == 0) return nullptr;  // PyTorch requests 0 bytes and never uses them
  const auto taken =
      libemm::take(static_cast<std::uint64_t>(size), device, libemm::handle_of(stream));
  if (taken) return libemm::pointer_to(*taken);
  told([&]() -> Status { return taken.error(); });
  const bool no_memory = taken.error().code == Errc::out_of_memory;
  auto words = text::format(
      "{}: {} on device {}: {}", no_memory ? "CUDA out of memory" : "no memory was given",
      units::bytes(static_cast<std::uint64_t>(size)), device, libemm::last_words);
  if (no_memory) throw libemm::NoMemory(std::move(words));
  throw std::runtime_error(words);
}

void emm_torch_free(void* ptr, ptrdiff_t size, int device, void*) {
  libemm::free_by_address(ptr, device, static_cast<std::uint64_t>(size));
}

void emm_torch_record_stream(void* ptr, void* stream) {
  if (auto* shared = all().holder_of(libemm::address_of(ptr)))
    shared->addressed.record_stream(libemm::address_of(ptr), libemm::handle_of(stream));
}

void emm_torch_reset() { all().trim(); }

void* emm_torch_base_alloc(void* ptr, size_t* size) {
  AddressRange range;
  if (auto* shared = all().holder_of(libemm::address_of(ptr)))
    range = shared->manager->driver()
                .mem_get_address_range(libemm::address_of(ptr))
                .value_or(AddressRange{});
  if (size != nullptr) *size = range.size;
  return libemm::pointer_to(range.base);
}

void emm_torch_memory_fraction(double fraction, int device) {
  static_cast<void>(told([&]() -> Status {
    const auto shared = all().device(device);
    if (!shared) return shared.error();
    const auto info = (*shared)->manager->driver().mem_get_info();
    if (!info) return info.error();
    all().set_limit(device,
                    static_cast<std::uint64_t>(fraction * static_cast<double>(info->total)));
    return {};
  }));
}

void emm_torch_begin_allocate_to_pool(int device, std::uint64_t first, std::uint64_t second,
                                      const void* filter) {
  using OfTorch = std::function<bool(void*)>;
  static_cast<void>(told([&]() -> Status {
    const auto shared = all().device(device);
    if (!shared) return shared.error();
    (*shared)->addressed.begin_private(
        {first, second}, [takes = *static_cast<const OfTorch*>(filter)](StreamHandle stream) {
          return takes(reinterpret_cast<void*>(stream.value));
        });
    return {};
  }));
}

void emm_torch_end_allocate_to_pool(int device, std::uint64_t first, std::uint64_t second) {
  if (auto* shared = all().known(device)) shared->addressed.end_private({first, second});
}

void emm_torch_release_pool(int device, std::uint64_t first, std::uint64_t second) {
  if (auto* shared = all().known(device)) shared->addressed.release_private({first, second});
}

void* emm_cupy_malloc(void* current_stream, size_t size, int device) {
  void* given = nullptr;
  static_cast<void>(told([&]() -> Status {
    StreamHandle stream;
    if (current_stream != nullptr) {
      const auto ask = reinterpret_cast<std::intptr_t (*)()>(current_stream);
      stream = {static_cast<std::uint64_t>(ask())};
    }
    const auto taken = libemm::take(size, device, stream);
    if (!taken) return taken.error();
    given = libemm::pointer_to(*taken);
    return {};
  }));
  return given;
}

void emm_cupy_free(void*, void* ptr, int device) { libemm::free_by_address(ptr, device, {}); }

}  // extern "C"
