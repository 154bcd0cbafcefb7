#include "conformance/bench.hpp"

// What only an NBEP 7 class of Python's can do wrong. src/inside/libemm/python_questions.py has the
// question of each clause, under the clause's id.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr void (*kAsk)(Bench&) = [](Bench& b) { b.ask_class(); };

constexpr Clause of_class(std::string_view id, Level level, std::string_view source,
                          std::string_view rule) {
  return {.id = id,
          .rule = rule,
          .source = source,
          .level = level,
          .scope = Scope::all,
          .may_fail_with = "*",
          .of_class = true,
          .check = kAsk};
}

constexpr Clause kPythonClassClauses[] = {
    of_class("class/registers", Level::must, "NBEP 7, interface_version; SEL-3; drv:937-957",
             "set_memory_manager() takes the class: interface_version is a property, the int 1."),
    of_class("class/named", Level::must, "NBEP 7, import order; SEL-5; SEL-10",
             "A program that names the module in NUMBA_CUDA_MEMORY_MANAGER has the class from its "
             "first context on, and the import asks nothing of CUDA."),
    of_class("BASE-5", Level::must, "NBEP 7; drv:592-595, 723-726",
             "An __init__ calls that of Numba's class, which keeps the context and makes the "
             "records of host memory."),
    of_class("class/initialize", Level::should, "NBEP 7, initialize; drv:885-889; INI-2; INI-3",
             "A second initialize() keeps what the first made; one over Numba's own manager calls "
             "that one's, which sets the bytes of frees that may wait."),
    of_class("RST-4", Level::must, "NBEP 7",
             "A reset() over HostOnlyCUDAMemoryManager calls that one's, which ends host memory."),
    of_class("class/reset", Level::must, "NBEP 7, reset; RST-3",
             "reset() raises nothing before initialize() and a second time, and memory can be had "
             "after it."),
    of_class("DFR-4", Level::must, "NBEP 7",
             "A defer_cleanup() over HostOnlyCUDAMemoryManager holds that one's with its own."),
    of_class("class/guard", Level::must, "NBEP 7, defer_cleanup; DFR-2; DFR-8",
             "defer_cleanup() gives a context manager, which nests, yields once and lets the "
             "program's exceptions through."),
    of_class("INF-7", Level::should, "DOC; NBEP 7, get_memory_info; INF-1",
             "get_memory_info() gives a MemoryInfo of two ints."),
    of_class("PTR-14", Level::must, "drv:1641; PTR-13",
             "The pointer of memory is of a type that Numba copies with, slices and passes to "
             "kernels, and memory has its context."),
    of_class("class/slice_end", Level::must, "PTR-2; PTR-10; drv:1660-1732",
             "The end of a slice frees nothing while the memory under it lives."),
    of_class(
        "class/end", Level::must, "NBEP 7, MemoryPointer; PTR-2",
        "Memory ends with its last reference: neither its finalizer nor the manager keeps it."),
    of_class("class/room", Level::must, "NBEP 7, memalloc; RMM, pool_mr_tests",
             "Where all memory has ended, its room serves requests of other sizes."),
    of_class("class/devices", Level::must, "NBEP 7, memalloc; DEV-1",
             "Memory is of the device whose context asks, also where another device's was freed."),
    of_class("class/contexts", Level::must, "NBEP 7; BASE-6",
             "A method leaves the thread's contexts as they were, and so does a finalizer."),
    of_class("class/collected", Level::should, "drv:1294; CTX-15",
             "A manager is collected once its context and its memory have ended."),
    of_class("class/finalizer", Level::must, "NBEP 7, finalizer; DEV-11; ERR-2",
             "A finalizer raises nothing, also after reset(), and neither waits for a request nor "
             "breaks "
             "one: the garbage collector may run it inside of one."),
    of_class(
        "class/threads", Level::must, "NBEP 7, memalloc; ERR-8",
        "A request of one thread is served as if another thread's came not between its lines."),
    of_class("class/finalizer_thread", Level::must, "ERR-5",
             "A finalizer raises nothing on a thread without a context."),
    of_class("class/finalizer_exit", Level::must, "DEV-11; ERR-3; ERR-4",
             "A finalizer raises nothing at the end of the program."),
    of_class("class/fork", Level::should, "ERR-7",
             "In a child of fork() the end of memory neither raises, waits nor ends the child."),
    of_class("class/keywords", Level::should, "NBEP 7; drv:589-702",
             "The methods take NBEP 7's parameters, by place and by name."),
    of_class("class/out_of_memory", Level::must, "NBEP 7; drv:147, 728-745; ERR-1",
             "Where memory is out, memalloc() raises what a program can catch as such."),
    of_class("class/zero", Level::should, "NBEP 7, memalloc; DEV-2",
             "memalloc(0) gives memory of 0 bytes or raises, and gives no None."),
    of_class("DEV-12", Level::must, "drv:728-745",
             "What is tried through _attempt_allocation() raises CudaAPIError with the code 2 "
             "where memory is out, so that Numba frees what waits and tries again."),
    of_class("class/ipc_handle", Level::must, "NBEP 7, IpcHandle; IPC-1; IPC-17",
             "get_ipc_handle() gives an IpcHandle that can be pickled and keeps the memory."),
    of_class("class/staged", Level::must, "NBEP 7, Staged IPC; IPC-13",
             "Another program with the class opens a slice's handle by way of memory of its own, "
             "which lives as long as the program keeps it."),
    of_class("class/owner", Level::must, "NBEP 7, mempin; PIN-4",
             "The owner of a pinned region lives as long as the memory, and no longer."),
    of_class(
        "class/host_buffer", Level::must, "NBEP 7, memhostalloc; HST-2; HST-11",
        "Host memory is a buffer of its size; it is device memory besides where it is mapped, and "
        "only there."),
};

}  // namespace

extern constinit const ClauseGroup python_class_clauses{"Beyond the catalogue: classes of Python's",
                                                        kPythonClassClauses};

}  // namespace emm
