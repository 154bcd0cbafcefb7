#include "plugin/imported_manager.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "driver/call.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "plugin/abi.hpp"
#include "plugin/python_class.hpp"
#include "plugin/running_call.hpp"

namespace emm::plugin {
namespace {

constexpr const char* kCreate = "create";  // the one slot that touches no device (SEL-5)

/// Makes a context current for one call of a plugin that calls CUDA itself.
class Current {
 public:
  explicit Current(Driver* driver) noexcept : driver_(driver) {
    // the plugin's own calls will report the reason
    if (driver_ != nullptr && !driver_->ctx_push_current()) driver_ = nullptr;
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    if (driver_ != nullptr && !driver_->ctx_pop_current()) return;
  }

 private:
  Driver* driver_;
};

/// An answer that a plugin fills in. The guard behind it must stay unchanged.
template <class Answer>
struct Guarded {
  // No value that a plugin is likely to write.
  static constexpr std::uint64_t kPattern = 0xa5a5a5a5a5a5a5a5;
  Answer value{};
  std::array<std::uint64_t, 16> behind{};

  explicit Guarded(const Answer& empty) noexcept : value(empty) {
    value.struct_size = sizeof(Answer);
    behind.fill(kPattern);
  }
  bool whole() const noexcept {
    for (const auto word : behind) {
      if (word != kPattern) return false;
    }
    return value.struct_size == sizeof(Answer);
  }
};

std::optional<std::uint64_t> known(std::uint64_t value) noexcept {
  return value == EMM_NOT_KNOWN ? std::nullopt : std::optional(value);
}

struct SpecParts {
  std::string_view name, options;
};

/// Splits a spec at the last colon, unless the whole spec names a file.
SpecParts split(std::string_view spec) {
  const auto colon = spec.rfind(':');
  if (colon == std::string_view::npos || access(std::string(spec).c_str(), F_OK) == 0)
    return {spec, {}};
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

Result<Plugin> load(std::string_view spec, std::string& options) {
  constexpr std::string_view kTorch = "torch:", kCupy = "cupy:";
  if (spec.starts_with(kTorch)) return load_torch_functions(spec.substr(kTorch.size()));
  if (spec.starts_with(kCupy)) return load_cupy_functions(spec.substr(kCupy.size()));
  if (is_python_class(spec)) return load_python_class(spec, options);
  const auto parts = split(spec);
  options = parts.options;
  return load_plugin(parts.name);
}

/// A manager that answers not_supported has nothing of the kind, as one without the slot.
Status where_there_are_some(Status done) {
  if (!done && done.error().code == Errc::not_supported) return {};
  return done;
}

}  // namespace

bool calls_cuda(std::string_view spec) {
  std::string options;
  const auto plugin = load(spec, options);
  return plugin && (plugin->table.flags & EMM_PLUGIN_CALLS_CUDA) != 0;
}

bool has_trim(std::string_view spec) {
  std::string options;
  const auto plugin = load(spec, options);
  return plugin && plugin->table.trim != nullptr;
}

bool names_cuda(std::string_view spec) {
  std::string options;
  const auto plugin = load(spec, options);
  link_map* map = nullptr;
  if (!plugin || plugin->library == nullptr || dlinfo(plugin->library, RTLD_DI_LINKMAP, &map) != 0)
    return false;
  std::ifstream file(map->l_name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return bytes.find("libcuda.so") != std::string::npos ||
         bytes.find("libcudart.so") != std::string::npos;
}

Result<ManagerFactory> find_plugin(std::string_view spec) {
  std::string options;
  auto plugin = load(spec, options);
  if (!plugin) return std::move(plugin).error();
  return ManagerFactory{
      .name = std::string(spec),
      .make = [plugin = *std::move(plugin), options](const ManagerContext& context) {
        return ImportedManager::create(plugin, options, context);
      }};
}

ImportedManager::ImportedManager(const Plugin& plugin, const ManagerContext& context)
    : plugin_(plugin),
      driver_(context.driver),
      observer_(context.observer),
      host_(context.clock, context.observer) {
  if (driver_ != nullptr) driver_table_.emplace(*driver_, context.runtime);
}

/// Runs one slot. `body` returns its status.
template <class Body>
Status ImportedManager::ask(const char* slot, Body body) const {
  const bool needs_context = (plugin_.table.flags & EMM_PLUGIN_CALLS_CUDA) != 0 && slot != kCreate;
  const Current current(needs_context ? driver_ : nullptr);
  const RunningCall running(slot);
  emm_status status = EMM_SUCCESS;
  try {
    status = body();
  } catch (...) {
    auto error = threw(slot);
    tell_of_call(error);
    return error;
  }
  if (status == EMM_SUCCESS) [[likely]]
    return {};
  return error_of(status, slot);
}

/// Runs one slot that returns nothing. Returns false if the slot threw, which the observer is told.
template <class Body>
bool ImportedManager::run(const char* slot, Body body) const {
  return ask(slot,
             [&] {
               body();
               return EMM_SUCCESS;
             })
      .has_value();
}

/// Runs one slot that fills in a struct. `body(struct*)` returns its status.
template <class Answer, class Body>
Result<Answer> ImportedManager::answer(const char* slot, Answer empty, Body body) const {
  Guarded<Answer> answer(empty);
  auto done = ask(slot, [&] { return body(&answer.value); });
  if (!answer.whole()) {
    auto error = fail(Errc::driver_error, "{}: {} wrote outside the {} bytes of its answer",
                      plugin_.name, slot, sizeof(Answer));
    tell_of_call(error);
    return error;
  }
  if (!done) return std::move(done).error();
  return answer.value;
}

template <class Body>
Result<emm_memory> ImportedManager::memory(const char* slot, Body body) {
  emm_memory left{};
  auto made = answer(slot, emm_memory{}, [&](emm_memory* given) {
    const emm_status status = body(given);
    left = *given;
    return status;
  });
  if (made) {
    last_token_.store(made->token, std::memory_order_relaxed);
  } else if (left.token != 0 || left.device_pointer != 0 || left.host_pointer != nullptr) {
    note_wrong_answer(text::format(
        "{} failed, and left token {}, device_pointer {} and host_pointer {} in its answer", slot,
        left.token, text::hex(left.device_pointer),
        text::hex(reinterpret_cast<std::uintptr_t>(left.host_pointer))));
  }
  return made;
}

void ImportedManager::note_wrong_answer(std::string words) {
  const std::lock_guard lock(answers_mutex_);
  if (wrong_answer_.empty()) wrong_answer_ = std::move(words);
}

std::string ImportedManager::wrong_answer() const {
  const std::lock_guard lock(answers_mutex_);
  return wrong_answer_;
}

std::string ImportedManager::last_error() const {
  if (plugin_.table.last_error == nullptr) return {};
  return error_of(EMM_UNKNOWN_ERROR, "last_error").message;
}

std::string ImportedManager::ask_class(std::string_view question) const {
  std::string answer;
  run("ask", [&] { answer = ask_python_class(plugin_, self_, std::string(question)); });
  return answer;
}

std::string ImportedManager::story_of_class() const {
  const RunningCall running("story");
  return story_of_python_class(plugin_);
}

Error ImportedManager::error_of(emm_status status, const char* slot) const {
  Error error{.code = meaning_of(status), .native = status, .call = slot};
  if (plugin_.table.last_error == nullptr) return error;
  const RunningCall running("last_error");
  try {
    auto given = get_text([&](char* buffer, std::size_t size) {
      return plugin_.table.last_error(self_, buffer, size);
    });
    if (!given.whole) tell_of_call(wrote_outside("last_error"));
    error.message = std::move(given.text);
  } catch (...) {
    tell_of_call(threw("last_error"));  // the status is enough
  }
  return error;
}

Error ImportedManager::threw(const char* slot) const {
  return fail(Errc::driver_error, "{}: an exception came out of {}: expected a status",
              plugin_.name, slot);
}

Error ImportedManager::wrote_outside(const char* slot) const {
  return fail(Errc::driver_error,
              "{}: {} wrote more than the bytes that it was given, or no NUL at the end",
              plugin_.name, slot);
}

Error ImportedManager::without_address(const char* slot, std::uint64_t size) const {
  return fail(Errc::driver_error, "{}: {} of {} bytes answered success without an address",
              plugin_.name, slot, size);
}

Result<std::unique_ptr<MemoryManager>> ImportedManager::create(const Plugin& plugin,
                                                               const std::string& options,
                                                               const ManagerContext& context) {
  std::unique_ptr<ImportedManager> manager(new ImportedManager(plugin, context));
  const bool probe = context.driver == nullptr;
  const emm_create_v1 create{
      .struct_size = sizeof create,
      .flags = (probe ? EMM_CREATE_PROBE : 0) |
               (context.profile == Profile::numba ? EMM_CREATE_PROFILE_NUMBA : 0),
      .device = probe ? 0 : context.driver->device_ordinal(),
      .options = options.c_str(),
      .driver = probe ? nullptr : &manager->driver_table_->table(),
      .host = &manager->host_.table()};
  auto made = manager->ask(kCreate, [&] { return plugin.create(&create, &manager->self_); });
  back_to_folder();
  if (made && manager->self_ != nullptr) return std::unique_ptr<MemoryManager>(std::move(manager));
  manager->self_ = nullptr;
  // A class of Python's is known by its file or module, which is in the options.
  const bool is_class = std::string_view(plugin.table.name) == "python-class";
  const std::string name = is_class ? options : plugin.name;
  if (made) return fail(Errc::driver_error, "{}: create answered success without a manager", name);
  const bool refused = probe && made.error().code == Errc::invalid_value;
  return fail(refused ? Errc::usage : made.error().code, "{}: {}", name, describe(made.error()));
}

ImportedManager::~ImportedManager() {
  if (self_ == nullptr) return;
  epoch_.end();
  free_all();
  run("destroy", [&] { plugin_.table.destroy(self_); });
}

Status ImportedManager::initialize() {
  if (plugin_.table.initialize == nullptr) return {};
  return ask("initialize", [&] { return plugin_.table.initialize(self_); });
}

Lifetime ImportedManager::hold(const emm_memory& memory) {
  if (memory.token == 0) return {};
  const Finalizer finalizer{.run = finalize, .self = this, .cookie = memory.token};
  if (plugin_.table.reset != nullptr) return {finalizer, epoch_.mark(), LateFinalizer::runs};
  const std::lock_guard lock(mutex_);
  const auto number = ++made_;
  alive_.emplace(number, memory.token);
  numbers_[memory.token] = number;
  return {finalizer, epoch_.mark()};
}

void ImportedManager::finalize(void* self, std::uint64_t token, StreamHandle stream) noexcept {
  auto& manager = *static_cast<ImportedManager*>(self);
  if (manager.plugin_.table.reset == nullptr) {
    const std::lock_guard lock(manager.mutex_);
    const auto found = manager.numbers_.find(token);
    if (found == manager.numbers_.end()) return;
    manager.alive_.erase(found->second);
    manager.numbers_.erase(found);
  }
  manager.free(token, stream);
}

void ImportedManager::free(emm_token token, StreamHandle stream) noexcept {
  auto freed = ask("free", [&] { return plugin_.table.free(self_, token, stream.value); });
  if (!freed) tell(freed.error());
}

void ImportedManager::tell(const Error& error) const noexcept {
  if (observer_ != nullptr) observer_->free_failed(error);
}

void ImportedManager::tell_of_call(const Error& error) const noexcept {
  if (observer_ != nullptr) observer_->call_failed(error);
}

void ImportedManager::free_all() noexcept {
  std::map<std::uint64_t, emm_token> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(alive_);
    numbers_.clear();
  }
  for (const auto& [number, token] : all) free(token, {});
}

Result<MemoryPointer> ImportedManager::memalloc(std::uint64_t size, StreamHandle stream) {
  auto made = memory("memalloc", [&](auto* answer) {
    return plugin_.table.memalloc(self_, size, stream.value, answer);
  });
  if (!made) return std::move(made).error();
  if (made->device_pointer == 0 && size != 0) return without_address("memalloc", size);
  if (made->host_pointer != nullptr)
    note_wrong_answer(
        text::format("memalloc gave host_pointer {}, which is no address of the host",
                     text::hex(reinterpret_cast<std::uintptr_t>(made->host_pointer))));
  return MemoryPointer({made->device_pointer}, size, hold(*made));
}

Result<HostMemory> ImportedManager::memhostalloc(std::uint64_t size, HostAllocFlags flags) {
  if (plugin_.table.memhostalloc == nullptr) return Error{.code = Errc::not_supported};
  auto made = memory("memhostalloc", [&](auto* answer) {
    return plugin_.table.memhostalloc(self_, size, flags.bits(), answer);
  });
  if (!made) return std::move(made).error();
  const HostRange range{.pointer = static_cast<HostPtr>(made->host_pointer), .size = size};
  if (size != 0 && (range.pointer == nullptr || (flags.mapped && made->device_pointer == 0))) {
    return without_address("memhostalloc", size);
  }
  if (!flags.mapped && made->device_pointer != 0) slot_that_mapped_unasked_ = "memhostalloc";
  if (!flags.mapped) return PinnedMemory(range, hold(*made));
  return MappedMemory(range, {made->device_pointer}, hold(*made));
}

Result<HostMemory> ImportedManager::mempin(HostRange range, HostRegisterFlags flags,
                                           std::shared_ptr<const void> owner) {
  if (plugin_.table.mempin == nullptr) return Error{.code = Errc::not_supported};
  auto made = memory("mempin", [&](auto* answer) {
    return plugin_.table.mempin(self_, range.pointer, range.size, flags.bits(), answer);
  });
  if (!made) return std::move(made).error();
  if (!flags.mapped && made->device_pointer != 0) slot_that_mapped_unasked_ = "mempin";
  if (!flags.mapped) return PinnedMemory(range, hold(*made), std::move(owner));
  if (range.size != 0 && made->device_pointer == 0) return without_address("mempin", range.size);
  return MappedMemory(range, {made->device_pointer}, hold(*made), std::move(owner));
}

Result<ManagedMemory> ImportedManager::memallocmanaged(std::uint64_t size, AttachFlags attach) {
  if (plugin_.table.memallocmanaged == nullptr) return Error{.code = Errc::not_supported};
  auto made = memory("memallocmanaged", [&](auto* answer) {
    return plugin_.table.memallocmanaged(self_, size, static_cast<std::uint32_t>(attach), answer);
  });
  if (!made) return std::move(made).error();
  if (made->device_pointer == 0 && size != 0) return without_address("memallocmanaged", size);
  if (reinterpret_cast<std::uintptr_t>(made->host_pointer) != made->device_pointer)
    has_managed_of_two_addresses_ = true;
  return ManagedMemory(MemoryPointer({made->device_pointer}, size, hold(*made)));
}

Result<IpcHandle> ImportedManager::get_ipc_handle(MemoryView view) {
  if (plugin_.table.get_ipc_handle == nullptr) return Error{.code = Errc::not_supported};
  emm_ipc_handle empty{};
  empty.pci_domain_id = empty.pci_bus_id = empty.pci_device_id = -1;
  const auto made = answer("get_ipc_handle", empty, [&](auto* handle) {
    return plugin_.table.get_ipc_handle(self_, view.device_pointer.value, view.size, handle);
  });
  if (!made) return made.error();
  IpcHandle::Fields fields{
      .handle = {}, .size = view.size, .offset = made->offset, .source_info = {}};
  std::memcpy(fields.handle.bytes.data(), made->bytes, sizeof made->bytes);
  if (made->pci_bus_id >= 0) {
    fields.source_info = {.pci_domain_id = made->pci_domain_id,
                          .pci_bus_id = made->pci_bus_id,
                          .pci_device_id = made->pci_device_id};
  } else if (driver_ != nullptr) {
    fields.source_info = driver_->device_identity();
  }
  return IpcHandle::exported(fields);
}

Result<MemoryInfo> ImportedManager::get_memory_info() {
  if (plugin_.table.get_memory_info == nullptr) return Error{.code = Errc::not_supported};
  const auto info = answer("get_memory_info", emm_memory_info{}, [&](auto* answer) {
    return plugin_.table.get_memory_info(self_, answer);
  });
  if (!info) return info.error();
  return MemoryInfo{.free = info->free, .total = info->total};
}

void ImportedManager::reset() noexcept {
  epoch_.advance();
  if (plugin_.table.reset == nullptr) return free_all();
  run("reset", [&] { plugin_.table.reset(self_); });
}

DeferCleanup ImportedManager::defer_cleanup() {
  if (plugin_.table.defer_cleanup == nullptr) return {};
  if (!run("defer_cleanup", [&] { plugin_.table.defer_cleanup(self_); })) {
    return {};
  }
  return {end_deferring, this};
}

void ImportedManager::end_deferring(void* self) noexcept {
  auto& manager = *static_cast<ImportedManager*>(self);
  manager.run("end_defer_cleanup", [&] { manager.plugin_.table.end_defer_cleanup(manager.self_); });
}

int ImportedManager::interface_version() const noexcept {
  if (plugin_.table.interface_version == nullptr) return kInterfaceVersion;
  int version = 0;
  const bool asked =
      run("interface_version", [&] { version = plugin_.table.interface_version(self_); });
  return asked ? version : 0;
}

Status ImportedManager::flush() {
  if (plugin_.table.flush == nullptr) return {};
  return where_there_are_some(ask("flush", [&] { return plugin_.table.flush(self_); }));
}

Status ImportedManager::trim(std::uint64_t keep) {
  if (plugin_.table.trim == nullptr) return {};
  return where_there_are_some(ask("trim", [&] { return plugin_.table.trim(self_, keep); }));
}

ManagerState ImportedManager::state() const {
  if (plugin_.table.state == nullptr) return {};
  emm_state empty{};
  empty.live_bytes = empty.reserved_bytes = empty.largest_free_bytes = EMM_NOT_KNOWN;
  empty.pending_count = empty.pending_bytes = EMM_NOT_KNOWN;
  const auto state = answer("state", empty, [&](auto* answer) -> emm_status {
    plugin_.table.state(self_, answer);
    return EMM_SUCCESS;
  });
  if (!state) return {};
  return {.live_bytes = known(state->live_bytes),
          .reserved_bytes = known(state->reserved_bytes),
          .largest_free_bytes = known(state->largest_free_bytes),
          .pending_count = known(state->pending_count),
          .pending_bytes = known(state->pending_bytes)};
}

std::string ImportedManager::report() const {
  if (plugin_.table.report == nullptr) return {};
  GivenText given;
  auto asked = ask("report", [&] {
    given = get_text(
        [&](char* buffer, std::size_t size) { return plugin_.table.report(self_, buffer, size); });
    return EMM_SUCCESS;
  });
  if (asked && !given.whole) {
    asked = wrote_outside("report");
    tell_of_call(asked.error());
  }
  return asked ? given.text : describe(asked.error()) + "\n";
}

MemoryStatistics ImportedManager::statistics() const {
  if (plugin_.table.statistics == nullptr) return {};
  // Figures: what is asked for at once, and what is guarded behind them.
  constexpr std::size_t kMost = 256, kBehind = 64;
  constexpr emm_statistic kUntouched{nullptr, EMM_NOT_KNOWN};
  std::vector<emm_statistic> given;
  std::size_t there_are = 0;
  bool whole = true;
  const auto fill = [&](std::size_t room) {
    given.assign(room + kBehind, kUntouched);
    const auto asked = ask("statistics", [&] {
      there_are = plugin_.table.statistics(self_, given.data(), room);
      return EMM_SUCCESS;
    });
    whole = whole && std::all_of(given.begin() + static_cast<std::ptrdiff_t>(room), given.end(),
                                 [](const auto& one) { return one.name == nullptr; });
    return asked.has_value();
  };
  // The first call offers room for one number, so that a plugin that ignores `count` is caught.
  MemoryStatistics statistics;
  if (!fill(1)) return statistics;
  const auto said = there_are;
  if (!fill(kMost)) return statistics;
  if (!whole) {
    tell_of_call(fail(Errc::driver_error,
                      "{}: statistics wrote more than the numbers it was asked for", plugin_.name));
    return statistics;
  }
  const auto count = std::min(there_are, kMost);
  if (said < std::min<std::size_t>(count, 2)) {
    tell_of_call(fail(Errc::driver_error,
                      "{}: statistics says that there are {} numbers, and gives {}", plugin_.name,
                      said, count));
  }
  std::set<std::string_view> names;
  for (std::size_t at = 0; at < count; ++at) {
    if (given[at].name == nullptr) {
      tell_of_call(fail(Errc::driver_error,
                        "{}: statistics says that there are {} numbers, and gives {}", plugin_.name,
                        count, at));
      break;
    }
    if (!names.insert(given[at].name).second)
      tell_of_call(fail(Errc::driver_error, "{}: statistics gives {} twice", plugin_.name,
                        text::printable(given[at].name, 80)));
    set_statistic(statistics, given[at].name, given[at].value);
  }
  return statistics;
}

}  // namespace emm::plugin
