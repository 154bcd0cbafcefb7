/* One arena of 64 MiB that the first request takes and that stays until the end; what does not fit
 * into it is an allocation of its own. First fit; the next owner waits for all work. */
#include <stdint.h>

enum { kUnitBits = 9, kUnits = (64 << 20) >> kUnitBits };

struct own {
  uint64_t base;
  unsigned char* used; /* One for each unit. */
  uint32_t first;      /* No unit below it is free. */
  uint64_t is_growing;
};
#include "base.h"

static bool find(emm_manager* self, struct record* record) {
  struct own* own = &self->own;
  const uint32_t need = (uint32_t)(round_up(record->size, 1 << kUnitBits) >> kUnitBits);
  uint32_t run = 0;
  bool is_first = true;
  for (uint32_t unit = own->first; unit < kUnits; ++unit) {
    if (own->used[unit]) {
      run = 0;
      continue;
    }
    if (is_first) own->first = unit;
    is_first = false;
    if (++run < need) continue;
    memset(own->used + unit + 1 - need, 1, need);
    record->address = own->base + ((uint64_t)(unit + 1 - need) << kUnitBits);
    record->held = (uint64_t)need << kUnitBits;
    record->number = 1;
    return true;
  }
  return false;
}

static void put_back(emm_manager* self, const struct record* record) {
  const uint32_t unit = (uint32_t)((record->address - self->own.base) >> kUnitBits);
  memset(self->own.used + unit, 0, record->held >> kUnitBits);
  if (unit < self->own.first) self->own.first = unit;
}

/* Where the device has no room for the arena, everything is an allocation of its own for now. */
static emm_status take_arena(emm_manager* self) {
  struct own* own = &self->own;
  lock(self);
  const bool begins = own->base == 0 && own->is_growing == 0;
  if (begins) own->is_growing = 1;
  unlock(self);
  if (!begins) return EMM_SUCCESS;
  uint64_t base = 0;
  unsigned char* used = calloc(kUnits, 1);
  emm_status status = EMM_OUT_OF_MEMORY;
  if (used != NULL)
    status = self->driver->mem_alloc(self->driver->user, (uint64_t)kUnits << kUnitBits, &base);
  lock(self);
  if (status == EMM_SUCCESS) {
    own->used = used;
    own->base = base;
  }
  own->is_growing = 0;
  unlock(self);
  if (status != EMM_SUCCESS) free(used);
  return status == EMM_OUT_OF_MEMORY ? EMM_SUCCESS : status;
}

static emm_status take(emm_manager* self, struct record* record) {
  emm_status status = take_arena(self);
  if (status != EMM_SUCCESS) return status;
  record->number = 0;
  lock(self);
  const bool fits =
      self->own.base != 0 && record->size <= (uint64_t)kUnits << kUnitBits && find(self, record);
  unlock(self);
  if (!fits) return self->driver->mem_alloc(self->driver->user, record->size, &record->address);
  status = self->driver->ctx_synchronize(self->driver->user);
  if (status == EMM_SUCCESS) return status;
  lock(self);
  put_back(self, record);
  unlock(self);
  return status;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE || record->number == 0) return end_at_driver(self, record);
  lock(self);
  put_back(self, record);
  unlock(self);
  free(record);
  return EMM_SUCCESS;
}

static emm_status make_room(emm_manager* self) {
  (void)self;
  return EMM_SUCCESS;
}

static void destroy_arena(emm_manager* self) {
  if (self->driver != NULL) end_all(self);
  if (self->own.base != 0)
    tell_of_failure(self, self->driver->mem_free(self->driver->user, self->own.base));
  free(self->own.used);
  destroy(self);
}

EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) {
  static const emm_plugin_table_v1 table = {.struct_size = sizeof table,
                                            .abi_version = EMM_PLUGIN_ABI_VERSION,
                                            .name = "right",
                                            .summary = "one arena",
                                            .create = create,
                                            .destroy = destroy_arena,
                                            .memalloc = memalloc,
                                            .free = free_token,
                                            RIGHT_HOST_SLOTS,
                                            .get_memory_info = get_memory_info,
                                            .reset = reset,
                                            .state = state};
  return &table;
}
