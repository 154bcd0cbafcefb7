#include <cstdio>

#include "emm/context.hpp"
#include "emm/selection.hpp"

int main() {
  auto platform = emm::open_platform("sim:capacity=64MiB", {});
  if (!platform) return 1;
  auto device = (*platform)->open(0);
  auto manager = emm::find_manager("pool");
  if (!device || !manager) return 1;
  auto context = emm::Context::create(*device, (*platform)->clock(), *manager);
  if (!context) return 1;
  auto memory = (*context)->memalloc(4096);
  if (!memory) return 1;
  std::printf("%llu bytes\n", static_cast<unsigned long long>(memory->size()));
}
