// Loads libraries that were written for other programs. The user names a function that allocates
// and one that frees.
#include <dlfcn.h>
#include <sys/types.h>

#include <mutex>
#include <unordered_map>

#include "base/options.hpp"
#include "base/text.hpp"
#include "plugin/abi.hpp"
#include "plugin/plugin.hpp"
#include "plugin/running_call.hpp"

namespace emm::plugin {
namespace {

/// The functions of one library. Only alloc and free are never null.
struct Functions {
  void* alloc = nullptr;
  void* free = nullptr;
  void* init = nullptr;
  void* reset = nullptr;
};

/// A manager of one device made of two functions. It remembers the size of each block, since the
/// freeing function takes it and the plugin ABI does not pass it.
class PairManager {
 public:
  PairManager(const Functions& functions, int device) noexcept
      : functions_(functions), device_(device) {}
  virtual ~PairManager() = default;

  emm_status memalloc(std::uint64_t size, emm_stream stream, emm_memory* memory) {
    void* ptr = allocate(size, stream);
    if (ptr == nullptr && size != 0) return EMM_OUT_OF_MEMORY;
    memory->device_pointer = reinterpret_cast<emm_device_ptr>(ptr);
    if (ptr == nullptr) return EMM_SUCCESS;
    const std::lock_guard lock(mutex_);
    memory->token = ++made_;
    alive_.emplace(memory->token, PairBlock{.ptr = ptr, .size = size});
    return EMM_SUCCESS;
  }

  emm_status free(emm_token token, emm_stream stream) {
    PairBlock block;
    {
      const std::lock_guard lock(mutex_);
      const auto found = alive_.find(token);
      if (found == alive_.end()) return EMM_SUCCESS;
      block = found->second;
      alive_.erase(found);
    }
    release(block.ptr, block.size, stream);
    return EMM_SUCCESS;
  }

  void initialize() const {
    if (functions_.init != nullptr) reinterpret_cast<void (*)(int)>(functions_.init)(device_ + 1);
  }
  void trim() const {
    if (functions_.reset != nullptr) reinterpret_cast<void (*)()>(functions_.reset)();
  }

 protected:
  virtual void* allocate(std::uint64_t size, emm_stream stream) = 0;
  virtual void release(void* ptr, std::uint64_t size, emm_stream stream) = 0;

  const Functions functions_;
  const int device_;

 private:
  struct PairBlock {
    void* ptr = nullptr;
    std::uint64_t size = 0;
  };
  std::mutex mutex_;
  std::unordered_map<emm_token, PairBlock> alive_;
  emm_token made_ = 0;
};

class TorchManager final : public PairManager {
  using PairManager::PairManager;
  void* allocate(std::uint64_t size, emm_stream stream) override {
    using Alloc = void* (*)(ssize_t, int, void*);
    return reinterpret_cast<Alloc>(functions_.alloc)(static_cast<ssize_t>(size), device_,
                                                     reinterpret_cast<void*>(stream));
  }
  void release(void* ptr, std::uint64_t size, emm_stream stream) override {
    using Free = void (*)(void*, ssize_t, int, void*);
    reinterpret_cast<Free>(functions_.free)(ptr, static_cast<ssize_t>(size), device_,
                                            reinterpret_cast<void*>(stream));
  }
};

class CupyManager final : public PairManager {
  using PairManager::PairManager;
  void* allocate(std::uint64_t size, emm_stream) override {
    using Alloc = void* (*)(void*, std::size_t, int);
    return reinterpret_cast<Alloc>(functions_.alloc)(nullptr, size, device_);
  }
  void release(void* ptr, std::uint64_t, emm_stream) override {
    using Free = void (*)(void*, void*, int);
    reinterpret_cast<Free>(functions_.free)(nullptr, ptr, device_);
  }
};

PairManager& of(emm_manager* self) noexcept { return *reinterpret_cast<PairManager*>(self); }

emm_plugin_table_v1 pair_table() noexcept {
  emm_plugin_table_v1 table{};
  table.struct_size = sizeof table;
  table.abi_version = EMM_PLUGIN_ABI_VERSION;
  table.flags = EMM_PLUGIN_CALLS_CUDA;
  table.destroy = [](emm_manager* self) { delete &of(self); };
  table.initialize = [](emm_manager* self) -> emm_status {
    of(self).initialize();
    return EMM_SUCCESS;
  };
  table.memalloc = [](emm_manager* self, std::uint64_t size, emm_stream stream,
                      emm_memory* memory) { return of(self).memalloc(size, stream, memory); };
  table.free = [](emm_manager* self, emm_token token, emm_stream stream) {
    return of(self).free(token, stream);
  };
  table.trim = [](emm_manager* self, std::uint64_t) -> emm_status {
    of(self).trim();
    return EMM_SUCCESS;
  };
  return table;
}

template <class Manager>
Result<Plugin> load(std::string_view kind, std::string_view spec, bool takes_more) {
  constexpr std::size_t kParts = 3;  // a library and the names of two functions
  std::vector<std::string> parts;
  auto rest = spec;
  while (parts.size() < kParts) {
    const auto comma = rest.find(',');
    parts.emplace_back(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (parts[0].empty() || parts[1].empty() || parts[2].empty()) {
    return fail(
        Errc::usage,
        "manager {}:{}: expected {}:LIBRARY,ALLOC,FREE, a file and the names of two functions",
        kind, spec, kind);
  }
  if (!is_path(parts[0])) {
    return fail(Errc::usage,
                "manager {}:{}: '{}' names no file: expected a library with a slash in its path, "
                "or one that ends in .so",
                kind, spec, parts[0]);
  }
  auto options = Options::parse(rest);
  if (!options) return std::move(options).error();
  std::string init, reset;
  if (takes_more) {
    init = options->text("init", "");
    reset = options->text("reset", "");
  }
  if (auto done = options->finish(text::format("manager {}", kind)); !done) return done.error();

  std::vector<std::string> tried;
  std::string opened;
  const auto found = open_library(library_names(parts[0]), opened, tried);
  if (!found) return found.error();
  void* const library = *found;
  if (library == nullptr) return Error{.code = Errc::not_found, .message = text::join(tried, "; ")};
  Functions functions;
  for (const auto& [function, symbol] : {std::pair(&functions.alloc, &parts[1]),
                                         {&functions.free, &parts[2]},
                                         {&functions.init, &init},
                                         {&functions.reset, &reset}}) {
    if (symbol->empty()) continue;
    *function = dlsym(library, symbol->c_str());
    if (*function == nullptr) {
      return Error{.code = Errc::not_found,
                   .message = text::format("{}: it has no function {}", opened, *symbol)};
    }
  }

  return Plugin{
      .name = kept_name(text::format("{}:{}", kind, spec)),
      .table = pair_table(),
      .create = [functions](const emm_create_v1* create, emm_manager** self) -> emm_status {
        *self = reinterpret_cast<emm_manager*>(
            static_cast<PairManager*>(new Manager(functions, create->device)));
        return EMM_SUCCESS;
      }};
}

}  // namespace

Result<Plugin> load_torch_functions(std::string_view spec) {
  return load<TorchManager>("torch", spec, true);
}
Result<Plugin> load_cupy_functions(std::string_view spec) {
  return load<CupyManager>("cupy", spec, false);
}

}  // namespace emm::plugin
