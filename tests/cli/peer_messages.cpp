// Prints what is said of a second process that cannot be started, and of one that ends instead of
// answering.
#include <cstdio>

#include "replay/peer.hpp"

int main() {
  const auto missing = emm::replay::start_peer_process({"/nowhere/emmctl"});
  std::printf("%s\n", missing ? "started" : emm::describe(missing.error()).c_str());
  auto gone = emm::replay::start_peer_process({"/bin/false"});
  if (!gone) return 1;
  const auto opening = (*gone)->open({});
  std::printf("%s\n", opening ? "opened" : emm::describe(opening.error()).c_str());
}
