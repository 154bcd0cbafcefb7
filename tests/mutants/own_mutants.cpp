#include <cstdlib>
#include <list>

#include "rule_breaks.hpp"
#include "wrong_own.hpp"

// Wrong contexts, pointers, openings and choices. Each breaks one rule.

namespace emm::mutants {
namespace {

using O = WrongOwn&;
bool g_freeing = false;  // PTR-2's: an explicit free is under way
void clear(PendingDeallocs& queue) {
  if (!queue.clear()) return;
}

const OwnMutant kOwnMutants[] = {
    {"SEL-1", "chooses when it is unset",
     [](O o) {
       auto held = remembers<std::optional<ManagerFactory>>();
       o.on_unset = [held] {
         unset_memory_manager();
         auto factory = get_memory_manager();
         const auto* named = std::getenv("EMM_MEMORY_MANAGER");
         *held = named != nullptr && factory ? std::optional(*factory) : std::nullopt;
         unset_memory_manager();
       };
       o.on_get = [held] { return *held ? Result<ManagerFactory>(**held) : get_memory_manager(); };
     }},
    {"SEL-2", "chooses host-only",
     [](O o) {
       o.on_get = [] {
         auto factory = get_memory_manager();
         return factory && factory->name == "default" ? find_manager("host-only") : factory;
       };
     }},
    {"SEL-3", "takes any version",
     [](O o) {
       auto held = remembers<std::optional<ManagerFactory>>();
       o.on_set = [held](auto factory) {
         held->reset();
         if (auto done = set_memory_manager(factory); done) return done;
         *held = factory;
         return Status();
       };
       o.on_unset = [held] {
         held->reset();
         unset_memory_manager();
       };
       o.on_get = [held] { return *held ? Result<ManagerFactory>(**held) : get_memory_manager(); };
     }},
    {"SEL-6", "asks the newest manager for all contexts",
     [](O o) {
       auto newest = remembers<WrongManager*>(nullptr);
       o.between = [newest](WrongManager& m) {
         *newest = &m;
         m.on_memalloc = [newest](auto size, auto stream) {
           return (*newest)->up->memalloc(size, stream);
         };
       };
     }},
    {"SEL-7", "keeps the first",
     [](O o) {
       auto count = remembers(0);
       o.on_set = [count](auto factory) {
         return ++*count == 3 ? Status() : set_memory_manager(std::move(factory));
       };
       o.on_unset = [count] {
         *count = 0;
         unset_memory_manager();
       };
     }},
    {"SEL-10", "drops the options",
     [](O o) {
       o.on_get = [] {
         auto factory = get_memory_manager();
         return factory && factory->name.find(':') != std::string::npos ? find_manager("pool")
                                                                        : factory;
       };
     }},
    {"SEL-11", "remembers a failure",
     [](O o) {
       auto failure = remembers<std::optional<Error>>();
       o.on_get = [failure]() -> Result<ManagerFactory> {
         if (*failure && std::getenv("EMM_MEMORY_MANAGER") == std::string("pool")) return **failure;
         auto factory = get_memory_manager();
         if (!factory) *failure = factory.error();
         return factory;
       };
       o.on_unset = [failure] {
         failure->reset();
         unset_memory_manager();
       };
     }},
    {"SEL-12", "asks the variable first",
     [](O o) {
       o.on_get = []() -> Result<ManagerFactory> {
         auto factory = get_memory_manager();
         const auto* named = std::getenv("EMM_MEMORY_MANAGER");
         if (factory && factory->name == "set" && named != nullptr) return find_manager(named);
         return factory;
       };
     }},
    {"SEL-13", "reads the variable each time",
     [](O o) {
       o.on_get = []() -> Result<ManagerFactory> {
         auto factory = get_memory_manager();
         if (!factory || factory->name != "pool") return factory;
         return find_manager(std::getenv("EMM_MEMORY_MANAGER"));
       };
     }},
    {"SEL-15", "cannot be unset once it was set",
     [](O o) {
       auto count = remembers(0);
       o.on_set = [count](auto factory) {
         ++*count;
         return set_memory_manager(std::move(factory));
       };
       o.on_unset = [count] {
         if (std::exchange(*count, 0) != 1) unset_memory_manager();
       };
     }},
    {"RST-12", "gives the first manager for ever",
     [](O o) {
       auto held = remembers<std::optional<ManagerFactory>>();
       o.on_close_context = [held](Context& context) {
         if (auto factory = get_memory_manager()) *held = *factory;
         return context.close();
       };
       o.on_get = [held] { return *held ? Result<ManagerFactory>(**held) : get_memory_manager(); };
     }},

    {"CTX-1", "asks for a byte more",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memalloc = [&m](auto size, auto stream) {
           return m.up->memalloc(size + (size == 10), stream);
         };
       };
     }},
    {"CTX-1", "gives a smaller pointer",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
           auto memory = m.up->memalloc(size, stream);
           if (!memory || size != 10) return memory;
           return MemoryPointer(memory->device_pointer(), size - 1);
         };
       };
     }},
    {"CTX-2", "drops wc",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memhostalloc = [&m](auto size, auto flags) {
           flags.wc = false;
           return m.up->memhostalloc(size, flags);
         };
       };
     }},
    {"CTX-3", "does not ask whether the device can map",
     [](O o) { o.below = [](WrongDriver& driver) { driver.can_map = true; }; }},
    {"CTX-4", "attaches to all streams",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memallocmanaged = [&m](auto size, auto) {
           return m.up->memallocmanaged(size, AttachFlags::global);
         };
       };
     }},
    {"CTX-5", "answers nothing for an error",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_get_memory_info = [&m]() -> Result<MemoryInfo> {
           return m.up->get_memory_info().value_or(MemoryInfo{});
         };
       };
     }},
    {"CTX-7", "initializes at most twice",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_initialize = [&m, n = 0]() mutable {
           return ++n == 3 ? Status() : m.up->initialize();
         };
       };
     }},
    {"CTX-8", "initializes before it pushes",
     [](O o) {
       o.on_push = [](Context& context) -> Status {
         if (auto ready = context.initialize(); !ready) return ready;
         return context.driver().ctx_push_current();
       };
     }},
    {"CTX-8", "stays current where initialize fails",
     [](O o) {
       o.on_push = [](Context& context) -> Status {
         if (auto pushed = context.driver().ctx_push_current(); !pushed) return pushed;
         return context.initialize();
       };
     }},
    {"CTX-9", "initializes at the first push alone",
     [](O o) {
       auto pushes = remembers(0);
       o.on_push = [pushes](Context& context) {
         return ++*pushes > 5 ? context.driver().ctx_push_current() : context.push();
       };
     }},
    {"CTX-10", "pops what is there",
     [](O o) {
       o.below = [](WrongDriver& driver) {
         driver.on_ctx_pop_current = [&driver]() -> Result<ContextHandle> {
           auto popped = driver.to.ctx_pop_current();
           if (popped) *popped = driver.to.context_handle();
           return popped;
         };
       };
     }},
    {"CTX-12", "clears its queue with the manager's",
     [](O o) {
       o.between = [&o](WrongManager& m) {
         m.on_flush = [&m, &o] {
           clear(o.contexts.back()->deallocations());
           return m.up->flush();
         };
       };
     }},
    {"CTX-13", "waits for nine",
     [](O o) {
       o.on_context = [](Context& context) { context.deallocations().set_limits({.count = 9}); };
     }},
    {"CTX-13", "waits for eleven",
     [](O o) {
       o.on_context = [](Context& context) { context.deallocations().set_limits({.count = 11}); };
     }},
    {"SEL-9", "makes two managers for a context",
     [](O o) {
       auto spare = std::make_shared<std::vector<std::unique_ptr<MemoryManager>>>();
       o.before_context = [spare](const ManagerFactory& factory) {
         if (auto manager = factory.make({})) spare->push_back(*std::move(manager));
       };
     }},
    {"BASE-8", "takes scratch memory of its own",
     [](O o) {
       o.on_reset = [](Context& context) {
         if (const auto scratch = context.driver().mem_alloc(64);
             scratch && context.driver().mem_free(*scratch))
           return context.reset();
       };
     }},
    {"INI-1", "does not initialize for managed memory",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_initialize = [&m, n = 0]() mutable {
           return ++n == 1 ? Status() : m.up->initialize();
         };
         m.on_memalloc = [&m, first = true](auto size,
                                            auto stream) mutable -> Result<MemoryPointer> {
           if (std::exchange(first, false)) {
             if (auto ready = m.up->initialize(); !ready) return std::move(ready).error();
           }
           return m.up->memalloc(size, stream);
         };
       };
     }},
    {"DEV-6", "clears its queue where memory is out",
     [](O o) {
       o.between = [&o](WrongManager& m) {
         m.driver->on_mem_alloc = [&m, &o](auto size) {
           auto ptr = m.driver->to.mem_alloc(size);
           if (!ptr) clear(o.contexts.back()->deallocations());
           return ptr;
         };
       };
     }},
    {"DFR-1", "defers its own queue first",
     [](O o) {
       o.on_defer_cleanup = [](Context& context) {
         auto own = context.deallocations().disable();
         auto manager = context.memory_manager().defer_cleanup();
         return Context::Deferred{.manager = std::move(manager), .own = std::move(own)};
       };
     }},
    {"DFR-6", "defers the cleanup of all contexts",
     [](O o) {
       o.on_defer_cleanup = [&o](Context& context) {
         static auto& others =
             *new std::vector<DeferCleanup>;  // never end: their contexts end before
         if (o.contexts.back() != &context)
           others.push_back(o.contexts.back()->deallocations().disable());
         return context.defer_cleanup();
       };
     }},
    {"RST-1", "clears its own queue first",
     [](O o) {
       o.on_reset = [](Context& context) {
         clear(context.deallocations());
         context.reset();
       };
     }},
    {"RST-10", "resets where memory is out",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memalloc = [&m](auto size, auto stream) {
           auto memory = m.up->memalloc(size, stream);
           if (!memory && memory.error().code == Errc::out_of_memory && memory.error().native == 0)
             m.up->reset();
           return memory;
         };
       };
     }},
    {"RST-11", "closes without a reset",
     [](O o) {
       o.on_close_context = [](Context& context) { return context.driver().primary_ctx_reset(); };
     }},
    {"OBJ-1", "flushes the manager when events end",
     [](O o) {
       o.between = [&o](WrongManager& m) {
         o.on_event_destroyed = [&m] {
           if (!m.up->flush()) return;
         };
         m.on_ending = [&o] { o.on_event_destroyed = nullptr; };
       };
       o.below = [&o](WrongDriver& driver) {
         driver.on_event_destroy = [&o, &driver](auto event) {
           if (o.on_event_destroyed) o.on_event_destroyed();
           return driver.to.event_destroy(event);
         };
       };
     }},
    {"OBJ-2", "ends streams and events at once",
     [](O o) {
       o.on_context = [](Context& context) { context.deallocations().set_limits({.count = 0}); };
     }},
    {"OBJ-3", "unloads modules twice",
     [](O o) {
       o.below = [](WrongDriver& driver) {
         driver.on_library_unload = [&](auto library) {
           auto done = driver.to.library_unload(library);
           if (!driver.to.library_unload(library)) return done;
           return done;
         };
       };
     }},
    {"OBJ-4", "keeps modules in a reset",
     [](O o) {
       o.on_reset = [](Context& context) {
         context.memory_manager().reset();
         clear(context.deallocations());
       };
     }},
    {"OBJ-5", "defers the manager's cleanup alone",
     [](O o) {
       o.on_defer_cleanup = [](Context& context) {
         return Context::Deferred{.manager = context.memory_manager().defer_cleanup(), .own = {}};
       };
     }},
    {"ERR-1", "loses the name of the call",
     [](O o) {
       o.between = [](WrongManager& m) {
         m.on_memalloc = [&m](auto size, auto stream) {
           auto memory = m.up->memalloc(size, stream);
           if (!memory) memory.error().call = nullptr;
           return memory;
         };
       };
     }},

    {"PTR-1", "makes pointers a byte smaller",
     [](O o) {
       o.on_make_pointer = [](auto memory, auto finalizer, auto mark) {
         if (memory.size == 100) memory.size = 99;
         return MemoryPointer(memory.device_pointer, memory.size, Lifetime(finalizer, mark));
       };
     }},
    {"PTR-2", "runs a finalizer twice at a pointer's end",
     [](O o) {
       o.on_make_pointer = [](auto memory, auto finalizer, auto mark) {
         if (finalizer.run == nullptr) return MemoryPointer(memory.device_pointer, memory.size);
         static Finalizer inner;
         inner = finalizer;
         const auto twice = [](void*, std::uint64_t cookie, StreamHandle stream) noexcept {
           inner.run(inner.self, cookie, stream);
           if (!g_freeing) inner.run(inner.self, cookie, stream);
         };
         return MemoryPointer(memory.device_pointer, memory.size, Lifetime({.run = twice}, mark));
       };
       o.on_free = [](auto& memory) {
         g_freeing = true;
         auto freed = memory.free();
         g_freeing = false;
         return freed;
       };
     }},
    {"PTR-3", "keeps a reference to all that is shared",
     [](O o) {
       auto kept = std::make_shared<std::vector<OwnedPointer>>();
       o.on_own = [kept](auto memory) {
         kept->push_back(emm::own(std::move(memory)));
         return kept->back();
       };
     }},
    {"PTR-4", "keeps a reference to what was shared last",
     [](O o) {
       auto kept = std::make_shared<OwnedPointer>();
       o.on_own = [kept](auto memory) { return *kept = emm::own(std::move(memory)); };
     }},
    {"PTR-5", "frees dead memory silently",
     [](O o) {
       o.on_free = [](auto& memory) {
         auto freed = memory.free();
         return freed || freed.error().code == Errc::dead_pointer ? Status() : freed;
       };
     }},
    {"PTR-6", "frees shared memory with its last reference alone",
     [](O o) { o.on_free_owned = [](auto&) { return Status(); }; }},
    {"PTR-7", "revives dead memory that is owned",
     [](O o) {
       o.on_own = [](auto memory) {
         if (memory.alive()) return emm::own(std::move(memory));
         return emm::own(MemoryPointer(memory.device_pointer(), memory.size()));
       };
     }},
    {"PTR-9", "gives views the size to the end",
     [](O o) {
       o.on_view = [](auto& memory, auto start, auto stop) -> Result<MemoryView> {
         auto view = memory.view(start, stop);
         if (view && start == 15) view->size = memory.size() - start;
         return view;
       };
     }},
    {"PTR-10", "gives views that own nothing",
     [](O o) {
       o.on_view_owned = [](auto& memory, auto start, auto stop) -> Result<OwnedPointer> {
         auto view = memory.view(start, stop);
         if (!view) return view;
         return emm::own(MemoryPointer(view->device_pointer(), view->size()));
       };
     }},
    {"PTR-11", "takes a negative size for none",
     [](O o) {
       o.on_view = [](auto& memory, auto start, auto stop) {
         if (stop && *stop < start) stop = start;
         return memory.view(start, stop);
       };
     }},
    {"PTR-12", "does not look where a view ends",
     [](O o) {
       o.on_view = [](auto& memory, auto start, auto stop) -> Result<MemoryView> {
         if (!stop || *stop <= memory.size() || !memory.device_pointer())
           return memory.view(start, stop);
         return MemoryView{.device_pointer = memory.device_pointer() + start,
                           .size = *stop - start};
       };
     }},
    {"PTR-22", "runs the finalizer again where dead memory is freed",
     [](O o) {
       auto last = remembers<Finalizer>();
       o.on_make_pointer = [last](auto memory, auto finalizer, auto mark) {
         *last = finalizer;
         return MemoryPointer(memory.device_pointer, memory.size, Lifetime(finalizer, mark));
       };
       o.on_free = [last](auto& memory) {
         auto freed = memory.free();
         if (!freed && last->run != nullptr) last->run(last->self, last->cookie, {});
         return freed;
       };
     }},
    {"RST-6", "gives views of memory that a reset ended",
     [](O o) {
       o.on_view = [](auto& memory, auto start, auto stop) -> Result<MemoryView> {
         if (memory.alive()) return memory.view(start, stop);
         return MemoryView{.device_pointer = memory.device_pointer(), .size = memory.size()}.view(
             start, stop);
       };
     }},

    {"PD-5", "looks at the limits once",
     [](O o) {
       o.on_add = [](auto& queue, auto dtor, auto handle, auto size) {
         if (!size) queue.set_limits({});
         return queue.add(dtor, handle, size);
       };
     }},
    {"PD-7", "flushes at an item of no bytes",
     [](O o) {
       o.on_add = [](auto& queue, auto dtor, auto handle, auto size) {
         auto done = queue.add(dtor, handle, size);
         return size == 0u ? queue.clear() : done;
       };
     }},
    {"PD-10", "leaves for the next flush what is queued in one",
     [](O o) {
       auto flushing = remembers(false);
       o.on_add = [flushing](auto& queue, auto dtor, auto handle, auto size) {
         return *flushing ? Status() : queue.add(dtor, handle, size);
       };
       o.on_clear = [flushing](auto& queue) {
         *flushing = true;
         auto done = queue.clear();
         *flushing = false;
         return done;
       };
     }},

    {"IPC-1", "keeps no memory alive",
     [](O o) { o.on_exported = [](auto& fields, auto) { return IpcHandle::exported(fields); }; }},
    {"IPC-6", "asks about reach also at home",
     [](O o) {
       o.on_open = [](auto& handle, auto& context) {
         if (const auto reach =
                 context.driver().can_access_peer(context.driver().device_identity()))
           return handle.open(context);
         return handle.open(context);
       };
     }},
    {"IPC-7", "forgets the offset",
     [](O o) {
       o.on_open_direct = [](auto& handle, auto& driver) -> Result<MemoryView> {
         auto view = handle.open_direct(driver);
         if (view) view->device_pointer.value -= handle.fields().offset;
         return view;
       };
     }},
    {"IPC-8", "opens again what is open",
     [](O o) {
       o.on_open_direct = [](auto& handle, auto& driver) {
         if (handle.is_open() && !handle.close()) return handle.open_direct(driver);
         return handle.open_direct(driver);
       };
     }},
    {"IPC-9", "is stuck after a failed opening",
     [](O o) {
       auto stuck = remembers(false);
       o.on_open_direct = [stuck](auto& handle, auto& driver) -> Result<MemoryView> {
         if (stuck->exchange(false))
           return fail(Errc::invalid_value, "IpcHandle is already opened");
         auto view = handle.open_direct(driver);
         *stuck = !view && view.error().native != 0;
         return view;
       };
     }},
    {"IPC-10", "closes silently what is closed",
     [](O o) {
       o.on_close = [](auto& handle) { return handle.is_open() ? handle.close() : Status(); };
     }},
    {"IPC-11", "stays open",
     [](O o) {
       o.on_close = [](auto& handle) { return handle.is_open() ? Status() : handle.close(); };
     }},
    {"IPC-13", "loses the beginning of the copy",
     [](O o) {
       o.on_open_staged = [](auto& handle, auto& source, auto& to) -> Result<MemoryView> {
         auto view = handle.open_staged(source, to);
         if (view) view->device_pointer = view->device_pointer + 8;
         return view;
       };
     }},
    {"IPC-14", "leaves the source open where it fails",
     [](O o) {
       o.on_open_staged = [](auto& handle, auto& source, auto& to) -> Result<MemoryView> {
         auto view = handle.open_staged(source, to);
         if (!view && handle.fields().source_info &&
             !source.driver().ipc_open_mem_handle(handle.fields().handle))
           return view;
         return view;
       };
     }},
    {"IPC-15", "opens directly where no device is said",
     [](O o) {
       o.on_open_staged = [](auto& handle, auto& source, auto& to) {
         return handle.fields().source_info ? handle.open_staged(source, to)
                                            : handle.open_direct(to.driver());
       };
     }},
    {"IPC-16", "says nothing of the device that is missing",
     [](O o) {
       o.on_open = [](auto& handle, auto& context) -> Result<MemoryView> {
         auto view = handle.open(context);
         if (!view && view.error().code == Errc::not_found) return fault(Errc::not_found);
         return view;
       };
     }},
    {"IPC-17", "loses the offset in text",
     [](O o) {
       o.on_deserialize = [](auto line) -> Result<IpcHandle> {
         auto handle = IpcHandle::deserialize(line);
         if (!handle) return handle;
         auto fields = handle->fields();
         fields.offset = 0;
         return IpcHandle::received(fields);
       };
     }},
    {"IPC-18", "asks the manager to open",
     [](O o) {
       o.on_open = [](auto& handle, auto& context) -> Result<MemoryView> {
         if (handle.fields().source_info == context.driver().device_identity()) {
           if (!context.memory_manager().flush()) return handle.open(context);
         }
         return handle.open(context);
       };
     }},
};

}  // namespace

Result<std::unique_ptr<Context>> WrongOwn::make_context(OpenedDevice& device, Clock& clock,
                                                        const ManagerFactory& factory,
                                                        Profile profile) const {
  if (before_context) before_context(factory);
  if (below) {
    auto wrong = std::make_unique<WrongDriver>(*device.driver);
    below(*wrong);
    drivers.push_back(std::exchange(device.driver, std::move(wrong)));
  }
  auto wrapped = factory;
  if (between) wrapped = wrong_factory(factory, between);
  auto context = Own::make_context(device, clock, wrapped, profile);
  if (!context) return context;
  contexts.push_back(context->get());
  if (on_context) on_context(**context);
  return context;
}

std::span<const OwnMutant> all_own_mutants() { return kOwnMutants; }

conformance::Subject subject_of(const OwnMutant& mutant, WrongOwn& own) {
  auto factory = find_manager("default");
  EMM_ASSERT(factory);
  mutant.make(own);
  conformance::Subject subject{
      .manager = "default", .factory = *std::move(factory), .promise = Scope::deflt};
  subject.own = &own;
  return subject;
}

}  // namespace emm::mutants
