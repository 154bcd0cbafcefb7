#include "base/units.hpp"
#include "conformance/spy.hpp"

// IPC: opening and closing, which does not involve managers. The process that exported the memory
// opens it itself; a stub driver returns the memory.

namespace emm {
namespace {

using namespace emm::conformance;

/// A slice of device memory as another process would receive it: 64 bytes at offset 128.
struct Received {
  explicit Received(Bench& b) : memory(b.device().mem_alloc(4_KiB)) {
    b.stub().loops_back = true;
    if (!memory) {
      b.inconclusive(describe(memory.error()));
      return;
    }
    const auto handle = b.stub().ipc_get_mem_handle(*memory);
    fields = {
        .handle = *handle, .size = 64, .offset = 128, .source_info = b.device().device_identity()};
  }
  explicit operator bool() const noexcept { return memory.has_value(); }

  Result<DevicePtr> memory;
  IpcHandle::Fields fields;
};

/// Makes the check of a clause about a closed handle to received memory.
template <class Check>
constexpr auto of_received_handle(Check) {
  return [](Bench& b) {
    Received received(b);
    if (!received) return;
    auto handle = IpcHandle::received(received.fields);
    Check()(b, received, handle);
  };
}

/// Makes the check of a clause about received memory and a context with a spy manager.
template <class Check>
constexpr auto of_received_memory(Check) {
  return [](Bench& b) {
    Received received(b);
    SpyLog log;
    ContextFixture context(b, log);
    if (received && context) Check()(b, received, log, context);
  };
}

constexpr Clause kOwnIpcClauses[] = {
    {.id = "IPC-1",
     .rule = "An exported handle keeps its memory alive.",
     .source = "NBEP 7; drv:1485-1509",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           int ends = 0;
           const auto run = [](void* self, std::uint64_t, StreamHandle) noexcept {
             ++*static_cast<int*>(self);
           };
           auto owned = own(MemoryPointer({0x1000}, 64, Lifetime({.run = run, .self = &ends}, {})));
           {
             const auto handle = own_of(b).exported({}, owned);
             owned = {};
             b.expect_equal("finalizers run while the handle lives", ends, 0);
           }
           b.expect_equal("... after its end", ends, 1);
         }},

    {.id = "IPC-6",
     .rule = "A handle is opened directly where its device is this one, unknown, or in reach; else "
             "staged.",
     .source = "drv:1515-1557",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           Received received(b);
           SpyLog log;
           ContextFixture source(b, spy_factory(log));
           ContextFixture far(b, b.subject().factory, 1);
           if (!received || !source || !far) return;
           auto here = IpcHandle::received(received.fields);
           b.expect_ok("open() on the source device", own_of(b).open(here, *source));
           b.expect_equal("questions whether it is in reach", b.count(Call::can_access_peer), 0u);
           auto unknown_fields = received.fields;
           unknown_fields.source_info.reset();
           auto unknown = IpcHandle::received(unknown_fields);
           b.expect_ok("open() of a handle without a device", own_of(b).open(unknown, *source));
           auto elsewhere_fields = received.fields;
           elsewhere_fields.source_info = far->driver().device_identity();
           auto elsewhere = IpcHandle::received(elsewhere_fields);
           b.stub().reaches_peers = true;
           const auto direct = own_of(b).open(elsewhere, *source);
           b.expect(direct && direct->device_pointer == *received.memory + 128,
                    "open() of a device in reach", "another address", "the memory itself");
           b.expect_equal("memory asked of the manager by all three", log.count("memalloc"), 0u);
         }},

