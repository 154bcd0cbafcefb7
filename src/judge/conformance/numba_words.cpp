#include "conformance/numba_words.hpp"

#include <algorithm>
#include <iterator>

namespace emm::conformance {
namespace {

constexpr std::string_view kFinalizer =
    "The finalizer of a MemoryPointer frees its memory, once, when the pointer ends.";
constexpr std::string_view kMemalloc =
    "memalloc(size) allocates size bytes in the context and gives a MemoryPointer to them.";
constexpr std::string_view kMempin =
    "mempin(owner, pointer, size, mapped) pins size bytes at pointer, and maps them if mapped.";
constexpr std::string_view kInfo =
    "get_memory_info() gives the free and the total bytes, in this order.";
constexpr std::string_view kIpc =
    "get_ipc_handle(memory) gives an IpcHandle with the offset of memory in its allocation.";
constexpr std::string_view kReset = "An overriding reset() calls super().reset().";
constexpr std::string_view kGuard =
    "An overriding defer_cleanup() holds super().defer_cleanup() while it is active.";
constexpr std::string_view kVersion = "interface_version is a property, an int, which is 1.";
constexpr std::string_view kInitialize = "initialize() may be called many times.";

constexpr NumbaWords kWords[] = {
    {"class/registers",
     "set_memory_manager() raises, and NUMBA_CUDA_MEMORY_MANAGER ends in \"Failed to use memory "
     "manager\".",
     kVersion},
    {"SEL-4", "set_memory_manager() raises.", kVersion},
    {"SEL-5", "The import of the plugin starts CUDA. A program that forks later cannot use it.",
     "The manager is made with context=None to ask its version."},
    {"BASE-5", "The first array, or the first pinned one, ends in AttributeError.",
     "An __init__ calls super().__init__(context=context)."},
    {"class/initialize", "Every free is made at once, and each waits for the device.", kInitialize},
    {"INI-2", "Each array calls initialize() again: live arrays lose their memory.", kInitialize},
    {"INI-6", "The first array of a program fails.", kInitialize},
    {"RST-4", "After cuda.close() host memory stays page-locked until the program ends.", kReset},
    {"RST-2", "After cuda.close() memory stays taken until the program ends.", kReset},
    {"RST-3", "cuda.close() fails where no array was made.",
     "reset() may be called before initialize()."},
    {"DFR-2", "with cuda.defer_cleanup() fails.", "defer_cleanup() gives a context manager."},
    {"DFR-3", "Frees inside cuda.defer_cleanup() wait for kernels that run.", kGuard},
    {"DFR-4", "Frees of host memory inside cuda.defer_cleanup() wait for kernels that run.",
     kGuard},
    {"class/guard",
     "with cuda.defer_cleanup() raises, hides the program's exception, or never frees again.",
     "defer_cleanup() gives a context manager."},
    {"INF-1", "cuda.current_context().get_memory_info() misleads.", kInfo},
    {"INF-7", "get_memory_info().free is an AttributeError, or cannot be compared.",
     "get_memory_info() gives a MemoryInfo."},
    {"memory_info/true",
     "A program that looks how much fits asks for too much, or leaves memory unused.", kInfo},
    {"PTR-14", "The first copy, slice or kernel of an array fails, or reaches another address.",
     "A MemoryPointer is made of the context, a ctypes pointer and the size."},
    {"DEV-1",
     "The first array of a program fails, or its copies and slices reach beyond its memory.",
     kMemalloc},
    {"class/slice_end", "The end of a slice frees its array: later kernels read memory of others.",
     "A MemoryPointer frees when it ends, an AutoFreePointer when no reference by own() is left."},
    {"class/end", "del array frees nothing. Memory runs out after a while.",
     "The finalizer may not keep the pointer: it would never end."},
    {"class/room", "Memory is out although nearly nothing lives. The program grows until it ends.",
     kMemalloc},
    {"class/collected", "After each cuda.close() one manager more stays, with what it holds.",
     "Each context has a manager of its own."},
    {"deferral/nests",
     "The end of an inner defer_cleanup() makes the frees that the outer one holds.",
     "defer_cleanup() may be nested, and holds until the last one ends."},
    {"threads/ended", "Memory of an array that another thread drops does not serve again.",
     kFinalizer},
    {"class/finalizer",
     "Python prints \"Exception ignored in\" where an array ends. What stood behind in the "
     "finalizer is lost.",
     kFinalizer},
    {"class/finalizer_thread",
     "An array that ends on another thread prints an exception, and its memory is lost.",
     kFinalizer},
    {"class/finalizer_exit", "The program prints a traceback when it ends.",
     "A finalizer may run after reset() and when the program ends."},
    {"class/fork", "A worker of multiprocessing hangs or dies.", kFinalizer},
    {"class/keywords", "TypeError where a caller names the argument, as the documentation does.",
     "The methods are memalloc(size), memhostalloc(size, mapped, portable, wc), mempin(owner, "
     "pointer, size, mapped) and get_ipc_handle(memory)."},
    {"class/out_of_memory",
     "A program that catches out of memory, to free something, ends instead.", kMemalloc},
    {"errors/out_of_memory",
     "A program that catches out of memory, to free something, ends instead.", kMemalloc},
    {"errors/passed_on", "The user reads another error than the device's.", kMemalloc},
    {"DEV-12", "Memory is out although frees wait: Numba does not make them.",
     "_attempt_allocation() frees what waits, where CudaAPIError says out of memory, and tries "
     "again."},
    {"class/ipc_handle", "Another process cannot be sent the array, or it is freed under it.",
     "An IpcHandle has the memory as its base, which keeps it."},
    {"class/staged",
     "Where devices cannot reach each other, an array from another process is dead.",
     "A staged handle is opened by memory that the destination's manager gives."},
    {"class/named",
     "RuntimeError: Failed to use memory manager from MODULE; or Numba has its own manager.",
     "NUMBA_CUDA_MEMORY_MANAGER names a module, whose _numba_memory_manager is the class. It may "
     "be imported before CUDA is initialized."},
    {"class/reset", "cuda.close() raises, or no array can be made after it.",
     "reset() may be called before initialize(), and again."},
    {"flags/memhostalloc",
     "Page-locked memory is cached, shared or mapped other than was asked for.",
     "memhostalloc() has the arguments mapped, portable and wc."},
    {"flags/memallocmanaged", "Managed memory belongs to other streams than was asked for.",
     "Managed memory is no part of NBEP 7. Numba calls memallocmanaged(size, attach_global)."},
    {"class/devices", "Kernels on the second device fail, or read over the bus.", kMemalloc},
    {"class/contexts", "Later arrays and kernels go to another device, or contexts pile up.",
     "The methods are called while their context is current."},
    {"class/threads", "Two threads that make arrays have each other's memory, once in a while.",
     kMemalloc},
    {"class/zero", "AttributeError: 'NoneType' object has no attribute 'size'.", kMemalloc},
    {"IPC-2", "Another process opens another place of the allocation, and reads wrong bytes.",
     kIpc},
    {"IPC-3", "Another process opens another place of the allocation, and reads wrong bytes.",
     kIpc},
    {"IPC-4", "Another process opens another array than was sent.", kIpc},
    {"class/owner", "Pinned memory is freed while the device copies, or never.",
     "mempin(owner, ...) keeps the owner while the memory is pinned."},
    {"class/host_buffer",
     "cuda.pinned_array() or cuda.mapped_array() fails, or has another length.",
     "memhostalloc() gives MappedMemory if mapped, else PinnedMemory."},
    {"live/overlap_address", "Two arrays overwrite each other.", kMemalloc},
    {"live/overlap_content", "Two arrays overwrite each other.", kMemalloc},
    {"suite/alignment", "Kernels that read vectors end in \"misaligned address\".", kMemalloc},
    {"suite/sizes", "Kernels write beyond an array's memory, into that of others.", kMemalloc},
    {"suite/size_zero", "An empty array shares the memory of another, and frees it when it ends.",
     kMemalloc},
    {"suite/too_large", "An array that no device can hold is given, or is waited for without end.",
     kMemalloc},
    {"errors/callbacks", "After an error of the device, arrays are given that are no memory.",
     kMemalloc},
    {"random/program", "A program ends in an error, or reads what it did not write.", kMemalloc},
    {"deferral/threads",
     "While one thread is in cuda.defer_cleanup(), others free, or wait without end.", kGuard},
    {"deferral/reset", "After cuda.close() inside cuda.defer_cleanup() frees wait for ever.",
     kGuard},
    {"flags/mempin", "cuda.mapped() gives an array that kernels cannot read.", kMempin},
    {"flags/region", "cuda.pinned() page-locks other bytes than the array's.", kMempin},
    {"PIN-7", "The end of one cuda.pinned() unpins what another holds.", kMempin},
    {"PIN-10", "cuda.pinned() of an array fails where it was pinned before.",
     "The end of a pinned region gives it up at once, not with the frees that wait."},
    {"accounts/balance", "The device's memory is gone until the program ends.", kFinalizer},
    {"DEV-11",
     "An array that ends after cuda.close() prints an exception, or frees memory of others.",
     "A finalizer may run after reset()."},
    {"reset/late_ends",
     "An array that ends after cuda.close() prints an exception, or frees memory of others.",
     "A finalizer may run after reset()."},
    {"ERR-5", "An array that ends on another thread is not freed.", kFinalizer},
    {"abi/harmless", "The program ends, or waits for ever.", "No method ends the program."},
};

}  // namespace

const NumbaWords* find_numba_words(std::string_view id) noexcept {
  const auto* const found = std::find_if(std::begin(kWords), std::end(kWords),
                                         [&](const NumbaWords& one) { return one.id == id; });
  return found != std::end(kWords) ? found : nullptr;
}

}  // namespace emm::conformance
