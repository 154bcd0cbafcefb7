// The C interface of libemm.so: emmctl's managers as a plugin.
#include <exception>
#include <utility>

#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "libemm/exported_manager.hpp"
#include "libemm/forks.hpp"
#include "libemm/shortage.hpp"
#include "plugin/abi.hpp"

namespace emm::libemm {
namespace {

thread_local std::string last_words;
/// The manager whose state last_error() must still add to the words.
thread_local emm_manager* short_of_memory = nullptr;

emm_status failed(const Error& error, emm_manager* self = nullptr) {
  last_words = describe(error);
  short_of_memory = error.code == Errc::out_of_memory ? self : nullptr;
  return plugin::status_of(error);
}

/// Runs `body`, which returns a status. No exception escapes.
template <class Body>
emm_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    last_words = error.what();  // only the library itself throws, when host memory runs out
    short_of_memory = nullptr;
  }
  return EMM_UNKNOWN_ERROR;
}

ExportedManager& of(emm_manager* self) noexcept {
  return *reinterpret_cast<ExportedManager*>(self);
}
MemoryManager& manager(emm_manager* self) noexcept { return of(self).manager(); }

/// guarded(), for a manager that is called. A child of fork() does not call its parent's.
template <class Body>
emm_status guarded(emm_manager* self, Body body) noexcept {
  return guarded([&]() -> emm_status {
    if (of(self).is_of_parent()) return failed(made_before_the_fork());
    return body();
  });
}

/// Adds the manager's state to the words when somebody reads them and not before, since that costs
/// more than the failed request.
std::size_t last_error(emm_manager* self, char* buffer, std::size_t size) {
  if (self != nullptr && std::exchange(short_of_memory, nullptr) == self) {
    guarded(self, [&]() -> emm_status {
      last_words += shortage(manager(self));
      return EMM_SUCCESS;
    });
  }
  return plugin::put_text(last_words, buffer, size);
}

/// Copies `answer` into the host's struct, up to the size of that struct.
template <class Answer>
void put(Answer answer, Answer* into) noexcept {
  answer.struct_size = std::min(into->struct_size, sizeof(Answer));
  std::memcpy(into, &answer, answer.struct_size);
}

/// Keeps memory of any kind under a token, and fills in the host's struct.
[[gnu::always_inline]] inline void hand_out(emm_manager* self, DevicePtr ptr, HostPtr host,
                                            Lifetime&& lifetime, emm_memory* memory) {
  if (memory->struct_size >= sizeof(emm_memory)) [[likely]] {
    // Word by word: a copy by vectors waits for words that have just been stored.
    memory->token = of(self).hold(std::move(lifetime));
    memory->device_pointer = ptr.value;
    memory->host_pointer = host;
    memory->struct_size = sizeof(emm_memory);
    return;
  }
  put({.struct_size = 0,
       .token = of(self).hold(std::move(lifetime)),
       .device_pointer = ptr.value,
       .host_pointer = host},
      memory);
}
emm_status hand_out(emm_manager* self, Result<HostMemory> made, emm_memory* memory) {
  if (!made) return failed(made.error());
  if (auto* mapped = std::get_if<MappedMemory>(&*made)) {
    const auto ptr = mapped->device_pointer();
    const auto host = mapped->host_pointer();
    hand_out(self, ptr, host, std::move(*mapped).take_lifetime(), memory);
  } else {
    auto& pinned = std::get<PinnedMemory>(*made);
    const auto host = pinned.host_pointer();
    hand_out(self, {}, host, std::move(pinned).take_lifetime(), memory);
  }
  return EMM_SUCCESS;
}

emm_status create(const emm_create_v1* create, emm_manager** self) {
  return guarded([&]() -> emm_status {
    auto made = ExportedManager::create(*create);
    if (!made) return failed(made.error());
    *self = reinterpret_cast<emm_manager*>(made->release());
    return EMM_SUCCESS;
  });
}

