#include "wrong.hpp"

#include <list>
#include <mutex>
#include <string>

#include "base/text_format.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::mutants {

CallHook& WrongDriver::none() noexcept {
  static CallHook hook;
  return hook;
}

namespace {

struct Kept {
  Shell shell;
  Epoch::Mark mark;  ///< Not current: a reset or the manager's end was before, and nothing ends it.
  bool is_ending = false;
  bool has_ended = false;
  int sweeps = 0;  ///< That found it over. Another thread may be about to end it until then.
};

/// The shells of all managers. A pointer may end after its manager, and an end may leave the memory
/// alive: a shell is kept until its memory has ended.
class Shells {
 public:
  Kept* add(Shell shell, Epoch::Mark mark) {
    constexpr std::size_t kSweep = 64;
    const std::lock_guard lock(mutex_);
    if (++added_ % kSweep == 0) {
      constexpr int kSweeps = 4;
      all_.remove_if([](Kept& kept) {
        const bool is_over = kept.has_ended || !kept.mark.current();
        return is_over && !kept.is_ending && !kept.shell.up.alive() && ++kept.sweeps > kSweeps;
      });
    }
    return &all_.emplace_back(Kept{std::move(shell), mark});
  }
  void end(Kept& kept, StreamHandle stream) {
    {
      const std::lock_guard lock(mutex_);
      kept.is_ending = true;
    }
    kept.shell.on_end(kept.shell, stream);
    const std::lock_guard lock(mutex_);
    kept.is_ending = false;
    kept.has_ended = true;
  }

 private:
  std::mutex mutex_;
  std::list<Kept> all_;
  std::size_t added_ = 0;
};

Shells& shells() {
  static auto& all = *new Shells;
  return all;
}

struct Leaving {
  std::shared_ptr<Guards> guards;
  Hook<void(Guards&, std::size_t)> on_leave;
  std::size_t number = 0;
};

}  // namespace

Lifetime in_shell(Shell shell, Epoch::Mark mark) {
  const auto run = [](void* self, std::uint64_t, StreamHandle stream) noexcept {
    shells().end(*static_cast<Kept*>(self), stream);
  };
  return Lifetime({.run = run, .self = shells().add(std::move(shell), mark)}, mark);
}

MemoryPointer in_shell(MemoryPointer memory, OnEnd on_end) {
  const auto ptr = memory.device_pointer();
  const auto size = memory.size();
  auto up = std::move(memory).take_lifetime();
  const auto mark = up.mark();
  return {ptr, size, in_shell(Shell{std::move(up), ptr.value, size, std::move(on_end)}, mark)};
}

ManagedMemory in_shell(ManagedMemory memory, OnEnd on_end) {
  return ManagedMemory(in_shell(std::move(memory.memory()), std::move(on_end)));
}

HostMemory in_shell(HostMemory memory, OnEnd on_end, std::shared_ptr<const void> owner) {
  const auto wrap = [&](HostRange range, Lifetime up) {
    const auto mark = up.mark();
    const auto address = reinterpret_cast<std::uint64_t>(range.pointer);
    return in_shell(Shell{std::move(up), address, range.size, std::move(on_end)}, mark);
  };
  if (auto* mapped = std::get_if<MappedMemory>(&memory)) {
    const HostRange range{mapped->host_pointer(), mapped->size()};
    const auto device = mapped->device_pointer();
    return MappedMemory(range, device, wrap(range, std::move(*mapped).take_lifetime()),
                        std::move(owner));
  }
  auto& pinned = std::get<PinnedMemory>(memory);
  const HostRange range{pinned.host_pointer(), pinned.size()};
  return PinnedMemory(range, wrap(range, std::move(pinned).take_lifetime()), std::move(owner));
}

void shell_memalloc(WrongManager& m, OnEnd on_end) {
  m.on_memalloc = [&m, on_end](auto size, auto stream) -> Result<MemoryPointer> {
    auto memory = m.up->memalloc(size, stream);
    if (!memory) return memory;
    return in_shell(*std::move(memory), on_end);
  };
}

