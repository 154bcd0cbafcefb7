/* No address is handed out twice: physical memory is mapped at the next addresses of a range that
 * only grows, and addresses are given back when the manager ends. */
#include <stdint.h>

struct range {
  uint64_t base, size;
  struct range* next;
};
struct own {
  struct range* ranges; /* The latest first. */
  uint64_t next, left;
};
#include "base.h"

/* The addresses of a record. */
static emm_status take_addresses(emm_manager* self, uint64_t size, uint64_t* address) {
  struct own* own = &self->own;
  for (;;) {
    lock(self);
    const bool fits = own->left >= size;
    if (fits) {
      *address = own->next;
      own->next += size;
      own->left -= size;
    }
    unlock(self);
    if (fits) return EMM_SUCCESS;
    struct range* range = calloc(1, sizeof *range);
    if (range == NULL) return EMM_OUT_OF_MEMORY;
    range->size = size > 65536 * MIB ? size : 65536 * MIB;
    const emm_status status =
        self->driver->mem_address_reserve(self->driver->user, range->size, 0, 0, &range->base);
    if (status != EMM_SUCCESS) {
      free(range);
      return status;
    }
    lock(self);
    range->next = own->ranges;
    own->ranges = range;
    own->next = range->base;
    own->left = range->size;
    unlock(self);
  }
}

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  uint64_t page = 0;
  emm_status status = driver->mem_get_allocation_granularity(driver->user, &page);
  if (status != EMM_SUCCESS) return status;
  record->held = round_up(record->size, page);
  status = driver->mem_create(driver->user, record->held, &record->number);
  if (status != EMM_SUCCESS) return status;
  status = take_addresses(self, record->held, &record->address);
  bool is_mapped = false;
  if (status == EMM_SUCCESS) {
    status = driver->mem_map(driver->user, record->address, record->held, 0, record->number);
    is_mapped = status == EMM_SUCCESS;
  }
  if (status == EMM_SUCCESS)
    status = driver->mem_set_access(driver->user, record->address, record->held, 3);
  if (status == EMM_SUCCESS) return status;
  if (is_mapped)
    tell_of_failure(self, driver->mem_unmap(driver->user, record->address, record->held));
  tell_of_failure(self, driver->mem_release(driver->user, record->number));
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  const emm_driver_v1* driver = self->driver;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  wait_for_work(self); /* An unmap waits for nothing. */
  const emm_status first = driver->mem_unmap(driver->user, record->address, record->held);
  const emm_status second = driver->mem_release(driver->user, record->number);
  free(record);
  return first != EMM_SUCCESS ? first : second;
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static void destroy_ranges(emm_manager* self) {
  if (self->driver != NULL) reset(self);
  while (self->own.ranges != NULL) {
    struct range* range = self->own.ranges;
    self->own.ranges = range->next;
    tell_of_failure(self,
                    self->driver->mem_address_free(self->driver->user, range->base, range->size));
    free(range);
  }
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "no address twice",
                                            .create = create,
                                            .destroy = destroy_ranges,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .reset = reset,
                                            .state = state};
  return &table;
}
