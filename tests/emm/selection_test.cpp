#include "emm/selection.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.hpp"
#include "emm/context.hpp"
#include "scripted_driver.hpp"
#include "version_manager.hpp"

namespace emm {
namespace {

ManagerFactory factory_of(std::string name, int version) {
  return {.name = std::move(name), .make = [version](const ManagerContext& context) {
            EXPECT_EQ(context.driver, nullptr) << "a probe has no device (SEL-5)";
            return Result<std::unique_ptr<MemoryManager>>(
                std::make_unique<test::VersionManager>(version));
          }};
}

class Selection : public ::testing::Test {
 protected:
  Selection() { clear(); }
  ~Selection() override { clear(); }
  static void clear() {
    unsetenv("EMM_MEMORY_MANAGER");
    unset_memory_manager();
  }
};

TEST_F(Selection, IsTheDefaultManagerWhereNobodySaysElse) {  // SEL-2
  EXPECT_EQ(get_memory_manager()->name, "default");
  setenv("EMM_MEMORY_MANAGER", "", 1);
  unset_memory_manager();
  EXPECT_EQ(get_memory_manager()->name, "default");
}

TEST_F(Selection, TheLastManagerSetWins) {  // SEL-7, SEL-15
  EXPECT_TRUE(set_memory_manager(factory_of("a", 1)));
  EXPECT_TRUE(set_memory_manager(factory_of("b", 1)));

  EXPECT_EQ(get_memory_manager()->name, "b");
  unset_memory_manager();
  EXPECT_EQ(get_memory_manager()->name, "default");
}

TEST_F(Selection, RefusesAnotherVersionAndKeepsTheCurrentOne) {  // SEL-3, SEL-4
  ASSERT_TRUE(set_memory_manager(factory_of("a", 1)));

  const auto set = set_memory_manager(factory_of("b", 2));

  EXPECT_EQ(set.error().code, Errc::version_mismatch);
  EXPECT_EQ(describe(set.error()), "EMM Plugin interface has version 2 - version 1 required");
  EXPECT_EQ(get_memory_manager()->name, "a");
}

TEST_F(Selection, RefusesAManagerThatCannotBeMade) {  // SEL-16
  const ManagerFactory none{
      .name = "none", .make = [](const ManagerContext&) {
        return Result<std::unique_ptr<MemoryManager>>(Error{.code = Errc::not_supported});
      }};
  EXPECT_EQ(set_memory_manager(none).error().code, Errc::not_supported);
}

TEST_F(Selection, TheEnvironmentNamesAManager) {  // SEL-10, SEL-13
  setenv("EMM_MEMORY_MANAGER", "pool:max=64MiB", 1);
  EXPECT_EQ(get_memory_manager()->name, "pool:max=64MiB");

  setenv("EMM_MEMORY_MANAGER", "cudart", 1);
  EXPECT_EQ(get_memory_manager()->name, "pool:max=64MiB") << "what worked is remembered";
}

TEST_F(Selection, IsMadeWhenItIsFirstAskedFor) {  // SEL-1
  setenv("EMM_MEMORY_MANAGER", "pool", 1);
  unset_memory_manager();
  setenv("EMM_MEMORY_MANAGER", "host-only", 1);

  EXPECT_EQ(get_memory_manager()->name, "host-only");
}

TEST_F(Selection, AManagerThatWasSetWinsOverTheEnvironment) {  // SEL-12
  setenv("EMM_MEMORY_MANAGER", "no such manager", 1);
  ASSERT_TRUE(set_memory_manager(factory_of("a", 1)));

  EXPECT_EQ(get_memory_manager()->name, "a");
}

TEST_F(Selection, AFailureOfTheEnvironmentSaysWhyAndIsTriedAgain) {  // SEL-11
  setenv("EMM_MEMORY_MANAGER", "pol", 1);
  EXPECT_EQ(describe(get_memory_manager().error()),
            "Failed to use memory manager from pol: " + describe(find_manager("pol").error()));

  setenv("EMM_MEMORY_MANAGER", "pool", 1);
  EXPECT_EQ(get_memory_manager()->name, "pool");
}

TEST_F(Selection, ChangesContextsMadeLaterOnly) {  // SEL-6, RST-12
  ManualClock clock;
  OpenedDevice device{.driver = std::make_unique<test::ScriptedDriver>(), .runtime = nullptr};
  auto first = *Context::create(device, clock, *get_memory_manager());
  ASSERT_TRUE(set_memory_manager(*find_manager("host-only")));
  auto second = *Context::create(device, clock, *get_memory_manager());

  EXPECT_TRUE(first->memalloc(64));
  EXPECT_EQ(second->memalloc(64).error().code, Errc::not_supported);
}

}  // namespace
}  // namespace emm
