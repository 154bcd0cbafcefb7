#include "emm/ipc_handle.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "driver/call.hpp"
#include "emm/context.hpp"
#include "emm/memory_manager.hpp"
#include "scripted_driver.hpp"

namespace emm {
namespace {

using test::ScriptedDriver;

constexpr DeviceIdentity kHere{.pci_domain_id = 0, .pci_bus_id = 1, .pci_device_id = 0};
constexpr DeviceIdentity kThere{.pci_domain_id = 0, .pci_bus_id = 2, .pci_device_id = -1};

struct Machine {
  explicit Machine(DeviceIdentity identity) {
    auto driver_made = std::make_unique<ScriptedDriver>();
    driver = driver_made.get();
    driver->identity = identity;
    device.driver = std::move(driver_made);
    context = *Context::create(device, clock, *find_manager("default"));
  }
  ManualClock clock;
  OpenedDevice device;
  ScriptedDriver* driver;
  std::unique_ptr<Context> context;
};

IpcHandle::Fields fields_of(std::optional<DeviceIdentity> source) {
  IpcHandle::Fields fields{.handle = {}, .size = 64, .offset = 128, .source_info = source};
  fields.handle.bytes[0] = std::byte{0xab};
  fields.handle.bytes[63] = std::byte{0x01};
  return fields;
}

TEST(IpcHandle, OfAPartNamesItsPlaceInTheAllocation) {  // IPC-2, IPC-3
  Machine machine(kHere);
  const auto memory = machine.context->memalloc(4096);
  ASSERT_TRUE(memory);
  machine.driver->forget_calls();

  const auto handle = machine.context->get_ipc_handle(*memory->view(64, 128));

  ASSERT_TRUE(handle);
  EXPECT_EQ(handle->fields().size, 64u);
  EXPECT_EQ(handle->fields().offset, 64u);
  EXPECT_EQ(handle->fields().source_info, std::optional(kHere));
  EXPECT_EQ(machine.driver->calls(),
            (std::vector<ScriptedDriver::Entry>{
                {Call::mem_get_address_range, memory->device_pointer().value + 64},
                {Call::ipc_get_mem_handle, memory->device_pointer().value}}));
}

TEST(IpcHandle, IsNotOpenedInTheProcessThatMadeIt) {  // IPC-7
  Machine machine(kHere);
  auto handle = IpcHandle::exported(fields_of(kHere));

  const auto view = handle.open(*machine.context);

  EXPECT_EQ(describe(view.error()), "opening IpcHandle from original process");
  EXPECT_FALSE(handle.is_open());
}

TEST(IpcHandle, OpensDirectlyOnItsOwnDevice) {  // IPC-6, IPC-7, IPC-8, IPC-10, IPC-11, IPC-18
  Machine machine(kHere);
  auto handle = IpcHandle::received(fields_of(kHere));
  machine.driver->forget_calls();

  const auto view = handle.open(*machine.context);

  ASSERT_TRUE(view);
  const auto opened = machine.driver->calls();
  ASSERT_EQ(opened.size(), 1u) << "the same device needs no question about peers";
  EXPECT_EQ(view->device_pointer.value, opened[0].argument + 128);
  EXPECT_EQ(view->size, 64u);
  EXPECT_EQ(describe(handle.open(*machine.context).error()), "IpcHandle is already opened");
  EXPECT_EQ(describe(handle.open_direct(*machine.driver).error()), "IpcHandle is already opened");
  EXPECT_EQ(describe(handle.open_staged(*machine.context, *machine.context).error()),
            "IpcHandle is already opened");

  EXPECT_TRUE(handle.close());
  EXPECT_EQ(machine.driver->calls().back(),
            (ScriptedDriver::Entry{Call::ipc_close_mem_handle, opened[0].argument}));
  EXPECT_EQ(describe(handle.close().error()), "IpcHandle not opened");
  EXPECT_TRUE(handle.open(*machine.context));
}

TEST(IpcHandle, WithoutSourceInfoOpensDirectlyOnly) {  // IPC-15, IPC-19
  Machine machine(kHere);
  auto handle = IpcHandle::received(fields_of({}));

  EXPECT_EQ(describe(handle.open_staged(*machine.context, *machine.context).error()),
            "IPC handle doesn't have source info");
  EXPECT_TRUE(handle.open(*machine.context));
}

TEST(IpcHandle, ThatFailsToOpenIsClosed) {  // IPC-9
  Machine machine(kHere);
  auto handle = IpcHandle::received(fields_of(kHere));
  machine.driver->answer(Call::ipc_open_mem_handle, {201});

  EXPECT_EQ(handle.open(*machine.context).error().native, 201);
  EXPECT_EQ(describe(handle.close().error()), "IpcHandle not opened");
  EXPECT_TRUE(handle.open(*machine.context));
}

TEST(IpcHandle, ThatFailsToCloseIsStillOpen) {
  Machine machine(kHere);
  auto handle = IpcHandle::received(fields_of(kHere));
  ASSERT_TRUE(handle.open(*machine.context));
  machine.driver->answer(Call::ipc_close_mem_handle, {700});

  EXPECT_EQ(handle.close().error().native, 700);
  EXPECT_TRUE(handle.is_open());
  EXPECT_TRUE(handle.close());
}

TEST(IpcHandle, ClosesWhenItDies) {
  Machine machine(kHere);
  {
    auto handle = IpcHandle::received(fields_of(kHere));
    ASSERT_TRUE(handle.open(*machine.context));
    auto moved = std::move(handle);
    EXPECT_FALSE(handle.is_open());
    EXPECT_TRUE(moved.is_open());
  }
  EXPECT_EQ(machine.driver->count(Call::ipc_close_mem_handle), 1u);
  EXPECT_EQ(machine.driver->alive(), 0u);
}

TEST(IpcHandle, OpensDirectlyOnAPeer) {  // IPC-6
  Machine machine(kHere);
  machine.driver->reaches_peers = true;
  auto handle = IpcHandle::received(fields_of(kThere));

  ASSERT_TRUE(handle.open(*machine.context));
  EXPECT_EQ(machine.driver->count(Call::can_access_peer), 1u);
  EXPECT_EQ(machine.driver->count(Call::ipc_open_mem_handle), 1u);
}

TEST(IpcHandle, IsStagedThroughTheManagerOfTheDestination) {  // IPC-13, IPC-14
  Machine source(kThere);
  Machine destination(kHere);
  auto handle = IpcHandle::received(fields_of(kThere));

  const auto view = handle.open(*destination.context);

  ASSERT_TRUE(view);
  EXPECT_EQ(view->device_pointer, destination.driver->allocation(0));
  EXPECT_EQ(view->size, 64u);
  const auto mapped = source.driver->calls(Call::ipc_open_mem_handle).at(0).argument;
  EXPECT_EQ(destination.driver->last_copied_from.value, mapped + 128);
  EXPECT_EQ(source.driver->count(Call::ipc_close_mem_handle), 1u) << "the source is closed at once";
  EXPECT_EQ(source.driver->alive(), 0u);

  EXPECT_TRUE(handle.close());
  EXPECT_TRUE(destination.context->memory_manager().flush());
  EXPECT_EQ(destination.driver->alive(), 0u);
}

TEST(IpcHandle, LeaksNothingWhereStagingFails) {  // IPC-14
  for (std::size_t n = 1;; ++n) {
    Machine source(kThere);
    Machine destination(kHere);
    ASSERT_TRUE(destination.context->initialize());
    auto handle = IpcHandle::received(fields_of(kThere));
    auto& failing = n <= 2 ? *source.driver : *destination.driver;
    failing.fail_call(n <= 2 ? n : n - 2, 700);

    const auto view = handle.open(*destination.context);

    if (view) {
      EXPECT_EQ(n, 6u) << "open, close, can_access_peer, alloc and copy can fail";
      break;
    }
    EXPECT_EQ(view.error().native, 700);
    EXPECT_FALSE(handle.is_open());
    EXPECT_TRUE(destination.context->memory_manager().flush());
    EXPECT_EQ(destination.driver->alive(), 0u);
    EXPECT_EQ(source.driver->alive(), n == 2 ? 1u : 0u) << "what will not close stays mapped";
  }
}

TEST(IpcHandle, OfADeviceThatIsNotHereIsRefused) {  // IPC-16
  Machine machine(kHere);
  auto handle = IpcHandle::received(fields_of(kThere));

  EXPECT_EQ(describe(handle.open(*machine.context).error()),
            "No device of 0:2:-1 is found. Target device may not be visible in this process.");
  EXPECT_FALSE(handle.open_staged(*machine.context, *machine.context));
}

TEST(IpcHandle, GoesThroughALineOfText) {  // IPC-17
  for (const auto& source : {std::optional<DeviceIdentity>(), std::optional(kThere)}) {
    const auto handle = IpcHandle::exported(fields_of(source));

    const auto back = IpcHandle::deserialize(handle.serialize());

    ASSERT_TRUE(back) << describe(back.error());
    EXPECT_EQ(back->fields(), handle.fields());
    EXPECT_FALSE(back->is_open());
    EXPECT_EQ(back->serialize(), handle.serialize());
  }
}

TEST(IpcHandle, RefusesAnyOtherLine) {
  const auto good = IpcHandle::received(fields_of(kThere)).serialize();
  EXPECT_EQ(describe(IpcHandle::deserialize("handle").error()),
            "'handle' is not an IPC handle: expected emm-ipc-1:<128 hex "
            "digits>:<size>:<offset>:<device>");
  for (const auto& bad : {std::string(), good.substr(1), good.substr(0, 40), good + "x",
                          good + ":1", std::string("emm-ipc-1:zz:1:2:-")}) {
    EXPECT_FALSE(IpcHandle::deserialize(bad)) << bad;
  }
}

TEST(IpcHandle, KeepsTheExportedMemoryAlive) {  // IPC-1
  Machine machine(kHere);
  auto memory = own(*machine.context->memalloc(4096));
  auto handle = IpcHandle::exported(fields_of(kHere), memory);
  memory = {};
  EXPECT_EQ(machine.context->deallocations().size(), 0u);
  EXPECT_TRUE(machine.context->memory_manager().flush());
  EXPECT_EQ(machine.driver->alive(), 1u);

  handle = IpcHandle::received(fields_of({}));
  EXPECT_TRUE(machine.context->memory_manager().flush());
  EXPECT_EQ(machine.driver->alive(), 0u);
}

}  // namespace
}  // namespace emm
