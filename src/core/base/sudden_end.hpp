#pragma once

namespace emm {

/// Calls `act` before the process ends without destructors: at a signal, or where host memory ends.
/// It must be safe in a signal handler. A second call with the same `act` changes nothing. There is
/// room for eight.
void before_sudden_end(void (*act)() noexcept) noexcept;

/// Makes those calls. Safe in a signal handler.
void act_before_sudden_end() noexcept;

/// Makes those calls and ends the process. Safe in a signal handler.
[[noreturn]] void end_suddenly(int exit_code) noexcept;

}  // namespace emm
