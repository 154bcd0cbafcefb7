#pragma once

#include <string_view>

#include "conformance/model/contract_model.hpp"

namespace emm::model {

/// A way to get the contract wrong. A comparison that cannot tell it from the right way proves
/// nothing.
struct WrongRule {
  std::string_view what;
  void (*break_it)(Rules& rules);
};

inline constexpr WrongRule kWrongRules[] = {
    {"count 11", [](Rules& r) { r.count_limit = 11; }},
    {"count 9", [](Rules& r) { r.count_limit = 9; }},
    {"ratio 0.25", [](Rules& r) { r.ratio = 0.25; }},
    {"flush at the count limit", [](Rules& r) { r.count_limit_flushes = true; }},
    {"flush at the byte limit", [](Rules& r) { r.bytes_limit_flushes = true; }},
    {"limit rounded to nearest", [](Rules& r) { r.rounds_limit = true; }},
    {"newest first", [](Rules& r) { r.newest_first = true; }},
    {"flush down to the limit only", [](Rules& r) { r.flushes_to_limit_only = true; }},
    {"a flush leaves what is added meanwhile",
     [](Rules& r) { r.flush_leaves_what_is_added = true; }},
    {"limits flush while deferred", [](Rules& r) { r.flushes_while_deferred = true; }},
    {"out of memory flushes while deferred",
     [](Rules& r) { r.out_of_memory_flushes_deferred = true; }},
    {"flush when deferral ends", [](Rules& r) { r.flushes_at_end_of_deferral = true; }},
    {"deferral does not nest", [](Rules& r) { r.deferral_nests = false; }},
    {"failed free and flush (PD-11)",
     [](Rules& r) { r.failed_free_stops_flush = !r.failed_free_stops_flush; }},
    {"unset capacity is no limit", [](Rules& r) { r.unset_capacity_is_no_limit = true; }},
    {"no retry", [](Rules& r) { r.retries = 0; }},
    {"two retries", [](Rules& r) { r.retries = 2; }},
    {"retry without flush", [](Rules& r) { r.retry_flushes = false; }},
    {"any error is retried", [](Rules& r) { r.any_error_retries = true; }},
    {"no retry while deferred", [](Rules& r) { r.retries_while_deferred = false; }},
    {"failed flush and outcome (DEV-7)",
     [](Rules& r) { r.failed_flush_is_outcome = !r.failed_flush_is_outcome; }},
    {"retry of unmapped (HST-3)", [](Rules& r) { r.unmapped_retries = !r.unmapped_retries; }},
    {"what cannot be mapped (HST-7)",
     [](Rules& r) { r.mapping_failure_leaks = !r.mapping_failure_leaks; }},
    {"managed memory is not retried", [](Rules& r) { r.managed_retries = false; }},
    {"pinned bytes (HST-8)", [](Rules& r) { r.pinned_is_sized = !r.pinned_is_sized; }},
    {"mapped bytes uncounted", [](Rules& r) { r.mapped_is_sized = false; }},
    {"unpinning is queued", [](Rules& r) { r.unpin_is_queued = true; }},
    {"frees are made at once", [](Rules& r) { r.frees_at_once = true; }},
    {"untracked at reset (RST-5)",
     [](Rules& r) { r.reset_ends_untracked = !r.reset_ends_untracked; }},
    {"reset flushes before it adds", [](Rules& r) { r.reset_flushes_first = true; }},
    {"reset flushes while deferred", [](Rules& r) { r.reset_flushes_deferred = true; }},
    {"reset leaves the queue", [](Rules& r) { r.reset_leaves_queue = true; }},
    {"total of zero (INI-4)", [](Rules& r) { r.zero_total_is_unset = !r.zero_total_is_unset; }},
    {"queue at the manager's end (ERR-3)",
     [](Rules& r) { r.end_abandons_queue = !r.end_abandons_queue; }},
    {"initialize asks always", [](Rules& r) { r.initialize_asks_always = true; }},
};

}  // namespace emm::model
