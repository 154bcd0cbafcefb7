#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin/driver_table.hpp"
#include "plugin/emm_plugin.h"
#include "tools/peers/platform_at_peak.hpp"

/// The doors of libemm.so, measured as Allocators of measure.hpp.
namespace emm::peers {

/// libemm.so, which stays loaded.
class Library {
 public:
  /// Prints a line on stderr and holds nothing where the library cannot be loaded.
  explicit Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW)) {
    if (handle_ == nullptr) std::fprintf(stderr, "pool_bench: %s\n", ::dlerror());
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

/// "pool:max=1GiB" as libemm.so takes it: "name=pool,max=1GiB".
inline std::string options_of(const std::string& manager) {
  auto options = "name=" + manager;
  if (const auto colon = options.find(':'); colon != std::string::npos) options[colon] = ',';
  return options;
}

/// A manager behind the C table of emm_plugin.h. It makes its driver calls through the table too,
/// as for a foreign host.
class PluginDoor {
 public:
  struct Memory {
    emm_token token = 0;
    bool is_held = false;
  };

  static std::unique_ptr<PluginDoor> make(const Library& library, const std::string& device,
                                          const std::string& manager, std::uint32_t streams) {
    auto self = std::unique_ptr<PluginDoor>(new PluginDoor);
    if (!self->open(library, device, manager, streams)) return nullptr;
    return self;
  }
  PluginDoor(const PluginDoor&) = delete;
  PluginDoor& operator=(const PluginDoor&) = delete;
  ~PluginDoor() {
    if (self_ != nullptr) table_->destroy(self_);
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    emm_memory made{};
    made.struct_size = sizeof made;
    if (table_->memalloc(self_, size, platform_.stream(stream).value, &made) != EMM_SUCCESS)
      return false;
    memory = {.token = made.token, .is_held = true};
    return true;
  }
  void free(Memory& memory, std::uint16_t stream) {
    if (std::exchange(memory.is_held, false))
      table_->free(self_, memory.token, platform_.stream(stream).value);
  }
  void synchronize() { platform_.synchronize(); }
  std::uint64_t reserved_peak() const { return platform_.reserved_peak(); }
  void restart_peak() { platform_.restart_peak(); }
  std::optional<std::uint64_t> device_free() { return platform_.device_free(); }
  void* handle(std::uint16_t stream) const { return platform_.handle(stream); }

 private:
  PluginDoor() = default;

  bool open(const Library& library, const std::string& device, const std::string& manager,
            std::uint32_t streams) {
    if (!platform_.open(device, streams)) return false;
    table_ = library.function<const emm_plugin_table_v1*()>("emm_plugin_v1")();
    driver_ = std::make_unique<plugin::DriverTable>(platform_.driver(), platform_.runtime());
    const auto options = options_of(manager);
    const emm_create_v1 create{.struct_size = sizeof create,
                               .flags = 0,
                               .device = 0,
                               .options = options.c_str(),
                               .driver = &driver_->table(),
                               .host = nullptr};
    if (table_->create(&create, &self_) == EMM_SUCCESS && table_->initialize(self_) == EMM_SUCCESS)
      return true;
    std::array<char, 512> words{};
    table_->last_error(self_, words.data(), words.size());
    std::fprintf(stderr, "pool_bench: %s\n", words.data());
    return false;
  }

  PlatformAtPeak platform_;
  const emm_plugin_table_v1* table_ = nullptr;
  std::unique_ptr<plugin::DriverTable> driver_;
  emm_manager* self_ = nullptr;
};

/// PyTorch's door: emm_torch_alloc() and emm_torch_free(). The managers behind it open the device
/// themselves, so a simulated device does not know the streams: they are names there.
class TorchDoor {
 public:
  struct Memory {
    void* address = nullptr;
    std::uint64_t size = 0;
  };

  static std::unique_ptr<TorchDoor> make(const Library& library, const std::string& device,
                                         const std::string& manager, std::uint32_t streams) {
    auto self = std::unique_ptr<TorchDoor>(new TorchDoor);
    if (!self->open(library, device, manager, streams)) return nullptr;
    return self;
  }
  TorchDoor(const TorchDoor&) = delete;
  TorchDoor& operator=(const TorchDoor&) = delete;
  ~TorchDoor() {
    if (end_ != nullptr) end_(0);
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    try {
      memory = {allocate_(static_cast<std::ptrdiff_t>(size), 0, handle(stream)), size};
    } catch (const std::exception&) {  // out of memory
      return false;
    }
    return true;
  }
  void free(Memory& memory, std::uint16_t stream) {
    free_(std::exchange(memory.address, nullptr), static_cast<std::ptrdiff_t>(memory.size), 0,
          handle(stream));
  }
  void synchronize() { platform_.synchronize(); }
  std::uint64_t reserved_peak() const {
    std::vector<emm_statistic> all(table_->statistics(self_, nullptr, 0));
    table_->statistics(self_, all.data(), all.size());
    const auto found = std::find_if(all.begin(), all.end(), [](const auto& one) {
      return std::strcmp(one.name, "reserved_bytes.all.peak") == 0;
    });
    return found != all.end() ? found->value : 0;
  }
  void restart_peak() { reset_peaks_(0); }
  std::optional<std::uint64_t> device_free() {
    emm_memory_info info{.struct_size = sizeof info, .free = 0, .total = 0};
    return table_->get_memory_info(self_, &info) == EMM_SUCCESS ? std::optional(info.free)
                                                                : std::nullopt;
  }
  void* handle(std::uint16_t stream) const { return platform_.handle(stream); }

 private:
  TorchDoor() = default;

  bool open(const Library& library, const std::string& device, const std::string& manager,
            std::uint32_t streams) {
    if (!platform_.open(device, streams)) return false;
    allocate_ = library.function<decltype(emm_torch_alloc)>("emm_torch_alloc");
    free_ = library.function<decltype(emm_torch_free)>("emm_torch_free");
    reset_peaks_ = library.function<decltype(emm_shared_reset_peaks)>("emm_shared_reset_peaks");
    table_ = library.function<const emm_plugin_table_v1*()>("emm_plugin_v1")();
    auto opened = device;  // within the options a device has semicolons
    for (auto& letter : opened) {
      if (letter == ':' || letter == ',') letter = ';';
    }
    if (device.starts_with("cuda")) opened = device;
    const auto use = library.function<decltype(emm_shared_use)>("emm_shared_use");
    const auto shared = library.function<decltype(emm_shared_manager)>("emm_shared_manager");
    if (use((options_of(manager) + ",open=" + opened).c_str(), 0) == EMM_SUCCESS &&
        shared(0, &self_) == EMM_SUCCESS) {
      end_ = library.function<decltype(emm_shared_end)>("emm_shared_end");
      return true;
    }
    std::array<char, 512> words{};
    library.function<decltype(emm_shared_error)>("emm_shared_error")(words.data(), words.size());
    std::fprintf(stderr, "pool_bench: %s\n", words.data());
    return false;
  }

  PlatformAtPeak platform_;
  const emm_plugin_table_v1* table_ = nullptr;
  emm_manager* self_ = nullptr;
  decltype(emm_torch_alloc)* allocate_ = nullptr;
  decltype(emm_torch_free)* free_ = nullptr;
  decltype(emm_shared_reset_peaks)* reset_peaks_ = nullptr;
  decltype(emm_shared_end)* end_ = nullptr;
};

}  // namespace emm::peers
