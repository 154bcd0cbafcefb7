// A program of CUDA 13 with a shared cudart and a cuBLAS, which asks for what its arguments say.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, std::size_t, int);
int cudaMemGetInfo(std::size_t*, std::size_t*);
int cudaGetDeviceCount(int*);
int cudaSetDevice(int);
int cudaStreamCreate(void**);
int cudaStreamDestroy(void*);
int cudaEventCreate(void**);
int cudaEventRecord(void*, void*);
int cudaEventDestroy(void*);
int cudaGetLastError();
const char* cudaGetErrorName(int);
int cudaDeviceGetAttribute(int*, int, int);
int cudaLaunchKernel(const void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void**, std::size_t, void*);
int cublasCreate_v2(void**);
int cublasDestroy_v2(void*);
int cublasGetVersion_v2(void*, int*);
int cublasSetStream_v2(void*, void*);
int cublasGetStream_v2(void*, void**);
int cublasSgemm_v2();
int cublasWonder();
}

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Exits with 1 where the request is refused, as a program does that does not expect it.
void* take(std::size_t mib) {
  void* memory = nullptr;
  if (const auto code = cudaMalloc(&memory, mib * kMiB); code != 0) {
    std::printf("malloc of %zu MiB: %s\n", mib, cudaGetErrorName(code));
    std::exit(1);
  }
  return memory;
}

/// An engine that takes what is left: after its weights, and the peak of a run that it gives back.
int serves(std::size_t weights) {
  take(weights);
  cudaFree(take(2 * weights));
  std::size_t free = 0, whole = 0;
  cudaMemGetInfo(&free, &whole);
  constexpr std::size_t kBlock = 2 * kMiB;
  const auto others = whole - free - weights * kMiB;  // the context's
  const auto blocks = (whole / 10 * 9 - 3 * weights * kMiB - others) / kBlock;
  take(2 * blocks);
  cudaMemGetInfo(&free, &whole);
  std::printf("%zu blocks of %zu, then %zu free\n", blocks, whole, free);
  return 0;
}

int blas() {
  void *handle = nullptr, *stream = nullptr;
  int version = 0;
  if (cublasCreate_v2(&handle) != 0 || handle == nullptr) return 1;
  cublasSetStream_v2(handle, &version);
  cublasGetStream_v2(handle, &stream);
  cublasGetVersion_v2(handle, &version);
  for (int i = 0; i < 3; ++i) cublasSgemm_v2();
  std::printf("version %d, its stream %d, wonder %d\n", version, stream == &version,
              cublasWonder());
  return cublasDestroy_v2(handle);
}

/// What is taken of the device, step by step, for what CUDA's libraries keep for themselves.
int libraries(std::size_t mib) {
  std::size_t before = 0;
  const auto step = [&](const char* what) {
    std::size_t free = 0, whole = 0;
    cudaMemGetInfo(&free, &whole);
    const auto now = whole - free;
    if (before != 0) std::printf("%s %ld\n", what, static_cast<long>(now - before) / (1 << 20));
    before = now;
  };
  const auto launch = [] {
    return cudaLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, nullptr, 0, nullptr);
  };
  take(2);
  step("");
  launch();
  step("kernel");
  void *streams[128] = {}, *handles[2] = {};
  for (int i = 0; i < 128; ++i) {
    cudaStreamCreate(&streams[i]);
    if (i == 0 || i == 1 || i == 31 || i == 127) step("streams");
  }
  for (auto& one : streams) cudaStreamDestroy(one);
  for (auto& one : streams) cudaStreamCreate(&one);
  step("streams again");
  for (auto& one : handles) {
    if (const auto code = cublasCreate_v2(&one); code != 0) {
      std::printf("cublasCreate: %d\n", code);
      return 1;
    }
    step("handle");
  }
  for (auto* one : handles) cublasDestroy_v2(one);
  step("both ended");
  if (dlopen("libtorch_cuda.so", RTLD_NOW) == nullptr) return 2;
  launch();
  step("PyTorch's kernel");
  launch();
  take(mib);  // at the peak the handles are gone
  return 0;
}

