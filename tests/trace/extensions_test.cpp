#include "trace/extensions.hpp"

#include <gtest/gtest.h>

namespace emm::trace {
namespace {

const std::string kMembers = R"("x-a":{"b":[1,2],"x-c":3},"x-c":"say \"x-d\":,","x-d":7)";

TEST(Extensions, AreFoundByTheNameOfAMemberAndNotInsideOfOthers) {
  EXPECT_EQ(extension(kMembers, "x-a"), R"({"b":[1,2],"x-c":3})");
  EXPECT_EQ(extension(kMembers, "x-c"), R"("say \"x-d\":,")");
  EXPECT_EQ(extension(kMembers, "x-d"), "7");
  EXPECT_EQ(extension(kMembers, "x-b"), "");
  EXPECT_EQ(extension("", "x-a"), "");
}

TEST(Extensions, AreSetOnce) {
  auto members = kMembers;
  set_extension(members, "x-a", "1");
  EXPECT_EQ(members, R"("x-c":"say \"x-d\":,","x-d":7,"x-a":1)");
  set_extension(members, "x-d", "");
  EXPECT_EQ(members, R"("x-c":"say \"x-d\":,","x-a":1)");
  set_extension(members, "x-c", "");
  set_extension(members, "x-a", "");
  EXPECT_EQ(members, "");
  set_extension(members, "x-new", "null");
  EXPECT_EQ(members, R"("x-new":null)");
}

}  // namespace
}  // namespace emm::trace