    {.id = "IPC-7",
     .rule = "Opened directly, memory has its offset and its size; in the exporting process it "
             "cannot be opened.",
     .source = "drv:1421-1436, 1198",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           Received received(b);
           if (!received) return;
           auto original = IpcHandle::exported(received.fields);
           b.expect_error("open_direct() where it was exported",
                          own_of(b).open_direct(original, b.driver()), Errc::invalid_value,
                          "opening IpcHandle from original process");
           auto handle = IpcHandle::received(received.fields);
           const auto view = own_of(b).open_direct(handle, b.driver());
           if (!b.expect_ok("open_direct()", view)) return;
           b.expect_equal("bytes from the allocation's base",
                          view->device_pointer - *received.memory, 128u);
           b.expect_equal("size", view->size, 64u);
         }},

    {.id = "IPC-8",
     .rule = "A handle that is open cannot be opened.",
     .source = "drv:1529, 1539; T:test_ipc",
     .level = Level::must,
     .scope = Scope::own,
     .check = of_received_handle([](Bench& b, Received&, IpcHandle& handle) {
       b.expect_ok("open_direct()", own_of(b).open_direct(handle, b.driver()));
       b.expect_error("open_direct(), again", own_of(b).open_direct(handle, b.driver()),
                      Errc::invalid_value, "IpcHandle is already opened");
     })},

    {.id = "IPC-9",
     .rule = "An opening that fails leaves the handle closed.",
     .source = "drv:1421-1436",
     .level = Level::quirk,
     .scope = Scope::own,
     .check = of_received_handle([](Bench& b, Received&, IpcHandle& handle) {
       b.watch().fail(Call::ipc_open_mem_handle, {999});
       b.expect(!own_of(b).open_direct(handle, b.driver()), "open_direct(), which fails", "success",
                "the driver's error");
       b.expect(!handle.is_open(), "a handle whose opening failed", "open", "closed");
       b.expect_ok("open_direct(), again", own_of(b).open_direct(handle, b.driver()));
     })},

    {.id = "IPC-10",
     .rule = "close() closes the mapping's base, once; then the handle can be opened again. "
             "Closed, it is \"not opened\".",
     .source = "drv:1438, 1575",
     .level = Level::must,
     .scope = Scope::own,
     .check = of_received_handle([](Bench& b, Received& received, IpcHandle& handle) {
       b.expect_error("close() before open", own_of(b).close(handle), Errc::invalid_value,
                      "IpcHandle not opened");
       b.expect_ok("open_direct()", own_of(b).open_direct(handle, b.driver()));
       b.watch().forget();
       b.expect_ok("close()", own_of(b).close(handle));
       b.expect_calls("close()", {Call::ipc_close_mem_handle});
       if (b.decided()) return;
       b.expect_equal("what was closed", b.watch().events()[0].pointer, received.memory->value);
       b.expect_error("close(), again", own_of(b).close(handle), Errc::invalid_value,
                      "IpcHandle not opened");
       b.expect_ok("open_direct(), again", own_of(b).open_direct(handle, b.driver()));
     })},

    {.id = "IPC-11",
     .rule = "A handle that was closed says so.",
     .source = "IPCD",
     .level = Level::quirk,
     .scope = Scope::own,
     .may_fail_with = "IPC-10",
     .check = of_received_handle([](Bench& b, Received&, IpcHandle& handle) {
       b.expect_ok("open_direct()", own_of(b).open_direct(handle, b.driver()));
       b.expect(handle.is_open(), "an open handle", "closed", "open");
       b.expect_ok("close()", own_of(b).close(handle));
       b.expect(!handle.is_open(), "a closed handle", "open", "closed");
     })},

    {.id = "IPC-13",
     .rule = "A staged opening opens at the source, copies into memory of the destination's "
             "manager, and closes at once.",
     .source = "drv:1445-1482; NBEP 7, Staged IPC",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           Received received(b);
           SpyLog log;
           ContextFixture source(b, log);
           ContextFixture destination(b, b.subject().factory, 1);
           if (!received || !source || !destination) return;
           b.expect_ok("a memset", b.device().memset_d8(*received.memory + 128, 0x21, 64));
           auto handle = IpcHandle::received(received.fields);
           const auto copy = own_of(b).open_staged(handle, *source, *destination);
           if (!b.expect_ok("open_staged()", copy)) return;
           b.expect_calls("open_staged(), on the source",
                          {Call::ipc_open_mem_handle, Call::ipc_close_mem_handle});
           b.expect(copy->device_pointer != *received.memory + 128 && copy->size == 64,
                    "open_staged()", "the memory itself", "a copy of 64 bytes");
           std::byte last{};
           b.expect_ok("a read",
                       destination->driver().memcpy_dtoh({&last, 1}, copy->device_pointer + 63));
           b.expect(last == std::byte{0x21}, "the last byte of the copy", "another", "the slice's");
         }},

    {.id = "IPC-14",
     .rule = "A staged opening that fails leaves nothing open at the source.",
     .source = "drv:1480",
     .level = Level::quirk,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           Received received(b);
           SpyLog source_log, log;
           ContextFixture source(b, source_log);
           ContextFixture destination(b, spy_factory(log), 1);
           if (!received || !source || !destination) return;
           b.expect_ok("initialize()", destination->initialize());
           log.fails = true;
           log.fails_with = Errc::out_of_memory;
           auto handle = IpcHandle::received(received.fields);
           b.expect(!own_of(b).open_staged(handle, *source, *destination),
                    "open_staged() without memory for the copy", "success", "out of memory");
           b.expect_equal("mappings opened", b.count(Call::ipc_open_mem_handle), 1u);
           b.expect_equal("mappings closed", b.count(Call::ipc_close_mem_handle), 1u);
         }},

    {.id = "IPC-15",
     .rule = "A handle that does not say its device cannot be staged.",
     .source = "drv:1511",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         of_received_memory([](Bench& b, Received& received, SpyLog&, ContextFixture& context) {
           received.fields.source_info.reset();
           auto handle = IpcHandle::received(received.fields);
           b.expect_error("open_staged() without a device",
                          own_of(b).open_staged(handle, *context, *context), Errc::invalid_value,
                          "IPC handle doesn't have source info");
         })},

    {.id = "IPC-16",
     .rule = "A device that this process does not have is named in the error.",
     .source = "drv:477-489",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         of_received_memory([](Bench& b, Received& received, SpyLog&, ContextFixture& context) {
           b.stub().reaches_peers = false;
           received.fields.source_info =
               DeviceIdentity{.pci_domain_id = 9, .pci_bus_id = 8, .pci_device_id = 7};
           auto handle = IpcHandle::received(received.fields);
           b.expect_error(
               "open() of device 9:8:7", own_of(b).open(handle, *context), Errc::not_found,
               "No device of 9:8:7 is found. Target device may not be visible in this process.");
         })},

    {.id = "IPC-17",
     .rule = "A handle goes through text and comes back the same, closed, and not as the original.",
     .source = "drv:1581-1603",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           Received received(b);
           if (!received) return;
           const auto original = IpcHandle::exported(received.fields);
           auto copy = own_of(b).deserialize(original.serialize());
           if (!b.expect_ok("deserialize()", copy)) return;
           b.expect(copy->fields() == received.fields && !copy->is_open(), "a handle through text",
                    "another", "the same, closed");
           b.expect_ok("open_direct() of it", own_of(b).open_direct(*copy, b.driver()));
         }},

    {.id = "IPC-18",
     .rule = "Managers have no part in opening directly, nor in closing.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::own,
     .check =
         of_received_memory([](Bench& b, Received& received, SpyLog& log, ContextFixture& context) {
           auto handle = IpcHandle::received(received.fields);
           b.expect_ok("open()", own_of(b).open(handle, *context));
           b.expect_ok("close()", own_of(b).close(handle));
           b.expect_equal("asked of the manager", log.text(), "nothing");
         })},
};

}  // namespace

extern constinit const ClauseGroup own_ipc_clauses{"emmctl's IPC", kOwnIpcClauses};

}  // namespace emm
