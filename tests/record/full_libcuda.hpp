#pragma once

#include <cstdint>

#include "record/library/cupti.hpp"

/// What the stand-in for libcupti asks of the libcuda that calls back.
extern "C" {
void emm_fake_cupti_set(emm::record::cupti::Callback to);
/// The name of a function by its number; null where no function has it.
const char* emm_fake_cupti_name(std::uint32_t id);
int emm_fake_cupti_enable(std::uint32_t id, bool on);  ///< 0, or 1 where there is none.
}
