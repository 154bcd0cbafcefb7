#include "conformance/spy.hpp"
#include "emm/memory_manager.hpp"

// CTX, and the parts of other sections that a context is responsible for. Judged on emmctl's own.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr std::byte kImage[] = {std::byte{1}, std::byte{2}};

void drop_events(Context& context, int count) {
  for (int i = 0; i < count; ++i) {
    if (const auto event = context.create_event()) context.drop_event(*event);
  }
}

bool is_memory_call(Call call) {
  switch (call) {
    case Call::mem_alloc:
    case Call::mem_alloc_managed:
    case Call::mem_host_alloc:
    case Call::mem_host_register:
      return true;
    default:
      return is_end(call);
  }
}

constexpr Clause kOwnContextClauses[] = {
    {.id = "CTX-1",
     .rule = "A context passes memalloc to its manager, and its answer back, unchanged.",
     .source = "drv:1176",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       const auto memory = context->memalloc(10, {7});
       b.expect_equal("asked for memalloc(10) on stream 7", log.text(),
                      "initialize(), memalloc(10, 7)");
       b.expect(memory && memory->device_pointer().value == 0x1000 && memory->size() == 10,
                "memalloc(10)", "another answer", "the manager's");
     })},

    {.id = "CTX-2",
     .rule = "A context passes all four arguments of memhostalloc.",
     .source = "drv:1182",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       const auto memory =
           context->memhostalloc(10, {.mapped = false, .portable = true, .wc = true});
       b.expect_equal("asked for memhostalloc(10, portable, wc)", log.asked.back(),
                      "memhostalloc(10, false, true, true)");
     })},

    {.id = "CTX-3",
     .rule = "mempin mapped is refused where the device cannot map, before the manager hears; "
             "memhostalloc mapped is not.",
     .source = "drv:1185; NBEP 7",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           SpyLog log;
           b.stub().maps_host_memory = false;
           ContextFixture context(b, log);
           if (!context) return;
           b.expect_error("mempin, mapped", context->mempin(b.buffer(), {.mapped = true}),
                          Errc::not_supported, "cannot map host memory");
           b.expect_equal("asked of the manager by it", log.count("mempin"), 0u);
           b.expect_ok("mempin, unmapped", context->mempin(b.buffer(), {}));
           b.expect_ok("memhostalloc, mapped", context->memhostalloc(64, {.mapped = true}));
         }},

    {.id = "CTX-4",
     .rule = "A context passes memallocmanaged, attached as asked.",
     .source = "drv:1179",
     .level = Level::should,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       const auto memory = context->memallocmanaged(10, AttachFlags::host);
       b.expect_equal("asked for memallocmanaged(10, host)", log.asked.back(),
                      "memallocmanaged(10, 2)");
     })},

    {.id = "CTX-5",
     .rule = "A context gives what its manager answers to get_memory_info, errors too.",
     .source = "drv:1095",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       const auto info = context->get_memory_info();
       b.expect(info && info->free == 11 && info->total == 22, "get_memory_info()",
                "another answer", "the manager's");
       log.fails = true;
       log.fails_with = Errc::not_supported;
       b.expect_error("get_memory_info(), declined", context->get_memory_info(),
                      Errc::not_supported);
     })},

    {.id = "CTX-7",
     .rule = "Each initialize of a context is its manager's.",
     .source = "drv:1155",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "CTX-9",
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       for (int i = 0; i < 3; ++i) b.expect_ok("initialize()", context->initialize());
       b.expect_equal("asked by three of them", log.count("initialize"), 3u);
     })},

    {.id = "CTX-8",
     .rule = "push makes the context current, then initializes; where that fails it is current no "
             "longer (numba: it stays).",
     .source = "drv:1161",
     .level = Level::should,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       std::size_t pushed = 0;
       log.during = [&](std::string_view) { pushed = b.count(Call::ctx_push_current); };
       b.expect_ok("push()", own_of(b).push(*context));
       b.expect_equal("cuCtxPushCurrent before initialize()", pushed, 1u);
       b.expect_ok("pop()", context->pop());
       b.watch().forget();
       log.fails = true;
       b.expect(!own_of(b).push(*context), "push(), whose initialize fails", "success",
                "its error");
       b.expect_equal("cuCtxPopCurrent by it", b.count(Call::ctx_pop_current),
                      b.is_numba() ? 0u : 1u);
     })},

    {.id = "CTX-9",
     .rule = "Every push initializes, however often.",
     .source = "dev:112-128, 147-168",
     .level = Level::should,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       for (int i = 0; i < 20; ++i) {
         b.expect_ok("push()", own_of(b).push(*context));
         b.expect_ok("pop()", context->pop());
       }
       b.expect_equal("initialize() by twenty pushes", log.count("initialize"), 20u);
     })},

    {.id = "CTX-10",
     .rule = "A context that is not the current one cannot be popped.",
     .source = "drv:1168",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           SpyLog log;
           ContextFixture lower(b, log);
           ContextFixture upper(b, spy_factory(log), 1);
           if (!lower || !upper) return;
           b.expect_ok("push()", own_of(b).push(*lower));
           b.expect_ok("push() of another", own_of(b).push(*upper));
           b.expect_error("pop() of the first", lower->pop(), Errc::invalid_context);
           b.expect_ok("pop() of the second", lower->pop());
         }},

    {.id = "CTX-12",
     .rule = "A context's queue and its manager's are two.",
     .source = "drv:1068-1077; NBEP 7, Context changes",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           ContextFixture context(b, b.subject().factory);
           if (!context) return;
           drop_events(*context, 3);
           { const auto memory = context->memhostalloc(64, {.mapped = true}); }
           b.expect_equal("pending in the context's queue", context->deallocations().size(), 3u);
           b.expect_ok("the manager's flush()", context->memory_manager().flush());
           b.expect_equal("events destroyed by it", b.count(Call::event_destroy), 0u);
           b.expect_equal("page-locked memory freed by it", b.count(Call::mem_free_host), 1u);
         }},

    {.id = "CTX-13",
     .rule =
         "The context's queue counts, and has no capacity: ten events wait, the eleventh ends all.",
     .source = "drv:1072",
     .level = Level::should,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       drop_events(*context, 10);
       b.expect_equal("events destroyed after ten were dropped", b.count(Call::event_destroy), 0u);
       drop_events(*context, 1);
       b.expect_equal("... after eleven", b.count(Call::event_destroy), 11u);
     })},

    {.id = "SEL-9",
     .rule = "Each context has one manager of its own.",
     .source = "drv:1074; DOC",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           SpyLog log;
           ContextFixture first(b, log);
           ContextFixture second(b, spy_factory(log));
           if (!first || !second) return;
           b.expect_equal("managers made for two contexts", log.made, 2u);
           b.expect(&first->memory_manager() != &second->memory_manager(), "two contexts",
                    "one manager", "two");
         }},

    {.id = "BASE-8",
     .rule = "A context asks the device for no memory past its manager.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "RST-1",
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       const auto memory = context->memalloc(64);
       const auto host = context->memhostalloc(64, {});
       const auto managed = context->memallocmanaged(64, AttachFlags::global);
       own_of(b).reset(*context);
       std::size_t calls = 0;
       for (const auto& event : b.watch().events()) calls += is_memory_call(event.call) ? 1u : 0u;
       b.expect_equal("memory calls with a manager that makes none", calls, 0u);
     })},

    {.id = "INI-1",
     .rule = "A context initializes its manager before the first request.",
     .source = "NBEP 7; DOC; T:test_emm_plugins",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "CTX-7 CTX-8 CTX-9",
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       const auto memory = context->memallocmanaged(64, AttachFlags::global);
       b.expect(!log.asked.empty() && log.asked.front() == "initialize()", "the first request",
                log.text(), "initialize() first");
     })},

    {.id = "DEV-6",
     .rule = "Memory that is out does not flush the context's queue.",
     .source = "drv:728-745",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           ContextFixture context(b, b.subject().factory);
           if (!context) return;
           drop_events(*context, 1);
           b.watch().fail(Call::mem_alloc, {2});
           const auto memory = context->memalloc(64);
           b.expect_equal("events destroyed by memory that is out", b.count(Call::event_destroy),
                          0u);
         }},

    {.id = "DFR-1",
     .rule = "defer_cleanup of a context defers the manager's cleanup, then its own queue's, and "
             "ends in reverse.",
     .source = "api:571, drv:1286",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       std::string order;
       log.during = [&](std::string_view what) {
         order += text::format("{} with the queue {}; ", what,
                               context->deallocations().is_disabled() ? "held" : "free");
       };
       { const auto deferred = own_of(b).defer_cleanup(*context); }
       b.expect_equal(
           "a deferral", order,
           "defer_cleanup() with the queue free; end_defer_cleanup() with the queue free; ");
     })},

    {.id = "DFR-6",
     .rule = "A deferral of one context is no other's.",
     .source = "api:571",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           SpyLog first_log, second_log;
           ContextFixture first(b, first_log);
           ContextFixture second(b, second_log);
           if (!first || !second) return;
           const auto deferred = own_of(b).defer_cleanup(*first);
           b.expect_equal("deferrals of the other's manager", second_log.count("defer_cleanup"),
                          0u);
           b.expect(!second->deallocations().is_disabled(), "a deferral of one context",
                    "the other's queue is held", "free");
         }},

    {.id = "RST-1",
     .rule = "reset of a context resets the manager, then unloads modules, then ends what its own "
             "queue holds.",
     .source = "drv:1079-1093",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       b.expect_ok("load_module", context->load_module(kImage));
       drop_events(*context, 1);
       std::size_t ended = 99;
       log.during = [&](std::string_view what) {
         if (what == "reset()") ended = b.ends();
       };
       own_of(b).reset(*context);
       log.during = nullptr;
       b.expect_equal("ends made when the manager is reset", ended, 0u);
       b.expect_equal("events destroyed", b.count(Call::event_destroy), 1u);
       b.expect_equal("modules unloaded", b.count(Call::library_unload), 1u);
     })},

    {.id = "RST-10",
     .rule = "A context never resets by itself.",
     .source = "NBEP 7",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       b.expect_ok("push()", own_of(b).push(*context));
       log.fails = true;
       log.fails_with = Errc::out_of_memory;
       const auto refused = context->memalloc(64);
       log.fails = false;
       const auto memory = context->memalloc(64);
       drop_events(*context, 20);
       b.expect_ok("pop()", context->pop());
       b.expect_equal("resets by requests, memory that is out, events", log.count("reset"), 0u);
     })},

    {.id = "RST-11",
     .rule = "close resets, then resets the device's primary context.",
     .source = "api:509, dev:189-205",
     .level = Level::should,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       std::size_t before = 99;
       log.during = [&](std::string_view what) {
         if (what == "reset()") before = b.count(Call::primary_ctx_reset);
       };
       b.expect_ok("close()", own_of(b).close(*context));
       b.expect_equal("resets of the manager by close()", log.count("reset"), 1u);
       b.expect_equal("cuDevicePrimaryCtxReset before that", before, 0u);
       b.expect_equal("cuDevicePrimaryCtxReset by close()", b.count(Call::primary_ctx_reset), 1u);
     })},

    {.id = "OBJ-1",
     .rule = "Events, streams and modules are the context's: its manager hears nothing of them.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog& log, ContextFixture& context) {
       drop_events(*context, 12);
       if (const auto stream = context->create_stream()) context->drop_stream(*stream);
       if (const auto module = context->load_module(kImage)) context->unload_module(*module);
       b.expect_equal("asked of the manager", log.text(), "nothing");
     })},

    {.id = "OBJ-2",
     .rule = "The end of a stream or an event is queued.",
     .source = "drv:1256-1280, 1374-1386",
     .level = Level::should,
     .scope = Scope::own,
     .may_fail_with = "CTX-12 CTX-13 DEV-6 RST-1 OBJ-3",
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       drop_events(*context, 1);
       if (const auto stream = context->create_stream()) context->drop_stream(*stream);
       b.expect_equal("ends by one event and one stream dropped", b.ends(), 0u);
       b.expect_ok("clear()", context->deallocations().clear());
       b.expect_equal("ends by clear()", b.ends(), 2u);
     })},

    {.id = "OBJ-3",
     .rule = "A module is unloaded once, through the queue.",
     .source = "drv:1224-1242, 1388-1405",
     .level = Level::should,
     .scope = Scope::own,
     .may_fail_with = "RST-1 OBJ-4",
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       const auto module = context->load_module(kImage);
       if (!b.expect_ok("load_module", module)) return;
       context->unload_module(*module);
       context->unload_module(*module);
       b.expect_equal("modules unloaded at once", b.count(Call::library_unload), 0u);
       own_of(b).reset(*context);
       b.expect_equal("modules unloaded after reset", b.count(Call::library_unload), 1u);
     })},

    {.id = "OBJ-4",
     .rule = "reset unloads modules and leaves live streams and events alone.",
     .source = "drv:1079-1093",
     .level = Level::should,
     .scope = Scope::own,
     .may_fail_with = "RST-1",
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       const auto stream = context->create_stream();
       const auto module = context->load_module(kImage);
       if (!b.expect_ok("create_stream", stream) || !b.expect_ok("load_module", module)) return;
       own_of(b).reset(*context);
       b.expect_equal("modules unloaded by reset", b.count(Call::library_unload), 1u);
       b.expect_ok("the stream, after reset", b.device().stream_synchronize(*stream));
       context->drop_stream(*stream);
     })},

    {.id = "OBJ-5",
     .rule = "defer_cleanup of a context defers the ends of events too.",
     .source = "drv:1286",
     .level = Level::must,
     .scope = Scope::own,
     .check = over_spied_context([](Bench& b, SpyLog&, ContextFixture& context) {
       const auto deferred = own_of(b).defer_cleanup(*context);
       drop_events(*context, 15);
       b.expect_equal("events destroyed in a deferral", b.count(Call::event_destroy), 0u);
     })},

    {.id = "ERR-1",
     .rule = "A driver's failure is told with the call, the code and its name.",
     .source = "drv:147, 370, 139",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           ContextFixture context(b, b.subject().factory);
           if (!context) return;
           b.watch().fail(Call::mem_alloc, {700});
           const auto memory = context->memalloc(64);
           b.expect(!memory && memory.error().native == 700, "memalloc, which fails with 700",
                    "another code", "700");
           b.expect_error("memalloc, which fails with 700", memory, Errc::driver_error,
                          "Call to cuMemAlloc results in CUDA_ERROR_ILLEGAL_ADDRESS");
         }},
};

}  // namespace

extern constinit const ClauseGroup own_context_clauses{"emmctl's context", kOwnContextClauses};

}  // namespace emm
