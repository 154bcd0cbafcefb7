#pragma once

#include <string_view>

#include "allocators/rmm_pool.hpp"
#include "base/options.hpp"

namespace emm {

/// Reads initial_pool_size and maximum_pool_size. Error usage if RMM would throw logic_error.
inline Result<allocators::RmmPoolSettings> read_rmm_pool(Options& options, std::string_view owner) {
  allocators::RmmPoolSettings settings;
  const auto initial = options.bytes("initial_pool_size", 0);
  const auto maximum = options.bytes("maximum_pool_size", 0);
  if (options.has("initial_pool_size")) settings.initial_size = initial;
  if (options.has("maximum_pool_size")) settings.maximum_size = maximum;
  for (const auto& [name, size] :
       {std::pair("initial_pool_size", initial), std::pair("maximum_pool_size", maximum)}) {
    if (size % allocators::kRmmAlignment != 0)
      return fail(Errc::usage, "{}: {} is {}, expected a multiple of {}", owner, name, size,
                  allocators::kRmmAlignment);
  }
  if (settings.maximum_size && settings.initial_size.value_or(0) > *settings.maximum_size)
    return fail(Errc::usage, "{}: initial_pool_size is {}, expected maximum_pool_size or less",
                owner, initial);
  return settings;
}

}  // namespace emm
