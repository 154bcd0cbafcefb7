#pragma once

#include <exception>
#include <string>

#include "base/result.hpp"
#include "plugin/abi.hpp"

namespace emm::libemm {

/// Runs `body`, which returns a Status, for a caller in C. No exception escapes; `words` gets the
/// description of a failure.
template <class Body>
emm_status answer(std::string& words, Body body) noexcept {
  try {
    const Status done = body();
    if (done) return EMM_SUCCESS;
    words = describe(done.error());
    return plugin::status_of(done.error());
  } catch (const std::exception& error) {
    words = error.what();
  }
  return EMM_UNKNOWN_ERROR;
}

}  // namespace emm::libemm
