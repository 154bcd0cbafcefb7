#include "driver/driver.hpp"

#include "driver/call.hpp"

namespace emm {

// The answer of a device that lacks a call.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define EMM_CALL(result, name, cuda, shape, fault, cost, parameters, ...) \
  result Driver::name parameters { return driver_error(Call::name, 801); }
#define EMM_DEFAULT(value)
#include "driver/calls.def"
#pragma GCC diagnostic pop

}  // namespace emm
