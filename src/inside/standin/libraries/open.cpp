// What a generated library calls when it is loaded: it fills the slots of the functions that are
// answered, and puts the counters of the others into a file that `emmctl run` reads.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/handles.hpp"

namespace {

extern "C" [[gnu::visibility("default")]] void emm_standin_open(void**, const Elf64_Sym*,
                                                                const char*, unsigned,
                                                                std::uint64_t*, unsigned);

void* self() {
  static void* const handle = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&emm_standin_open), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return handle;
}

/// A setting in the generated library's strings; null if it has none of that name.
const char* setting(const char* strings, std::string_view name) {
  for (const char* at = strings + 1; *at != '\0'; at += std::strlen(at) + 1) {
    if (std::string_view(at).starts_with(name) && at[name.size()] == '=')
      return at + name.size() + 1;
  }
  return nullptr;
}

void put_in_file(const char* path, std::uint64_t* counters, std::size_t size) {
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;                // then they are counted, and nobody reads it
  constexpr std::size_t kPage = 4096;  // bytes: the library gives the counters whole pages
  const auto whole = (size + kPage - 1) / kPage * kPage;
  mmap(counters, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  ::close(file);
}

int not_answered() { return 801; }  // cannot happen: emmctl asks which are answered

extern "C" [[gnu::visibility("default")]] void emm_standin_open(
    void** slots, const Elf64_Sym* symbols, const char* strings, unsigned forwarded,
    std::uint64_t* counters, unsigned counted) {
  if (const char* const major = setting(strings, "EMM_STANDIN_CUDART"); major != nullptr)
    emm::standin::cudart::program_version = std::atoi(major) * 1000;
  const char* const target = setting(strings, "EMM_STANDIN_TARGET");
  void* const answers = target != nullptr ? dlopen(target, RTLD_NOW | RTLD_LOCAL) : self();
  if (answers == nullptr) std::fprintf(stderr, "emmctl: --device sim: %s\n", dlerror());
  for (unsigned i = 0; i < forwarded; ++i) {
    const char* const name = strings + symbols[i].st_name;
    // A function may be another one in each CUDA: "cudaGetDeviceProperties_of_12".
    char versioned[256];
    std::snprintf(versioned, sizeof versioned, "%s_of_%d", name, emm::standin::cuda_version());
    void* found = answers != nullptr ? dlsym(answers, versioned) : nullptr;
    if (found == nullptr && answers != nullptr) found = dlsym(answers, name);
    if (found == nullptr && answers != nullptr) {
      // "_ptsz" and "_ptds": the same for the thread's own default stream
      std::string_view shortened = name;
      if (shortened.ends_with("_ptsz") || shortened.ends_with("_ptds"))
        shortened.remove_suffix(std::strlen("_ptsz"));
      std::snprintf(versioned, sizeof versioned, "%.*s", static_cast<int>(shortened.size()),
                    shortened.data());
      found = dlsym(answers, versioned);
    }
    slots[i] = found != nullptr ? found : reinterpret_cast<void*>(&not_answered);
  }
  if (const char* const path = setting(strings, "EMM_STANDIN_COUNTS");
      path != nullptr && counted != 0)
    put_in_file(path, counters, counted * sizeof *counters);
}

}  // namespace

namespace emm::standin {

int cuda_version() noexcept { return cudart::program_version / 1000; }

}  // namespace emm::standin
