/* A plugin whose table is not right, in the way that it is built with. */
#include <plugin/emm_plugin.h>

static emm_status create(const emm_create_v1* create, emm_manager** self) {
  (void)create;
  (void)self;
  return EMM_NOT_SUPPORTED;
}
static void destroy(emm_manager* self) { (void)self; }
static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  (void)self, (void)size, (void)stream, (void)memory;
  return EMM_NOT_SUPPORTED;
}
static emm_status give_back(emm_manager* self, emm_token token, emm_stream stream) {
  (void)self, (void)token, (void)stream;
  return EMM_NOT_SUPPORTED;
}
#ifdef HALF
static void defer_cleanup(emm_manager* self) { (void)self; }
#endif

static const emm_plugin_table_v1 table = {
#ifdef SHORT
    .struct_size = 16,
#else
    .struct_size = sizeof table,
#endif
#ifdef VERSION
    .abi_version = VERSION,
#else
    .abi_version = EMM_PLUGIN_ABI_VERSION,
#endif
    .create = create,
    .destroy = destroy,
#ifndef LESS
    .memalloc = memalloc,
#endif
#ifdef HALF
    .defer_cleanup = defer_cleanup,
#endif
    .free = give_back,
};

const emm_plugin_table_v1* emm_plugin_v1(void);

const emm_plugin_table_v1* emm_plugin_v1(void) {
  (void)memalloc;
#ifdef NO_TABLE
  return (const emm_plugin_table_v1*)0;
#else
  return &table;
#endif
}
