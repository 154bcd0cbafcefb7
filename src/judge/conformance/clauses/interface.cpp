#include <array>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// SEL, BASE and INI of a manager: what it is before any memory, and around it.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr Clause kInterfaceClauses[] = {
    {.id = "SEL-4",
     .rule = "interface_version is 1.",
     .source = "NBEP 7; drv:697",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.expect_equal("interface_version()", b.uninitialized().interface_version(), 1);
         }},

    {.id = "SEL-5",
     .rule =
         "Making a manager touches no device; it can be made without one, to be asked its version.",
     .source = "NBEP 7, Import order",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "INI-3 INI-4 INI-5",
     .check =
         [](Bench& b) {
           auto probe = b.subject().factory.make({});
           if (!b.expect_ok("a manager without a device", probe)) return;
           b.expect_equal("its interface_version()", (*probe)->interface_version(),
                          kInterfaceVersion);
           b.uninitialized();
           b.expect_equal("driver calls while it was made", b.watch().total(), 0u);
         }},

    {.id = "BASE-4",
     .rule = "Managed memory is given, or answered with not_supported.",
     .source = "drv:819; numba#6328",
     .level = Level::quirk,
     .scope = Scope::all,
     .may_fail_with = "DEV-5 MAN-2 errors/passed_on errors/out_of_memory",
     .check =
         [](Bench& b) {
           const auto memory = b.try_managed(4_KiB);
           b.expect(memory || memory.error().code == Errc::not_supported, "memallocmanaged(4096)",
                    memory ? "" : answer_of(memory.error()), "memory, or not_supported");
         }},

    {.id = "BASE-7",
     .rule = "Memory ends by its pointer's end, and by nothing else that is done around it.",
     .source = "NBEP 7, MemoryPointer.finalizer; DOC, Memory Pointers",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "accounts/out_of_memory_deferred accounts/reserved suite/beyond_4GiB",
     .check =
         [](Bench& b) {
           const auto kept = b.any(1_MiB);
           b.fill(kept, 0x5a);
           for (int i = 0; i < 40; ++i) b.any(64_KiB).drop();
           {
             const auto deferred = b.defer();
             b.any(64_KiB).drop();
           }
           const auto flushed = b.manager().flush();
           const auto info = b.manager().get_memory_info();
           b.expect(kept.alive() && b.holds(kept, 0x5a), "40 blocks freed, a deferral, a flush",
                    "live memory is lost", "it is as it was");
         }},

    {.id = "BASE-10",
     .rule = "An address that the driver gives while it is alive is an error, not a second block.",
     .source = "utils.py:358; drv:895",
     .level = Level::quirk,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           const auto first = b.managed(4_KiB);
           b.stub().repeats_last_address = true;
           const auto second = b.try_managed(4_KiB);
           b.stub().repeats_last_address = false;
           b.expect_error("managed memory at an address that is alive", second, Errc::driver_error,
                          "key already in dictionary");
         }},

    {.id = "INI-2",
     .rule = "initialize() may be called again at any time, and changes nothing.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto block = b.any(64_KiB);
           b.fill(block, 0x11);
           b.watch().forget();
           // So often that a leak shows from the middle to the end.
           constexpr int kTimes = 300;
           std::array<std::uint64_t, 3> held{};  // at the start, in the middle and at the end
           for (int i = 0; i < kTimes && !b.decided(); ++i) {
             if (i % (kTimes / 2) == 1) held[static_cast<std::size_t>(i / (kTimes / 2))] = b.held();
             b.expect_ok(text::format("initialize(), for the time {}", i + 2),
                         b.manager().initialize());
           }
           held[2] = b.held();
           b.expect(held[1] <= held[0] || held[2] <= held[1],
                    text::format("initialize(), {} times", kTimes + 1),
                    text::format("{} bytes of the device are held, and {} in the middle", held[2],
                                 held[1]),
                    text::format("{}, as before", held[0]));
           b.expect_equal("frees by it", b.ends(), 0u);
           b.expect(block.alive() && b.holds(block, 0x11), "initialize(), again",
                    "live memory is lost", "it is as it was");
         }},

    {.id = "INI-3",
     .rule = "The first initialize() asks for the device's total, once.",
     .source = "drv:885-889",
     .level = Level::should,
     .scope = Scope::deflt,
     .may_fail_with = "INI-4 INI-5",
     .check =
         [](Bench& b) {
           for (int i = 0; i < 3; ++i) b.expect_ok("initialize()", b.uninitialized().initialize());
           b.expect_calls("three times initialize()", {Call::mem_get_info});
         }},

    {.id = "INI-4",
     .rule = "A total of 0 counts as an answer, and is not asked for again (numba: it is).",
     .source = "drv:888",
     .level = Level::quirk,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           b.stub().total = 0;
           for (int i = 0; i < 3; ++i) b.expect_ok("initialize()", b.uninitialized().initialize());
           b.expect_equal("questions for the total over three initialize()",
                          b.count(Call::mem_get_info), b.is_numba() ? 3u : 1u);
         }},

    {.id = "INI-5",
     .rule = "initialize() gives the queue its capacity, so that a sized free waits (numba: only "
             "the default manager's does).",
     .source = "NBEP 7 against drv:648, 705-858",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "ERR-3 DEV-3 DEV-9 HST-5 HST-9 MAN-2 MAN-3 PD-2 PD-3 PD-4 PD-9 INI-3 INI-4",
     .check =
         [](Bench& b) {
           b.stub().total = 1000;
           b.mapped(64).drop();
           b.expect_equal("frees after 64 of 1000 bytes were dropped", b.ends(),
                          b.queue_waits() ? 0u : 1u);
           b.expect_equal("questions for the total", b.count(Call::mem_get_info),
                          b.queue_waits() ? 1u : 0u);
         }},

    {.id = "INI-6",
     .rule = "A manager that is initialized and never asked for memory leaves nothing behind.",
     .source = "DOC",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "accounts/every_call_failed",
     .check =
         [](Bench& b) {
           for (int i = 0; i < 3; ++i) b.expect_ok("initialize()", b.uninitialized().initialize());
           b.end_manager();
           b.expect(b.watch().ledger().balances(),
                    "three times initialize(), then the manager's end",
                    b.watch().ledger().verdict(), "balanced");
         }},
};

}  // namespace

extern constinit const ClauseGroup interface_clauses{"The interface, and initialize",
                                                     kInterfaceClauses};

}  // namespace emm
