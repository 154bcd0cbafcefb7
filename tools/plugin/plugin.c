/* NAME, a memory manager: every request is one call of the driver. A beginning: see emm_plugin.h
 * for all that it can do. */
#include <emm_plugin.h>
#include <stdlib.h>

struct emm_manager {
  const emm_driver_v1* driver; /* The host's device, real or simulated. */
};

static emm_status create(const emm_create_v1* create, emm_manager** self) {
  if (*create->options != '\0') return EMM_INVALID_VALUE; /* It has none. */
  const int probe = (create->flags & EMM_CREATE_PROBE) != 0;
  if (create->driver == NULL && !probe) return EMM_NOT_SUPPORTED;
  *self = malloc(sizeof **self);
  if (*self == NULL) return EMM_UNKNOWN_ERROR;
  (*self)->driver = create->driver;
  return EMM_SUCCESS;
}

static void destroy(emm_manager* self) { free(self); }

static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  (void)stream; /* The driver's own frees wait for all streams. */
  const emm_status status =
      self->driver->mem_alloc(self->driver->user, size, &memory->device_pointer);
  memory->token = memory->device_pointer; /* Any number but 0 that names it while it is alive. */
  return status;
}

static emm_status give_back(emm_manager* self, emm_token token, emm_stream stream) {
  (void)stream;
  return self->driver->mem_free(self->driver->user, token);
}

static emm_status get_memory_info(emm_manager* self, emm_memory_info* info) {
  return self->driver->mem_get_info(self->driver->user, &info->free, &info->total);
}

/* What is not here is answered for it: reset() frees what is alive, memhostalloc and its like are
 * not supported. */
const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {
      .struct_size = sizeof table,
      .abi_version = EMM_PLUGIN_ABI_VERSION,
      .name = "NAME",
      .summary = "One call of the driver a request",
      .create = create,
      .destroy = destroy,
      .memalloc = memalloc,
      .free = give_back,
      .get_memory_info = get_memory_info,
  };
  return &table;
}
