#pragma once

#include "record/library/recorder.hpp"

/// What lives while nothing is recorded. A recording that begins in the middle of a program begins
/// with it, so that its sums are right and its frees have owners.
namespace emm::record {

/// Whether this process keeps account: `emmctl record --on-signal`.
void begin_live() noexcept;
/// Called before a call that frees something. Forgets what the call is to end, since the driver may
/// hand out the address again before the call returns.
void live_before(const Record& record) noexcept;
/// Called after each call, with its result. Takes back what live_before() did where the call
/// failed.
void live_after(const Record& record) noexcept;
/// Writes a record of all that lives, by `put`. Other threads wait.
void live_dump(void (*put)(Record record)) noexcept;
/// The child of a fork has no memory on a device.
void live_in_child() noexcept;

}  // namespace emm::record