emm_status answer(const Status& done) { return done ? EMM_SUCCESS : failed(done.error()); }

emm_status memalloc(emm_manager* self, std::uint64_t size, emm_stream stream, emm_memory* memory) {
  return guarded(self, [&]() -> emm_status {
    auto made = manager(self).memalloc(size, {stream});
    if (!made) return failed(made.error(), self);
    hand_out(self, made->device_pointer(), nullptr, (*std::move(made)).take_lifetime(), memory);
    return EMM_SUCCESS;
  });
}

emm_status memallocmanaged(emm_manager* self, std::uint64_t size, std::uint32_t attach,
                           emm_memory* memory) {
  return guarded(self, [&]() -> emm_status {
    auto made = manager(self).memallocmanaged(size, static_cast<AttachFlags>(attach));
    if (!made) return failed(made.error(), self);
    const auto ptr = made->device_pointer();
    // Managed memory has the same address on both sides.
    hand_out(self, ptr, reinterpret_cast<HostPtr>(ptr.value),
             std::move(made->memory()).take_lifetime(), memory);
    return EMM_SUCCESS;
  });
}

emm_status memhostalloc(emm_manager* self, std::uint64_t size, std::uint32_t flags,
                        emm_memory* memory) {
  return guarded(self, [&] {
    return hand_out(self, manager(self).memhostalloc(size, plugin::host_alloc_flags(flags)),
                    memory);
  });
}

emm_status mempin(emm_manager* self, void* pointer, std::uint64_t size, std::uint32_t flags,
                  emm_memory* memory) {
  return guarded(self, [&] {
    const HostRange range{.pointer = static_cast<HostPtr>(pointer), .size = size};
    return hand_out(self, manager(self).mempin(range, plugin::host_register_flags(flags)), memory);
  });
}

emm_status get_ipc_handle(emm_manager* self, emm_device_ptr pointer, std::uint64_t size,
                          emm_ipc_handle* handle) {
  return guarded(self, [&]() -> emm_status {
    const auto made = manager(self).get_ipc_handle({.device_pointer = {pointer}, .size = size});
    if (!made) return failed(made.error());
    const auto& fields = made->fields();
    const auto source = fields.source_info.value_or(DeviceIdentity{-1, -1, -1});
    emm_ipc_handle given{.struct_size = 0,
                         .bytes = {},
                         .offset = fields.offset,
                         .pci_domain_id = source.pci_domain_id,
                         .pci_bus_id = source.pci_bus_id,
                         .pci_device_id = source.pci_device_id};
    std::memcpy(given.bytes, fields.handle.bytes.data(), sizeof given.bytes);
    put(given, handle);
    return EMM_SUCCESS;
  });
}

emm_status get_memory_info(emm_manager* self, emm_memory_info* info) {
  return guarded(self, [&]() -> emm_status {
    const auto given = manager(self).get_memory_info();
    if (!given) return failed(given.error());
    put({.struct_size = 0, .free = given->free, .total = given->total}, info);
    return EMM_SUCCESS;
  });
}

void state(emm_manager* self, emm_state* into) {
  ManagerState given;  // without host memory for the answer nothing is known
  guarded(self, [&]() -> emm_status {
    given = manager(self).state();
    return EMM_SUCCESS;
  });
  put({.struct_size = 0,
       .live_bytes = given.live_bytes.value_or(EMM_NOT_KNOWN),
       .reserved_bytes = given.reserved_bytes.value_or(EMM_NOT_KNOWN),
       .largest_free_bytes = given.largest_free_bytes.value_or(EMM_NOT_KNOWN),
       .pending_count = given.pending_count.value_or(EMM_NOT_KNOWN),
       .pending_bytes = given.pending_bytes.value_or(EMM_NOT_KNOWN)},
      into);
}

