/* Physical pages of 2 MiB are kept, and mapped side by side for each request. */
#include <stdint.h>

struct page {
  uint64_t physical;
  struct page* next;
};
struct own {
  struct page* kept;
};
#include "base.h"

static const uint64_t kPage = 2 * MIB;

static void keep(emm_manager* self, struct page* pages) {
  lock(self);
  while (pages != NULL) {
    struct page* next = pages->next;
    pages->next = self->own.kept;
    self->own.kept = pages;
    pages = next;
  }
  unlock(self);
}

/* A kept page, or a new one. */
static emm_status get_page(emm_manager* self, struct page** page) {
  lock(self);
  *page = self->own.kept;
  if (*page != NULL) self->own.kept = (*page)->next;
  unlock(self);
  if (*page != NULL) return EMM_SUCCESS;
  *page = calloc(1, sizeof **page);
  if (*page == NULL) return EMM_OUT_OF_MEMORY;
  const emm_status status = self->driver->mem_create(self->driver->user, kPage, &(*page)->physical);
  if (status != EMM_SUCCESS) free(*page);
  return status;
}

static emm_status unmap(emm_manager* self, uint64_t address, uint64_t mapped, uint64_t reserved) {
  const emm_driver_v1* driver = self->driver;
  emm_status first = EMM_SUCCESS;
  for (uint64_t at = 0; at < mapped; at += kPage) {
    const emm_status status = driver->mem_unmap(driver->user, address + at, kPage);
    if (first == EMM_SUCCESS) first = status;
  }
  const emm_status status = driver->mem_address_free(driver->user, address, reserved);
  return first == EMM_SUCCESS ? status : first;
}

static emm_status take(emm_manager* self, struct record* record) {
  const emm_driver_v1* driver = self->driver;
  record->held = round_up(record->size, kPage);
  struct page* pages = NULL;
  emm_status status = EMM_SUCCESS;
  for (uint64_t have = 0; have < record->held && status == EMM_SUCCESS; have += kPage) {
    struct page* page = NULL;
    status = get_page(self, &page);
    if (status == EMM_SUCCESS) page->next = pages, pages = page;
  }
  if (status != EMM_SUCCESS) {
    keep(self, pages);
    return status;
  }
  status = driver->mem_address_reserve(driver->user, record->held, kPage, 0, &record->address);
  if (status != EMM_SUCCESS) {
    keep(self, pages);
    return status;
  }
  uint64_t mapped = 0;
  for (struct page* page = pages; page != NULL && status == EMM_SUCCESS; page = page->next) {
    status = driver->mem_map(driver->user, record->address + mapped, kPage, 0, page->physical);
    if (status == EMM_SUCCESS) mapped += kPage;
  }
  if (status == EMM_SUCCESS)
    status = driver->mem_set_access(driver->user, record->address, record->held, 3);
  if (status != EMM_SUCCESS) {
    tell_of_failure(self, unmap(self, record->address, mapped, record->held));
    keep(self, pages);
    return status;
  }
  record->number = (uintptr_t)pages;
  return EMM_SUCCESS;
}

static emm_status give(emm_manager* self, struct record* record, emm_stream stream) {
  (void)stream;
  if (record->kind != DEVICE) return end_at_driver(self, record);
  wait_for_work(self); /* An unmap waits for nothing. */
  const emm_status status = unmap(self, record->address, record->held, record->held);
  keep(self, (struct page*)(uintptr_t)record->number);
  free(record);
  return status;
}

static emm_status make_room(emm_manager* self) {
  emm_status first = EMM_SUCCESS;
  lock(self);
  struct page* page = self->own.kept;
  self->own.kept = NULL;
  unlock(self);
  while (page != NULL) {
    struct page* next = page->next;
    const emm_status status = self->driver->mem_release(self->driver->user, page->physical);
    if (first == EMM_SUCCESS) first = status;
    free(page);
    page = next;
  }
  return first;
}

RIGHT_MANAGER("pages that are mapped anew", RIGHT_HOST_SLOTS, .get_memory_info = get_memory_info,
              .reset = reset, .state = state)
