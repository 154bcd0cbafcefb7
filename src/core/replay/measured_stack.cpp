#include "replay/measured_stack.hpp"

#include "emm/context.hpp"

namespace emm {

Result<std::unique_ptr<Context>> MeasuredStack::make_context(std::uint32_t device,
                                                             ManagerObserver* observer,
                                                             stream_order::Checker* order) {
  return of_.make_context(device, observer, order);
}

}  // namespace emm
