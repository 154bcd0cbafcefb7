#include "conformance/clause.hpp"

// The clauses of the contract that nobody is judged by, and why. With those of clauses/ they are all 200.

namespace emm::conformance {
namespace {

constexpr Unjudged kUnjudged[] = {
    {"SEL-8", "One implementation for all contexts is the intended use.", "NBEP 7", "no requirement; SEL-6 shows that mixtures are possible"},
    {"SEL-14", "The variable names a Python module.", "NBEP 7, DOC", "here it names a manager: SEL-10"},
    {"SEL-16", "A manager that lacks a method cannot be registered.", "drv:589-702", "a type error: pure virtual methods"},
    {"SEL-17", "Which names are exported.", "device_init.py", "a header is what it is"},
    {"BASE-1", "A manager is made with a context.", "drv:592-595", "a type error: the factory takes one"},
    {"BASE-2", "The context is reachable from the manager.", "drv:595", "a matter of the manager's own fields"},
    {"BASE-3", "Nine methods.", "NBEP 7; drv:589-702", "a type error: pure virtual methods"},
    {"BASE-5", "Who derives calls the parent's constructor.", "NBEP 7", "a type error"},
    {"BASE-6", "Methods are called by the framework, with the context current.", "NBEP 7", "the driver seam makes it current around every call"},
    {"BASE-9", "No method has a stream in NBEP 7.", "NBEP 7", "here memalloc has an optional one"},
    {"CTX-6", "IPC is refused where the system has none.", "drv:1190", "emmctl is for Linux alone"},
    {"CTX-11", "Only primary contexts are supported.", "dev:155-166", "the driver seam opens no other"},
    {"CTX-14", "There is no memunpin.", "NBEP 7", "nothing to call"},
    {"CTX-15", "Contexts are equal by handle.", "drv:1294", "contexts are not compared here"},
    {"DEV-12", "A host-only plugin may use the parent's retry.", "drv:728", "a protected method; MAN-2 judges what it does"},
    {"HST-4", "Which memory is recorded under which key.", "drv:769-779", "not to be seen from outside; RST-5 judges what follows from it"},
    {"HST-10", "Portable memory is pinned for all contexts.", "drv:755", "the driver's; HST-1 judges that the flag arrives"},
    {"PIN-6", "The record goes before the region is unpinned.", "drv:1366", "not to be seen from outside"},
    {"PIN-9", "The caller keeps the region alive through the owner.", "NBEP 7", "asked of callers"},
    {"MAN-5", "NBEP 7 lists managed memory as unsupported.", "NBEP 7", "no rule"},
    {"MAN-6", "A memset falls back to the host by is_managed.", "drv device_memset", "there is no memset of objects here"},
    {"DFR-4", "A subclass holds the parent's guard with its own.", "NBEP 7", "asked of all host-only managers by DFR-3"},
    {"DFR-5", "A plugin says what defer_cleanup means for it.", "NBEP 7", "asked of its documentation"},
    {"DFR-9", "Where the manager's guard fails, the queue is not held.", "drv:1286", "a guard cannot fail here"},
    {"RST-4", "A subclass calls the parent's reset.", "NBEP 7", "asked of all host-only managers by RST-2"},
    {"RST-13", "In close, frees run without a current context.", "dev:189-205", "the driver seam makes it current"},
    {"INF-3", "HostOnly does not tell memory info.", "drv:705", "it may; here it does"},
    {"INF-6", "A pool may tell the pool's figures.", "the tutorial", "both are legal"},
    {"INF-7", "A plain tuple will do.", "NBEP 7", "a type error"},
    {"PTR-8", "A pointer owns itself unless it has an owner.", "drv:1656", "there is no owner of device memory here"},
    {"PTR-13", "Which ctypes a pointer gives.", "drv:1711", "Python's"},
    {"PTR-14", "Which types a pointer may be made of.", "drv:1641", "one type here"},
    {"PTR-15", "memset of a pointer.", "drv:1673", "pointers have none here"},
    {"PTR-16", "Mapped memory is a pointer and a host buffer.", "drv:1735-1773", "asked of managers by HST-6 and HST-11"},
    {"PTR-17", "Pinned memory is no device pointer.", "drv:1775-1811", "a type error; HST-2 judges which it is"},
    {"PTR-18", "Managed memory is a buffer at its device address.", "drv:1813", "asked of managers by MAN-4"},
    {"PTR-19", "An owned pointer answers for its view.", "drv:1848-1880", "it is one object here; PTR-9 and PTR-10 judge views"},
    {"PTR-20", "What is device memory.", "drv", "a type"},
    {"PTR-21", "Sizes of foreign memory come from the driver.", "drv device_extents", "foreign memory has its size here"},
    {"PTR-23", "The constructor's signature is stable.", "git", "asked of releases"},
    {"IPC-5", "Legacy IPC works for cuMemAlloc's memory alone.", "CUDA", "the driver's; IPC-2 judges that the rest is declined"},
    {"IPC-12", "The exporter frees after the importer has closed.", "drv:1432", "asked of two programs"},
    {"IPC-19", "Arrays of handles.", "drv:1560, da:793", "there is no array layer here"},
    {"IPC-20", "Exporting host memory fails.", "drv", "a type error: it has no view of device memory"},
    {"IPC-21", "Linux alone.", "drv:80", "emmctl is for Linux alone"},
    {"OBJ-6", "Memory of kernels is not the manager's.", "nrt.py, drv:2157", "no kernels run here"},
    {"ARR-1", "Arrays ask for their extent, once.", "da:108-118", "there is no array layer here"},
    {"ARR-2", "Empty arrays ask for nothing.", "da:118-124", "there is no array layer here"},
    {"ARR-3", "Streams of arrays do not reach the allocator.", "da, api", "there is no array layer here"},
    {"ARR-4", "Mapped arrays drop portable and wc.", "api:211-260", "there is no array layer here"},
    {"ARR-5", "managed_array asks for managed memory.", "api:172", "there is no array layer here"},
    {"ARR-6", "Slicing is a view.", "da", "there is no array layer here"},
    {"ARR-7", "Foreign arrays own nothing.", "api:25-64", "there is no array layer here"},
    {"ARR-8", "Arguments of kernels bypass the manager.", "da:1060-1076", "there is no array layer here"},
    {"ERR-8", "Contexts are shared between threads.", "dev", "asked of managers by suite/threads and PD-17"},
};

}  // namespace

std::span<const Unjudged> unjudged_clauses() noexcept { return kUnjudged; }

}  // namespace emm::conformance
