#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "tools/peers/ticks.hpp"

namespace emm::peers {

/// Launches a kernel that keeps its stream busy for a given time, as the work behind a request of a
/// program does: memory that is freed then stays in use for a while. It uses the context that is
/// current when it is made, and ends before that context.
class Kernels {
 public:
  /// Prints the reason on stderr where this machine cannot launch kernels.
  Kernels() {
    auto* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      std::fprintf(stderr, "--kernel: %s\n", ::dlerror());
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    int (*load)(void**, const void*) = nullptr;
    int (*function_of)(void**, void*, const char*) = nullptr;
    void* loaded = nullptr;
    if (!find(load, "cuModuleLoadData") || !find(function_of, "cuModuleGetFunction") ||
        !find(launch_, "cuLaunchKernel") || !find(unload_, "cuModuleUnload")) {
      std::fprintf(stderr, "--kernel: libcuda.so.1 lacks a function\n");
    } else if (const auto status = load(&loaded, kSpin); status != 0) {
      std::fprintf(stderr, "--kernel: cuModuleLoadData answers %d\n", status);
    } else if (module_ = loaded; function_of(&spin_, module_, "spin") != 0) {
      std::fprintf(stderr, "--kernel: the module has no function spin\n");
    }
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels() {
    if (module_ != nullptr) unload_(module_);
  }
  explicit operator bool() const noexcept { return spin_ != nullptr; }

  /// Returns the nanoseconds that the launch took of the host; nothing waits for the kernel. A
  /// launch waits where a thousand are already pending on the stream, which is no doing of an
  /// allocator.
  std::uint64_t launch(void* stream, std::uint64_t ns) const {
    void* parameters[] = {&ns};
    const auto begin = now_ns();
    const auto status = launch_(spin_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    if (status != 0) std::fprintf(stderr, "--kernel: cuLaunchKernel answers %d\n", status);
    return now_ns() - begin;
  }

 private:
  static constexpr const char* kSpin = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 spin_ns)
{
  .reg .pred %p;
  .reg .u64 %ns, %now, %end;
  ld.param.u64 %ns, [spin_ns];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %now, %ns;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %p, %now, %end;
  @%p bra again;
  ret;
}
)";
  using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void*, void**, void**);
  Launch* launch_ = nullptr;
  int (*unload_)(void*) = nullptr;
  void *module_ = nullptr, *spin_ = nullptr;
};

}  // namespace emm::peers
