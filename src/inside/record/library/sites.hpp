#pragma once

#include "record/library/recorder.hpp"

/// Records the stacks of recorded calls. Each stack is written once, as a list of frame numbers,
/// and each frame once, as text. Definitions are records of the file.
namespace emm::record {

inline constexpr std::size_t kDepthMost = 64;  // frames of a stack: what --stack-depth allows

/// Reads EMM_RECORD_STACKS ("python", "native" or both) and EMM_RECORD_DEPTH.
void begin_sites() noexcept;
/// Returns the number of the calling thread's stack, or 0 when it is not known. `caller` is the
/// address that the driver's function returns to. Passes definitions of new stacks and frames to
/// `put`.
std::uint32_t current_site(const void* caller, void (*put)(const CallRecord&)) noexcept;
/// Called when definitions have been overwritten. Every stack and frame is defined again when it
/// next occurs.
void forget_sites() noexcept;
/// Forgets all definitions, because a forked child has a file of its own.
void reset_sites_in_child() noexcept;

}  // namespace emm::record
