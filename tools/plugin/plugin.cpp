// NAME, a memory manager. It keeps freed blocks and serves requests of the same size from them.
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "emm_plugin.h"

struct emm_manager {
  struct Block {
    emm_device_ptr pointer = 0;
    uint64_t size = 0;
  };
  const emm_driver_v1* driver = nullptr;
  const emm_host_v1* host = nullptr;
  std::mutex mutex;  // Never held while the driver is called, so that other threads can go on.
  std::unordered_map<emm_token, Block> alive;
  std::multimap<uint64_t, emm_device_ptr> idle;  // By size: what nobody uses.
  emm_token last_token = 0;                      // A token is used once; an address comes again.

  emm_status memalloc(uint64_t size, emm_memory* memory) {
    Block block{.size = size};
    std::unique_lock lock(mutex);
    if (const auto found = idle.find(size); found != idle.end()) {
      block.pointer = found->second;
      idle.erase(found);
    }
    lock.unlock();
    emm_status status = EMM_SUCCESS;
    if (block.pointer != 0) {
      status = driver->ctx_synchronize(driver->user);  // Work may still use the block.
    } else {
      status = driver->mem_alloc(driver->user, size, &block.pointer);
      if (status == EMM_OUT_OF_MEMORY) {
        release_idle();
        status = driver->mem_alloc(driver->user, size, &block.pointer);
      }
    }
    lock.lock();
    if (status != EMM_SUCCESS) {
      if (block.pointer != 0) idle.emplace(size, block.pointer);
      return status;
    }
    memory->device_pointer = block.pointer;
    memory->token = ++last_token;
    alive.emplace(memory->token, block);
    return EMM_SUCCESS;
  }
  emm_status free(emm_token token) {
    const std::lock_guard lock(mutex);
    const auto found = alive.find(token);
    if (found == alive.end()) return EMM_INVALID_VALUE;
    idle.emplace(found->second.size, found->second.pointer);
    alive.erase(found);
    return EMM_SUCCESS;
  }
  void release_idle() {
    std::unique_lock lock(mutex);
    const auto blocks = std::exchange(idle, {});
    lock.unlock();
    for (const auto& [size, pointer] : blocks) {
      const emm_status status = driver->mem_free(driver->user, pointer);
      if (status != EMM_SUCCESS && host != nullptr && host->free_failed != nullptr)
        host->free_failed(host->user, status, nullptr);  // Nobody waits for an answer.
    }
  }
};

static constexpr emm_plugin_table_v1 kTable{
    .struct_size = sizeof kTable,
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .name = "NAME",
    .create = [](const emm_create_v1* create, emm_manager** self) -> emm_status {
      if (*create->options != '\0') return EMM_INVALID_VALUE;  // there are none
      *self = new emm_manager;
      (*self)->driver = create->driver;
      (*self)->host = create->host;
      return EMM_SUCCESS;
    },
    .destroy = [](emm_manager* self) { self->release_idle(), delete self; },
    .memalloc = [](emm_manager* self, uint64_t size, emm_stream,
                   emm_memory* memory) { return self->memalloc(size, memory); },
    .free = [](emm_manager* self, emm_token token, emm_stream) { return self->free(token); }};

extern "C" const emm_plugin_table_v1* emm_plugin_v1() { return &kTable; }
