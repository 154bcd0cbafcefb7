#include "cli/all_wings.hpp"

#include <cstdlib>

#include "cli/command.hpp"
#include "plugin/child.hpp"

namespace emm::cli {

void continue_with_all_wings() {
  const char* const rest = std::getenv("EMM_REST");
  if (absent_commands().empty() || rest == nullptr || *rest == '\0') return;
  plugin::restart_program(rest);
}

}  // namespace emm::cli
