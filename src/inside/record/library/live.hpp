#pragma once

#include "record/library/recorder.hpp"

/// Keeps account of live memory while nothing is recorded. A recording that begins in the middle of
/// a program starts with a dump of it, so that its totals are right and every free has its
/// allocation.
namespace emm::record {

/// Begins the account when `emmctl record --on-signal` asked this process to keep one.
void begin_live() noexcept;
/// Called before a call that frees something. The memory is forgotten now, because the driver may
/// hand out its address again before the call returns.
void live_before(const CallRecord& record) noexcept;
/// Called after each call with its result. Undoes live_before() when the call failed.
void live_after(const CallRecord& record) noexcept;
/// Passes a record of everything that lives to `put`. Other threads wait meanwhile.
void live_dump(void (*put)(CallRecord record)) noexcept;
/// A forked child has no device memory.
void reset_live_in_child() noexcept;

}  // namespace emm::record