void shell_managed(WrongManager& m, OnEnd on_end) {
  m.on_memallocmanaged = [&m, on_end](auto size, auto attach) -> Result<ManagedMemory> {
    auto memory = m.up->memallocmanaged(size, attach);
    if (!memory) return memory;
    return in_shell(*std::move(memory), on_end);
  };
}

void shell_hosted(WrongManager& m, bool mapped, OnEnd on_end) {
  m.on_memhostalloc = [&m, mapped, on_end](auto size, auto flags) -> Result<HostMemory> {
    auto memory = m.up->memhostalloc(size, flags);
    if (!memory || flags.mapped != mapped) return memory;
    return in_shell(*std::move(memory), on_end);
  };
}

void shell_pinned(WrongManager& m, OnEnd on_end) {
  m.on_mempin = [&m, on_end](auto range, auto flags, auto owner) -> Result<HostMemory> {
    auto memory = m.up->mempin(range, flags, owner);
    if (!memory) return memory;
    return in_shell(*std::move(memory), on_end, std::move(owner));
  };
}

std::shared_ptr<Guards> count_guards(WrongManager& m, Hook<void(Guards&, std::size_t)> on_leave) {
  auto guards = std::make_shared<Guards>();
  auto leavings = std::make_shared<std::list<Leaving>>();
  m.memory = leavings;
  m.on_defer_cleanup = [&m, guards, leavings = leavings.get(), on_leave] {
    const std::lock_guard lock(guards->mutex);
    if (guards->alive++ == 0) guards->real = m.up->defer_cleanup();
    leavings->push_back({guards, on_leave, guards->alive});
    const auto leave = [](void* self) noexcept {
      auto& [all, told, number] = *static_cast<Leaving*>(self);
      const std::lock_guard held(all->mutex);
      const auto before = all->alive--;
      if (told) told(*all, number == before ? 0 : number);
      if (all->alive == 0) all->real.end();
    };
    return DeferCleanup(leave, &leavings->back());
  };
  return guards;
}

ManagerFactory wrong_factory(ManagerFactory factory, Hook<void(WrongManager&)> make) {
  auto name = factory.name;
  return {.name = std::move(name),
          .make = [factory = std::move(factory), make = std::move(make)](
                      ManagerContext context) -> Result<std::unique_ptr<MemoryManager>> {
            if (context.driver == nullptr) return factory.make(context);
            auto manager = std::make_unique<WrongManager>();
            manager->driver = std::make_unique<WrongDriver>(*context.driver);
            context.driver = manager->driver.get();
            manager->context = context;
            auto up = factory.make(context);
            if (!up) return std::move(up).error();
            manager->up = *std::move(up);
            make(*manager);
            return std::unique_ptr<MemoryManager>(std::move(manager));
          }};
}

conformance::Subject subject_of(const Mutant& mutant) {
  auto upstream = find_manager(mutant.over);
  EMM_ASSERT(upstream);
  conformance::Subject subject{.manager = std::string(mutant.over),
                               .promise = conformance::promise_of(mutant.over)};
  if (mutant.clause == "ERR-6" || mutant.clause == "errors/callbacks")
    subject.patience = std::chrono::milliseconds(300);
  if (mutant.over.find("profile=numba") != std::string_view::npos) subject.profile = Profile::numba;
  subject.factory = *std::move(upstream);
  if (mutant.make != nullptr)
    subject.factory = wrong_factory(std::move(subject.factory), mutant.make);
  subject.with_options =
      [mutant, wrong = subject.factory](std::string_view options) -> Result<ManagerFactory> {
    if (mutant.clause == "errors/options") return wrong;
    const auto has_some = mutant.over.find(':') != std::string_view::npos;
    return find_manager(text::format("{}{}{}", mutant.over, has_some ? "," : ":", options));
  };
  return subject;
}

}  // namespace emm::mutants
