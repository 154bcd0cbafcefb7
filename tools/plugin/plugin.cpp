// NAME, a memory manager: freed blocks are kept, and serve requests of the same size.
#include <emm_plugin.h>

#include <map>
#include <mutex>

struct emm_manager {
  const emm_driver_v1* driver = nullptr;
  std::mutex mutex;
  std::map<emm_device_ptr, uint64_t> sizes;      // Of everything that is held from the driver.
  std::multimap<uint64_t, emm_device_ptr> idle;  // Of that, what nobody uses.

  emm_status memalloc(uint64_t size, emm_device_ptr* ptr) {
    const std::lock_guard lock(mutex);
    if (const auto found = idle.find(size); found != idle.end()) {
      *ptr = found->second;
      idle.erase(found);
      return driver->ctx_synchronize(driver->user);  // whatever stream still works on it
    }
    auto status = driver->mem_alloc(driver->user, size, ptr);
    if (status == EMM_OUT_OF_MEMORY) {
      give_back_idle();
      status = driver->mem_alloc(driver->user, size, ptr);
    }
    if (status == EMM_SUCCESS) sizes[*ptr] = size;
    return status;
  }
  emm_status free(emm_device_ptr ptr) {
    const std::lock_guard lock(mutex);
    idle.emplace(sizes.at(ptr), ptr);
    return EMM_SUCCESS;
  }
  void give_back_idle() {
    for (const auto& [size, ptr] : idle) driver->mem_free(driver->user, ptr), sizes.erase(ptr);
    idle.clear();
  }
};

extern "C" const emm_plugin_table_v1* emm_plugin_v1() {
  static const emm_plugin_table_v1 table = [] {
    emm_plugin_table_v1 slots{};
    slots.struct_size = sizeof slots;
    slots.abi_version = EMM_PLUGIN_ABI_VERSION;
    slots.name = "NAME";
    slots.create = [](const emm_create_v1* create, emm_manager** self) -> emm_status {
      if (*create->options != '\0') return EMM_INVALID_VALUE;
      (*self = new emm_manager)->driver = create->driver;
      return EMM_SUCCESS;
    };
    slots.destroy = [](emm_manager* self) { self->give_back_idle(), delete self; };
    slots.memalloc = [](emm_manager* self, uint64_t size, emm_stream, emm_memory* memory) {
      const auto status = self->memalloc(size, &memory->device_pointer);
      return memory->token = memory->device_pointer, status;
    };
    slots.free = [](emm_manager* self, emm_token token, emm_stream) { return self->free(token); };
    return slots;
  }();
  return &table;
}
