#include <gtest/gtest.h>

#include <string_view>

#include "contract/peer.hpp"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == emm::kPeerFlag) return emm::run_peer(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