int content() {
  auto* const memory = static_cast<char*>(take(4));
  int first = 42, second = 0;
  long fresh = -1;
  cudaMemcpy(memory, &first, sizeof first, 1);
  cudaMemcpy(&second, memory, sizeof second, 2);
  cudaMemcpy(&fresh, memory + kMiB, sizeof fresh, 2);
  const std::string large(2 * kMiB, 'x');
  char back = 'y';
  cudaMemcpy(memory, large.data(), large.size(), 1);
  cudaMemcpy(&back, memory, 1, 2);
  std::printf("read %d, fresh %ld, of a large one %d\n", second, fresh, back);
  return 0;
}

/// The process's own memory, in KiB.
long resident() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long size = 0, pages = 0;
  if (std::fscanf(file, "%ld %ld", &size, &pages) != 2) pages = 0;
  std::fclose(file);
  return pages * 4;
}

/// Makes things and ends them again, as a program does that runs for weeks.
int growth(std::size_t times) {
  void* const memory = take(4);
  long before = 0;
  for (std::size_t i = 0; i < times; ++i) {
    if (i == times / 10) before = resident();
    void *stream = nullptr, *event = nullptr, *block = nullptr;
    if (cudaStreamCreate(&stream) != 0 || cudaEventCreate(&event) != 0 ||
        cudaEventRecord(event, stream) != 0 || cudaMalloc(&block, kMiB) != 0)
      return 1;
    // at ever other places, so that the content of what was there goes
    cudaMemcpy(static_cast<char*>(memory) + i % 1000 * 512, &i, sizeof i, 1);
    cudaMemcpy(block, &i, sizeof i, 1);
    if (cudaFree(block) != 0 || cudaEventDestroy(event) != 0 || cudaStreamDestroy(stream) != 0)
      return 1;
  }
  const long grown = resident() - before;
  std::printf("%s\n", grown < 2048 ? "no growth" : "it grew");
  if (grown >= 2048) std::printf("by %ld KiB\n", grown);
  return 0;
}

/// More content than emmctl keeps.
int much() {
  const std::string piece(kMiB, 'x');
  std::string uneven = piece;
  for (std::size_t i = 0; i < uneven.size(); i += 7) uneven[i] = static_cast<char>(i);
  auto* const memory = static_cast<char*>(take(48));
  char back[2] = {};
  // The last of what is kept, and what is not. Then a piece over a kept one goes, and there is
  // room.
  for (std::size_t i = 0; i < 48; ++i) cudaMemcpy(memory + i * kMiB, uneven.data(), kMiB, 1);
  cudaMemcpy(&back[0], memory + 1, 1, 2);
  cudaMemcpy(&back[1], memory + 47 * kMiB + 1, 1, 2);
  cudaFree(memory);
  auto* const next = static_cast<char*>(take(2));
  char third = 0;
  cudaMemcpy(next, uneven.data(), kMiB, 1);
  cudaMemcpy(&third, next + 1, 1, 2);
  std::printf("first %c, last %d, later %c\n", back[0], back[1], third);
  return 0;
}

