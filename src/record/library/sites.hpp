#pragma once

#include "record/library/recorder.hpp"

/// Call stacks of recorded calls: each stack once, as numbers of frames; each frame once, as text.
/// Their definitions are records of the file.
namespace emm::record {

inline constexpr std::size_t kDepthMost = 64;

/// Reads EMM_RECORD_STACKS ("python", "native" or both) and EMM_RECORD_DEPTH.
void begin_sites() noexcept;
/// The number of the calling thread's stack; 0 where none is known. `caller` is the address to
/// which the driver's function returns. Puts the definitions of what is new by `put`.
std::uint32_t current_site(const void* caller, void (*put)(const Record&)) noexcept;
/// Definitions have been overwritten: what is met from here on is defined again.
void define_sites_again() noexcept;
/// The child of a fork has a file of its own, in which nothing is defined.
void sites_in_child() noexcept;

}  // namespace emm::record