std::size_t report(emm_manager* self, char* buffer, std::size_t size) {
  std::string given;
  guarded(self, [&]() -> emm_status {
    given = manager(self).report();
    return EMM_SUCCESS;
  });
  return plugin::put_text(given, buffer, size);
}

std::size_t put_statistics(emm_manager* self, emm_statistic* into, std::size_t count) {
  using Kind = WrongFree::Kind;
  std::size_t written = 0;
  const auto given = manager(self).statistics();
  const auto& wrong = of(self).wrong_frees();
  const NamedStatistics wrong_frees{{"wrong_frees.not_alive", wrong.count(Kind::not_alive)},
                                    {"wrong_frees.inside", wrong.count(Kind::inside)},
                                    {"wrong_frees.size", wrong.count(Kind::size)}};
  for (const auto& all : {torch_statistics(given), other_statistics(given), wrong_frees}) {
    for (const auto& [name, value] : all) {
      if (written < count) into[written] = {name.data(), value};  // all names are literals
      ++written;
    }
  }
  return written;
}

/// Without host memory for the answer there are none.
std::size_t statistics(emm_manager* self, emm_statistic* into, std::size_t count) {
  std::size_t written = 0;
  guarded(self, [&]() -> emm_status {
    written = put_statistics(self, into, count);
    return EMM_SUCCESS;
  });
  return written;
}

constexpr emm_plugin_table_v1 kTable{
    .struct_size = sizeof(emm_plugin_table_v1),
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .flags = 0,
    .name = "libemm",
    .summary = "emmctl's bundled managers, by name",
    .options = "name, open, and those of the manager",
    .create = create,
    .destroy =
        [](emm_manager* self) {
          // What is the parent's stays until the child ends.
          if (!of(self).is_of_parent()) delete &of(self);
        },
    .last_error = last_error,
    .initialize =
        [](emm_manager* self) {
          return guarded(self, [&] { return answer(manager(self).initialize()); });
        },
    .memalloc = memalloc,
    .free =
        [](emm_manager* self, emm_token token, emm_stream stream) {
          return guarded(self, [&] { return answer(of(self).free(token, {stream})); });
        },
    .memhostalloc = memhostalloc,
    .mempin = mempin,
    .memallocmanaged = memallocmanaged,
    .get_ipc_handle = get_ipc_handle,
    .get_memory_info = get_memory_info,
    .reset =
        [](emm_manager* self) {
          guarded(self, [&]() -> emm_status { return manager(self).reset(), EMM_SUCCESS; });
        },
    .defer_cleanup =
        [](emm_manager* self) {
          guarded(self, [&]() -> emm_status { return of(self).defer_cleanup(), EMM_SUCCESS; });
        },
    .end_defer_cleanup =
        [](emm_manager* self) {
          guarded(self, [&]() -> emm_status { return of(self).end_defer_cleanup(), EMM_SUCCESS; });
        },
    .interface_version = [](emm_manager* self) -> std::int32_t {
      return manager(self).interface_version();
    },
    .flush =
        [](emm_manager* self) {
          return guarded(self, [&] { return answer(manager(self).flush()); });
        },
    .state = state,
    .report = report,
    .trim =
        [](emm_manager* self, std::uint64_t keep) {
          return guarded(self, [&] { return answer(manager(self).trim(keep)); });
        },
    .statistics = statistics,
};

}  // namespace
}  // namespace emm::libemm

extern "C" const emm_plugin_table_v1* emm_plugin_v1() { return &emm::libemm::kTable; }

extern "C" emm_status emm_bundled_manager(size_t index, emm_manager_info* info) {
  const auto all = emm::bundled_managers();
  if (index >= all.size()) return EMM_NOT_FOUND;
  const auto& entry = *all[index];
  emm::libemm::put({.struct_size = 0,
                    .name = entry.name.data(),  // all texts are literals
                    .summary = entry.summary.data(),
                    .options = entry.options.data()},
                   info);
  return EMM_SUCCESS;
}
