#include "conformance/spy.hpp"

// PTR, the part of RST about dead pointers, and the parts of the queue that no manager shows.
// Judged on emmctl's own.

namespace emm {
namespace {

using namespace emm::conformance;

/// Memory that belongs to no manager and counts its frees.
struct Counted {
  int ends = 0;
  Epoch epoch;

  MemoryPointer memory(Bench& b) {
    const auto run = [](void* self, std::uint64_t, StreamHandle) noexcept {
      ++static_cast<Counted*>(self)->ends;
    };
    return own_of(b).make_pointer({{0x1000}, 100}, {.run = run, .self = this}, epoch.mark());
  }
};

/// Makes the check of a clause about a pointer to counted memory.
template <class Check>
constexpr auto of_counted_memory(Check) {
  return [](Bench& b) {
    Counted counted;
    auto memory = counted.memory(b);
    Check()(b, counted, memory);
  };
}

/// Makes the check of a clause about the first reference to counted memory.
template <class Check>
constexpr auto of_shared_memory(Check) {
  return [](Bench& b) {
    Counted counted;
    auto first = own_of(b).own(counted.memory(b));
    Check()(b, counted, first);
  };
}

constexpr Clause kOwnPointersClauses[] = {
    {.id = "PTR-1",
     .rule = "A pointer has the address, the size and the finalizer that it was made with; without "
             "one it owns nothing.",
     .source = "NBEP 7; drv:1640-1655",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "PTR-9 PTR-12",
     .check = of_counted_memory([](Bench& b, Counted&, MemoryPointer& memory) {
       const auto foreign = own_of(b).make_pointer({{0x2000}, 8}, {}, {});
       b.expect_equal("address", memory.device_pointer().value, 0x1000u);
       b.expect_equal("size", memory.size(), 100u);
       b.expect(memory.is_managed() && !foreign.is_managed(), "with a finalizer and without",
                "managed otherwise", "managed with one alone");
     })},

    {.id = "PTR-2",
     .rule = "A pointer's end runs its finalizer, once.",
     .source = "drv:1606-1638; T:test_user_extension",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "PTR-3 PTR-6 PTR-10",
     .check = of_counted_memory([](Bench& b, Counted& counted, MemoryPointer& memory) {
       {
         const auto moved = std::move(memory);
         b.expect_equal("finalizers run while the pointer lives", counted.ends, 0);
       }
       b.expect_equal("finalizers run by its end", counted.ends, 1);
     })},

    {.id = "PTR-3",
     .rule = "Shared memory ends with the last of its references.",
     .source = "drv:1719-1732",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "PTR-4 PTR-10",
     .check = of_shared_memory([](Bench& b, Counted& counted, OwnedPointer& first) {
       auto second = first;
       first = {};
       b.expect_equal("finalizers after the first of two references ended", counted.ends, 0);
       second = {};
       b.expect_equal("... after the second", counted.ends, 1);
     })},

    {.id = "PTR-4",
     .rule = "References to shared memory are counted.",
     .source = "drv:1660, 1848-1875",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "PTR-3 PTR-10",
     .check = of_shared_memory([](Bench& b, Counted&, OwnedPointer& first) {
       b.expect_equal("references after own()", first.references(), 1);
       {
         // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the copy counts
         const auto second = first;
         b.expect_equal("... with a copy", first.references(), 2);
       }
       b.expect_equal("... after its end", first.references(), 1);
     })},

    {.id = "PTR-5",
     .rule = "free() ends memory now; again it is \"Freeing dead memory\"; of memory that owns "
             "nothing it does nothing.",
     .source = "drv:1663",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "RST-6",
     .check = of_counted_memory([](Bench& b, Counted& counted, MemoryPointer& memory) {
       b.expect_ok("free()", own_of(b).free(memory));
       b.expect_equal("finalizers run by free()", counted.ends, 1);
       b.expect_error("free(), again", own_of(b).free(memory), Errc::dead_pointer,
                      "Freeing dead memory");
       auto foreign = own_of(b).make_pointer({{0x2000}, 8}, {}, {});
       for (int i = 0; i < 2; ++i)
         b.expect_ok("free() of memory that owns nothing", own_of(b).free(foreign));
     })},

    {.id = "PTR-6",
     .rule = "free() ends shared memory at once, whoever refers to it; the ends of the references "
             "are silent.",
     .source = "drv:1663",
     .level = Level::quirk,
     .scope = Scope::own,
     .check = of_shared_memory([](Bench& b, Counted& counted, OwnedPointer& first) {
       {
         // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the copy counts
         const auto second = first;
         b.expect_ok("free()", own_of(b).free(first));
         b.expect_equal("finalizers run by free() with two references", counted.ends, 1);
         b.expect(!second.alive(), "the other reference", "alive", "dead");
         first = {};
       }
       b.expect_equal("finalizers run in all", counted.ends, 1);
     })},

    {.id = "PTR-7",
     .rule = "Memory that is dead is dead when it is owned.",
     .source = "drv:1663, 1719",
     .level = Level::quirk,
     .scope = Scope::own,
     .check = of_counted_memory([](Bench& b, Counted&, MemoryPointer& memory) {
       b.expect_ok("free()", memory.free());
       auto owned = own_of(b).own(std::move(memory));
       b.expect(!owned.alive(), "own() of dead memory", "alive", "dead");
       b.expect_error("free() of it", owned.free(), Errc::dead_pointer);
     })},

    {.id = "PTR-9",
     .rule = "A view has its start added and its own size, and views of views likewise.",
     .source = "drv:1682-1707; T:test_derived_pointer",
     .level = Level::must,
     .scope = Scope::own,
     .check = of_counted_memory([](Bench& b, Counted& counted, MemoryPointer& memory) {
       const auto outer = own_of(b).view(memory, 10);
       if (!b.expect_ok("view(10)", outer)) return;
       b.expect_equal("size of view(10) of 100", outer->size, 90u);
       const auto inner = own_of(b).view(memory, 15, 30);
       if (!b.expect_ok("view(15, 30)", inner)) return;
       b.expect_equal("address of view(15, 30)", inner->device_pointer.value, 0x100fu);
       b.expect_equal("size of view(15, 30)", inner->size, 15u);
       b.expect_equal("finalizers run", counted.ends, 0);
     })},

    {.id = "PTR-10",
     .rule = "A view of shared memory keeps it alive.",
     .source = "drv:1703",
     .level = Level::must,
     .scope = Scope::own,
     .check = of_shared_memory([](Bench& b, Counted& counted, OwnedPointer& owned) {
       auto view = own_of(b).view(owned, 10, 20);
       if (!b.expect_ok("view(10, 20)", view)) return;
       owned = {};
       b.expect_equal("finalizers run while a view lives", counted.ends, 0);
       *view = {};
       b.expect_equal("... after its end", counted.ends, 1);
     })},

    {.id = "PTR-11",
     .rule =
         "A negative size is refused, and a non-empty view of null; an empty one of null is null.",
     .source = "drv:1689-1697",
     .level = Level::must,
     .scope = Scope::own,
     .check = of_counted_memory([](Bench& b, Counted&, MemoryPointer& memory) {
       b.expect_error("view(20, 10)", own_of(b).view(memory, 20, 10), Errc::invalid_value,
                      "size cannot be negative");
       const auto null = own_of(b).make_pointer({}, {}, {});
       b.expect_error("view(0, 4) of null", own_of(b).view(null, 0, 4), Errc::invalid_value,
                      "non-empty slice into empty slice");
       b.expect_ok("view(0, 0) of null", own_of(b).view(null, 0, 0));
     })},

    {.id = "PTR-12",
     .rule = "A view lies inside its memory (numba does not look).",
     .source = "drv:1682-1707",
     .level = Level::quirk,
     .scope = Scope::own,
     .check = of_counted_memory([](Bench& b, Counted&, MemoryPointer& memory) {
       b.expect_error("view(90, 5000) of 100 bytes", own_of(b).view(memory, 90, 5000),
                      Errc::invalid_value);
       b.expect_ok("view(90, 100) of 100 bytes", own_of(b).view(memory, 90, 100));
     })},

    {.id = "PTR-22",
     .rule = "A finalizer runs at most once, whichever way memory ends.",
     .source = "weakref.finalize",
     .level = Level::must,
     .scope = Scope::own,
     .may_fail_with = "RST-6",
     .check = of_counted_memory([](Bench& b, Counted& counted, MemoryPointer& memory) {
       {
         b.expect_ok("free()", own_of(b).free(memory));
         auto moved = std::move(memory);
         const auto again = own_of(b).free(moved);
         counted.epoch.advance();
       }
       b.expect_equal("finalizers run by free, move, free, reset and end", counted.ends, 1);
     })},

    {.id = "RST-6",
     .rule = "After a reset a pointer is dead: it gives no view, cannot be freed, and its end does "
             "nothing.",
     .source = "drv:1848-1880",
     .level = Level::quirk,
     .scope = Scope::own,
     .check = of_counted_memory([](Bench& b, Counted& counted, MemoryPointer& memory) {
       counted.epoch.advance();
       b.expect(!memory.alive(), "a pointer after reset", "alive", "dead");
       b.expect_error("its view", own_of(b).view(memory, 0), Errc::dead_pointer);
       b.expect_error("its free()", own_of(b).free(memory), Errc::dead_pointer,
                      "Freeing dead memory");
       memory = {};
       b.expect_equal("finalizers run", counted.ends, 0);
     })},

    {.id = "PD-5",
     .rule = "The limits of a queue are looked at with each free: a count of 0 waits for none.",
     .source = "cfg:471, 476; drv:993-1009",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           PendingDeallocs queue(b.driver(), {});
           const auto ends_one = [&](std::optional<std::uint64_t> size) {
             const auto event = b.driver().event_create();
             if (event)
               b.expect_ok("add()", own_of(b).add(queue, Call::event_destroy, event->value, size));
           };
           queue.set_memory_capacity(1000);
           ends_one({});
           b.expect_equal("ends with a count of 10", b.ends(), 0u);
           queue.set_limits({.count = 0});
           ends_one({});
           b.expect_equal("ends with a count of 0", b.ends(), 2u);
           queue.set_limits({.ratio = 0});
           ends_one(1);
           b.expect_equal("ends of a sized item with a ratio of 0", b.ends(), 3u);
         }},

