#include "conformance/own.hpp"

namespace emm::conformance {

Result<std::unique_ptr<Context>> Own::make_context(OpenedDevice& device, Clock& clock,
                                                   const ManagerFactory& factory,
                                                   Profile profile) const {
  return Context::create(device, clock, factory, nullptr, profile);
}

const Own& emmctl_own() noexcept {
  static const Own own;
  return own;
}

}  // namespace emm::conformance
