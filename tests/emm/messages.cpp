// Provokes each message of the contract that no command of emmctl can reach, and prints it: what a
// program that links the library sees. A transcript in tests/golden shows its output.

#include <cstdio>
#include <cstdlib>

#include "base/clock.hpp"
#include "emm/context.hpp"
#include "emm/selection.hpp"
#include "scripted_driver.hpp"
#include "version_manager.hpp"

namespace emm {
namespace {

template <class T>
void say(const Result<T>& result) {
  EMM_ASSERT(!result);
  std::printf("%s\n", describe(result.error()).c_str());
}

void say_of_pointers(Context& context) {
  auto memory = *context.memalloc(100);
  say(memory.view(20, 10));
  say(memory.view(90, 5000));
  say(MemoryView{}.view(0, 1));
  EMM_ASSERT(memory.free());
  say(memory.free());
}

void say_of_ipc(Context& context) {
  const IpcHandle::Fields fields{.handle = {}, .size = 64, .offset = 0, .source_info = {}};
  auto elsewhere = fields;
  elsewhere.source_info = DeviceIdentity{.pci_domain_id = 0, .pci_bus_id = 65, .pci_device_id = 0};
  auto handle = IpcHandle::received(fields);
  say(IpcHandle::exported(fields).open(context));
  say(handle.close());
  say(handle.open_staged(context, context));
  EMM_ASSERT(handle.open(context));
  say(handle.open(context));
  say(IpcHandle::received(elsewhere).open(context));
  say(IpcHandle::deserialize("0x7f00"));
}

void say_of_contexts(Context& context, test::ScriptedDriver& driver) {
  driver.popped = {2};
  say(context.pop());
  driver.maps_host_memory = false;
  say(context.mempin({}, {.mapped = true}));
  driver.always_gives = DevicePtr{0x7f0000000000};
  const auto first = context.memalloc(8);
  say(context.memalloc(8));
}

void say_of_selection(test::ScriptedDriver& driver) {
  say(set_memory_manager({.name = "other", .make = [](const ManagerContext&) {
                            return Result<std::unique_ptr<MemoryManager>>(
                                std::make_unique<test::VersionManager>(2));
                          }}));
  setenv("EMM_MEMORY_MANAGER", "pol", 1);
  say(get_memory_manager());
  say(find_manager("cudart")->make({.driver = &driver}));
}

}  // namespace
}  // namespace emm

int main() {
  emm::ManualClock clock;
  auto scripted = std::make_unique<emm::test::ScriptedDriver>();
  auto& driver = *scripted;
  emm::OpenedDevice device{.driver = std::move(scripted), .runtime = nullptr};
  auto context = *emm::Context::create(device, clock, *emm::find_manager("default"));
  emm::say_of_pointers(*context);
  emm::say_of_ipc(*context);
  emm::say_of_contexts(*context, driver);
  emm::say_of_selection(driver);
}