    {.id = "PD-7",
     .rule = "An item of no bytes does not cross the limit of bytes.",
     .source = "drv:993-1009",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           PendingDeallocs queue(b.driver(), {});
           queue.set_memory_capacity(1000);
           for (const auto size : {200u, 0u}) {
             const auto event = b.driver().event_create();
             if (event)
               b.expect_ok("add()", own_of(b).add(queue, Call::event_destroy, event->value, size));
           }
           b.expect_equal("ends at 200 of 1000 bytes and an item of 0", b.ends(), 0u);
           b.expect_ok("clear()", queue.clear());
         }},

    {.id = "PD-10",
     .rule = "What is queued while a flush goes on is ended by it too.",
     .source = "drv:1011-1022",
     .level = Level::should,
     .scope = Scope::own,
     .check =
         [](Bench& b) {
           PendingDeallocs queue(b.driver(), {});
           std::vector<EventHandle> events;
           for (int i = 0; i < 4; ++i) {
             if (const auto event = b.driver().event_create()) events.push_back(*event);
           }
           if (events.size() < 4) return b.inconclusive("no events");
           b.watch().during = [&, once = true](const CallEvent& event) mutable {
             if (event.call != Call::event_destroy || !std::exchange(once, false)) return;
             for (std::size_t i = 1; i < 4; ++i) {
               b.expect_ok("add() in a flush",
                           own_of(b).add(queue, Call::event_destroy, events[i].value, {}));
             }
           };
           b.expect_ok("add()", own_of(b).add(queue, Call::event_destroy, events[0].value, {}));
           b.expect_ok("clear()", own_of(b).clear(queue));
           b.watch().during = nullptr;
           b.expect_equal("ends by a flush in which three more were queued", b.ends(), 4u);
           b.expect_equal("left in the queue", queue.size(), 0u);
         }},
};

}  // namespace

extern constinit const ClauseGroup own_pointers_clauses{"emmctl's pointers and queue",
                                                        kOwnPointersClauses};

}  // namespace emm
