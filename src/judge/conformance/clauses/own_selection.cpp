#include <cstdlib>

#include "conformance/spy.hpp"

// SEL: which manager contexts get, and EMM_MEMORY_MANAGER.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr const char* kVariable = "EMM_MEMORY_MANAGER";

/// Unsets the setting and its environment variable, and restores them at the end. One at a time in
/// a process.
class CleanSetting {
 public:
  explicit CleanSetting(Bench& bench) : bench_(bench), before_(get_memory_manager()) {
    if (const char* value = std::getenv(kVariable)) variable_ = value;
    unsetenv(kVariable);
    own_of(bench).unset();
    unset_memory_manager();
  }
  ~CleanSetting() {
    variable_ ? setenv(kVariable, variable_->c_str(), 1) : unsetenv(kVariable);
    own_of(bench_).unset();
    unset_memory_manager();
  }
  static void variable(const char* value) { setenv(kVariable, value, 1); }

 private:
  Bench& bench_;
  Result<ManagerFactory> before_;
  std::optional<std::string> variable_;
};

std::string chosen(Bench& b) {
  auto factory = own_of(b).get();
  return factory ? factory->name : "error: " + describe(factory.error());
}

constexpr Clause kOwnSelectionClauses[] = {
    {.id = "SEL-1",
     .rule = "The manager is resolved when it is first needed, not before.",
     .source = "drv:915-934, 1073; NBEP 7, New components",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           CleanSetting::variable("pool");
           own_of(b).unset();
           CleanSetting::variable("host-only");
           b.expect_equal("the manager of a variable that changed before the first use", chosen(b),
                          "host-only");
         }},

    {.id = "SEL-2",
     .rule = "Where nobody chose, it is the default manager.",
     .source = "drv:924",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           b.expect_equal("the manager where nothing is set", chosen(b), "default");
         }},

    {.id = "SEL-3",
     .rule = "A manager of another interface version is refused, in Numba's words, and the setting "
             "stays.",
     .source = "drv:937-957; T:test_bad_plugin_version",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog good, bad;
           bad.version = 2;
           b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(good, "good")));
           b.expect_error("set_memory_manager of version 2", own_of(b).set(spy_factory(bad, "bad")),
                          Errc::version_mismatch,
                          "EMM Plugin interface has version 2 - version 1 required");
           b.expect_equal("the manager after that", chosen(b), "good");
         }},

    {.id = "SEL-6",
     .rule = "Setting a manager changes contexts that are made later, and no other.",
     .source = "DOC, Resetting the memory manager; drv:1074",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog before, after;
           b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(before, "before")));
           ContextFixture first(b, *own_of(b).get());
           b.expect_ok("set_memory_manager, again", own_of(b).set(spy_factory(after, "after")));
           ContextFixture second(b, *own_of(b).get());
           if (!first || !second) return;
           const auto one = first->memalloc(1);
           const auto other = second->memalloc(2);
           b.expect_equal("asked of the first manager", before.count("memalloc"), 1u);
           b.expect_equal("asked of the second", after.count("memalloc"), 1u);
         }},

    {.id = "SEL-7",
     .rule = "A manager may be set any number of times; the last counts.",
     .source = "DOC; drv:957",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog log;
           for (const auto* name : {"one", "two", "three"}) {
             b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(log, name)));
           }
           b.expect_equal("the manager after three were set", chosen(b), "three");
         }},

    {.id = "SEL-10",
     .rule = "The environment names the manager, with its options.",
     .source = "drv:928-930, cfg:586; NBEP 7, DOC",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           CleanSetting::variable("pool:backing=cumem");
           b.expect_equal("the manager of EMM_MEMORY_MANAGER=pool:backing=cumem", chosen(b),
                          "pool:backing=cumem");
         }},

    {.id = "SEL-11",
     .rule = "Any failure of the variable is one error that names it; nothing is set, and the next "
             "use tries again.",
     .source = "drv:931-934",
     .level = Level::quirk,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           for (const auto* value : {"nonesuch", "pool:max=many", "default:unknown=1"}) {
             CleanSetting::variable(value);
             const auto factory = own_of(b).get();
             b.expect(!factory, text::format("EMM_MEMORY_MANAGER={}", value), "success",
                      "an error");
             if (!factory) {
               const auto said = describe(factory.error());
               b.expect(
                   said.starts_with(text::format("Failed to use memory manager from {}", value)),
                   text::format("EMM_MEMORY_MANAGER={}", value), said,
                   "Failed to use memory manager from ...");
             }
           }
           CleanSetting::variable("pool");
           b.expect_equal("the manager once the variable is right", chosen(b), "pool");
         }},

    {.id = "SEL-12",
     .rule = "A manager that was set wins over the variable.",
     .source = "NBEP 7 against drv:918-957",
     .level = Level::quirk,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog log;
           CleanSetting::variable("pool");
           b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(log, "set")));
           b.expect_equal("the manager, with a variable and one set", chosen(b), "set");
         }},

    {.id = "SEL-13",
     .rule = "A variable that changes after its first use is not heard.",
     .source = "cfg:586",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           CleanSetting::variable("pool");
           b.expect_equal("the manager", chosen(b), "pool");
           CleanSetting::variable("host-only");
           b.expect_equal("the manager after the variable changed", chosen(b), "pool");
         }},

    {.id = "SEL-15",
     .rule = "The setting can be read and unset; unset, the variable counts again.",
     .source = "drv; numba#5762",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog log;
           b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(log, "set")));
           own_of(b).unset();
           CleanSetting::variable("host-only");
           b.expect_equal("the manager after it was unset", chosen(b), "host-only");
         }},

    {.id = "RST-12",
     .rule = "After close a new context has a new manager, of what is set then.",
     .source = "DOC",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           const CleanSetting setting(b);
           SpyLog before, after;
           b.expect_ok("set_memory_manager", own_of(b).set(spy_factory(before, "before")));
           {
             ContextFixture first(b, *own_of(b).get());
             if (!first) return;
             b.expect_ok("close()", own_of(b).close(*first));
           }
           b.expect_ok("set_memory_manager, again", own_of(b).set(spy_factory(after, "after")));
           ContextFixture second(b, *own_of(b).get());
           b.expect_equal("managers of the second kind made for a context",
                          after.made - after.probes, 1u);
         }},
};

}  // namespace

extern constinit const ClauseGroup own_selection_clauses{"emmctl's selection of a manager",
                                                         kOwnSelectionClauses};

}  // namespace emm
