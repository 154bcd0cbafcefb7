/* A plugin whose words hold what a terminal obeys: the escapes of a title and of colours, ends of
 * lines, bytes that are no UTF-8. It declines the first request and refuses the others. */
#include <plugin/emm_plugin.h>
#include <string.h>

struct emm_manager {
  int asked;
};
static emm_manager only;
static const char words[] =
    "\x1b]0;owned\x07\x1b[31m\r\nFORGED: line \x7f\xc2\x9b"
    "2J\xe2\x80\xae\xff";

static size_t put(const char* text, char* buffer, size_t size) {
  const size_t length = strlen(text);
  if (size != 0) {
    const size_t fits = length < size ? length : size - 1;
    memcpy(buffer, text, fits);
    buffer[fits] = '\0';
  }
  return length;
}
static size_t last_error(emm_manager* self, char* buffer, size_t size) {
  (void)self;
  return put(words, buffer, size);
}
/* Of which the lines are its own. */
static size_t report(emm_manager* self, char* buffer, size_t size) {
  (void)self;
  return put(
      "reports \x1b[2J\r\xc2\x9b"
      "2J\xe2\x80\xae\xff",
      buffer, size);
}
static emm_status create(const emm_create_v1* asked, emm_manager** self) {
  (void)asked;
  *self = &only;
  return EMM_SUCCESS;
}
static void destroy(emm_manager* self) { (void)self; }
static emm_status memalloc(emm_manager* self, uint64_t size, emm_stream stream,
                           emm_memory* memory) {
  (void)size, (void)stream, (void)memory;
  return self->asked++ == 0 ? EMM_NOT_SUPPORTED : EMM_OUT_OF_MEMORY;
}
static emm_status give_back(emm_manager* self, emm_token token, emm_stream stream) {
  (void)self, (void)token, (void)stream;
  return EMM_NOT_SUPPORTED;
}

static const emm_plugin_table_v1 table = {
    .struct_size = sizeof table,
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .create = create,
    .destroy = destroy,
    .memalloc = memalloc,
    .free = give_back,
    .last_error = last_error,
    .report = report,
};

const emm_plugin_table_v1* emm_plugin_v1(void);

const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
