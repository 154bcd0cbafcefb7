/* A plugin that calls CUDA itself, found by dlopen(), and does not say so in its table. It serves
 * managed memory alone. LIBRARY is what it opens. */
#include <dlfcn.h>
#include <stdlib.h>

#include "emm_plugin.h"

struct emm_manager {
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*alloc)(unsigned long long* pointer, size_t size, unsigned flags);
  int (*end)(unsigned long long pointer);
};

static emm_status create(const emm_create_v1* given, emm_manager** self) {
  if (given->options[0] != '\0') return EMM_INVALID_VALUE;
  *self = calloc(1, sizeof **self);
  return *self != NULL ? EMM_SUCCESS : EMM_OUT_OF_MEMORY;
}

static void destroy(emm_manager* self) { free(self); }

static emm_status initialize(emm_manager* self) {
  void* cuda = dlopen(LIBRARY, RTLD_NOW);
  if (cuda == NULL) return EMM_SUCCESS;
  int (*init)(unsigned) = NULL;
  *(void**)&init = dlsym(cuda, "cuInit");
  *(void**)&self->retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  *(void**)&self->set_current = dlsym(cuda, "cuCtxSetCurrent");
  *(void**)&self->alloc = dlsym(cuda, "cuMemAllocManaged");
  *(void**)&self->end = dlsym(cuda, "cuMemFree_v2");
  return init(0);
}

static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  (void)self, (void)size, (void)stream, (void)memory;
  return EMM_NOT_SUPPORTED;
}

static emm_status memallocmanaged(emm_manager* self, uint64_t size, uint32_t attach,
                                  emm_memory* memory) {
  void* context = NULL;
  unsigned long long pointer = 0;
  if (self->alloc == NULL) return EMM_NOT_INITIALIZED;
  emm_status status = self->retain(&context, 0);
  if (status == EMM_SUCCESS) status = self->set_current(context);
  if (status == EMM_SUCCESS) status = self->alloc(&pointer, size, attach);
  if (status != EMM_SUCCESS) return status;
  memory->token = memory->device_pointer = pointer;
  memory->host_pointer = (void*)(uintptr_t)pointer;
  return EMM_SUCCESS;
}

static emm_status end(emm_manager* self, emm_token token, emm_stream stream) {
  (void)stream;
  return self->end(token);
}

const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {
      .struct_size = sizeof table,
      .abi_version = EMM_PLUGIN_ABI_VERSION,
      .name = "undeclared",
      .create = create,
      .destroy = destroy,
      .initialize = initialize,
      .memalloc = memalloc,
      .free = end,
      .memallocmanaged = memallocmanaged,
  };
  return &table;
}