std::size_t resident_bytes() {
  std::size_t size = 0, resident = 0;
  auto* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%zu %zu", &size, &resident) != 2) std::exit(1);
  std::fclose(file);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Makes and ends `number` handles of each kind.
int handles(std::size_t number) {
  std::size_t before = 0;
  for (std::size_t i = 0; i < number; ++i) {
    if (i == number / 10) before = resident_bytes();
    void *blas = nullptr, *stream = nullptr, *event = nullptr, *memory = nullptr;
    if (cublasCreate_v2(&blas) != 0 || cudaStreamCreate(&stream) != 0 ||
        cudaEventCreate(&event) != 0 || cudaMalloc(&memory, 1000) != 0 ||
        cudaEventRecord(event, stream) != 0) {
      return 1;
    }
    if (cudaFree(memory) != 0 || cudaEventDestroy(event) != 0 || cudaStreamDestroy(stream) != 0 ||
        cublasDestroy_v2(blas) != 0) {
      return 1;
    }
  }
  std::printf("less than 1 MiB more: %d\n", resident_bytes() < before + kMiB);
  return 0;
}

int forked() {
  take(1);
  std::fflush(stdout);
  const auto child = fork();
  if (child == 0) {
    void* memory = nullptr;
    std::printf("in the child: %s\n", cudaGetErrorName(cudaMalloc(&memory, kMiB)));
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const auto number = count > 2 ? static_cast<std::size_t>(std::atoll(words[2])) : 0;
  if (what == "take") {
    take(number);
  } else if (what == "retry") {  // as a framework does: what it keeps is given back
    void* const kept = take(number);
    void* memory = nullptr;
    if (cudaMalloc(&memory, number * kMiB) == 0) return 1;
    cudaGetLastError();
    cudaFree(kept);
    take(number);
  } else if (what == "serves") {
    return serves(number);
  } else if (what == "blas") {
    return blas();
  } else if (what == "libraries") {
    return libraries(number);
  } else if (what == "content") {
    return content();
  } else if (what == "fork") {
    return forked();
  } else if (what == "kill") {
    take(number);
    std::raise(SIGKILL);
  } else if (what == "devices") {
    int devices = 0;
    cudaGetDeviceCount(&devices);
    for (int device = 0; device < devices; ++device) {
      cudaSetDevice(device);
      take(number + static_cast<std::size_t>(device));
    }
    std::printf("%d devices\n", devices);
  } else if (what == "threads") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int again = 0; again < 100; ++again) cudaFree(take(number));
      });
    for (auto& thread : threads) thread.join();
    take(number);
  } else if (what == "handles") {
    return handles(number);
  } else if (what == "growth") {
    return growth(number);
  } else if (what == "much") {
    return much();
  } else if (what == "poll") {  // waits for a kernel
    auto* const flag = static_cast<int*>(take(2));
    for (int value = 0; value == 0;) cudaMemcpy(&value, flag, sizeof value, 2);
  } else if (what == "reads") {  // reads as often, and writes between
    auto* const flag = static_cast<int*>(take(2));
    for (int i = 0, value = 0; i < 5000; ++i) {
      if (i % 500 == 0) cudaMemcpy(flag, &i, sizeof i, 1);
      cudaMemcpy(&value, flag, sizeof value, 2);
    }
  } else if (what == "kernel") {
    int blocks = 0;
    if (number != 0 && dlopen("libtorch_cuda.so", RTLD_NOW) == nullptr) return 2;
    cudaDeviceGetAttribute(&blocks, 16, 0);
    std::printf("launch %d, %d multiprocessors\n",
                cudaLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, nullptr, 0, nullptr), blocks);
  } else if (what == "tables") {  // what a cudart does that is linked in statically
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto* const init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto* const ask =
        reinterpret_cast<int (*)(const void**, const void*)>(dlsym(driver, "cuGetExportTable"));
    const void* table = nullptr;
    init(0);
    return ask(&table, "sixteen letters!") == 0 ? 0 : 1;
  } else if (what == "path") {
    void* const opened = dlopen(words[2], RTLD_NOW);
    if (opened == nullptr) {
      std::printf("%s\n", dlerror());
      return 1;
    }
    auto* const wonder = reinterpret_cast<int (*)()>(dlsym(opened, "cublasWonder"));
    std::printf("wonder %d\n", wonder != nullptr ? wonder() : -1);
  } else if (what == "maps") {
    std::FILE* const maps = std::fopen("/proc/self/maps", "r");
    char line[4096];
    while (std::fgets(line, sizeof line, maps) != nullptr) {
      const char* const path = std::strchr(line, '/');
      if (path != nullptr && std::strstr(path, "libcu") != nullptr) std::fputs(path, stdout);
    }
    std::fclose(maps);
  }
}
