#pragma once

namespace emm {

/// The version of NBEP-7's interface. Every manager must return it (SEL-4).
inline constexpr int kInterfaceVersion = 1;

}  // namespace emm
