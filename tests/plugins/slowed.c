/* Passes everything on to the bundled pool behind the plugin ABI, made slower on purpose: with the
 * option spin=N each request and each free also counts to N. So it is known which of two is the
 * slower, and by how much, before `emmctl compare` is asked. LIBEMM is the path of libemm.so. */
#include <dlfcn.h>
#include <emm_plugin.h>
#include <stdlib.h>
#include <string.h>

static const emm_plugin_table_v1* pool;
static unsigned long turns;

static void spin(void) {
  for (volatile unsigned long i = 0; i < turns; ++i) continue;
}

static emm_status create(const emm_create_v1* asked, emm_manager** answer) {
  emm_create_v1 inner = *asked;
  if (asked->options == NULL || strncmp(asked->options, "spin=", 5) != 0) return EMM_INVALID_VALUE;
  turns = strtoul(asked->options + 5, NULL, 10);
  inner.options = "name=pool";
  return pool->create(&inner, answer);
}

static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  spin();
  return pool->memalloc(self, size, stream, memory);
}

static emm_status give_back(emm_manager* self, emm_token token, emm_stream stream) {
  spin();
  return pool->free(self, token, stream);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static emm_plugin_table_v1 table;
  if (pool != NULL) return &table;
  const char* path = getenv("LIBEMM");
  void* library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) return NULL;
  const emm_plugin_table_v1* (*of_library)(void);
  *(void**)&of_library = dlsym(library, "emm_plugin_v1");
  if (of_library == NULL) return NULL;
  pool = of_library();
  table = *pool;
  table.name = "slowed";
  table.options = "spin=N";
  table.create = create;
  table.memalloc = memalloc;
  table.free = give_back;
  return &table;
}
