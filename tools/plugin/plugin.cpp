// NAME, a memory manager. It keeps freed blocks and serves requests of the same size from them.
#include <emm_plugin.h>

#include <map>
#include <mutex>
#include <utility>

struct emm_manager {
  const emm_driver_v1* driver = nullptr;
  std::mutex mutex;  // Never held while the driver is called, so that other threads can go on.
  std::map<emm_device_ptr, uint64_t> sizes;      // All blocks that the driver gave, by size.
  std::multimap<uint64_t, emm_device_ptr> idle;  // The blocks among them that nobody uses.

  emm_status memalloc(uint64_t size, emm_device_ptr* ptr) {
    std::unique_lock lock(mutex);
    if (const auto found = idle.find(size); found != idle.end()) {
      *ptr = found->second;
      idle.erase(found);
      lock.unlock();
      const auto status = driver->ctx_synchronize(driver->user);  // Work may still use the block.
      return status == EMM_SUCCESS ? status : (free(*ptr), status);
    }
    lock.unlock();
    auto status = driver->mem_alloc(driver->user, size, ptr);
    if (status == EMM_OUT_OF_MEMORY) {
      give_back_idle();
      status = driver->mem_alloc(driver->user, size, ptr);
    }
    lock.lock();
    if (status == EMM_SUCCESS) sizes[*ptr] = size;
    return status;
  }
  emm_status free(emm_device_ptr ptr) {
    const std::lock_guard lock(mutex);
    return idle.emplace(sizes.at(ptr), ptr), EMM_SUCCESS;
  }
  void give_back_idle() {
    std::unique_lock lock(mutex);
    const auto blocks = std::exchange(idle, {});
    for (const auto& [size, ptr] : blocks) sizes.erase(ptr);
    lock.unlock();
    for (const auto& [size, ptr] : blocks) driver->mem_free(driver->user, ptr);
  }
};

static constexpr emm_plugin_table_v1 kTable{
    .struct_size = sizeof kTable,
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .name = "NAME",
    .create = [](const emm_create_v1* create, emm_manager** self) -> emm_status {
      if (*create->options != '\0') return EMM_INVALID_VALUE;  // there are none
      (*self = new emm_manager)->driver = create->driver;
      return EMM_SUCCESS;
    },
    .destroy = [](emm_manager* self) { self->give_back_idle(), delete self; },
    .memalloc =
        [](emm_manager* self, uint64_t size, emm_stream, emm_memory* memory) {
          const auto status = self->memalloc(size, &memory->device_pointer);
          return memory->token = memory->device_pointer, status;
        },
    .free = [](emm_manager* self, emm_token ptr, emm_stream) { return self->free(ptr); }};

extern "C" const emm_plugin_table_v1* emm_plugin_v1() { return &kTable; }
