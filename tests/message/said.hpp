#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "message/answer.hpp"

namespace emm::message {

inline Messages find_in(std::string_view log) {
  const auto source = format::ByteSource::memory(log, "train.log");
  auto found = find_messages(*source);
  EXPECT_TRUE(found);
  return found ? *std::move(found) : Messages{};
}

/// The only message of a log.
inline Message only_in(std::string_view log) {
  auto found = find_in(log);
  EXPECT_EQ(found.all.size(), 1u) << log;
  return found.all.empty() ? Message{} : std::move(found.all.front());
}

/// A message of a framework, as its sources print it, and what it comes to.
struct Said {
  std::string_view name;
  std::string_view text;
  inspect::Cause cause;
  bool is_certain;
};

inline constexpr std::array kSaid{
    Said{"torch 1.0",
         "RuntimeError: CUDA out of memory. Tried to allocate 1.70 GiB (GPU 0; 10.91 GiB total "
         "capacity; 8.44 GiB already allocated; 1.09 GiB free; 323.19 MiB cached)",
         inspect::Cause::need, true},
    Said{
        "torch 1.12",
        "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 3; 15.78 GiB total "
        "capacity; 13.00 GiB already allocated; 312.75 MiB free; 14.20 GiB reserved in total by "
        "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
        "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        inspect::Cause::waste, true},
    Said{"torch 1.8, a fraction",
         "RuntimeError: CUDA out of memory. Tried to allocate 37.25 GiB (GPU 0; 79.15 GiB total "
         "capacity; 192.29 MiB already allocated; 72.79 GiB free; 2.37 GiB allowed; 1.05 GiB "
         "reserved in total by PyTorch)",
         inspect::Cause::limit, true},
    Said{
        "torch 2.0, misspelt",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
        "total capacty of 14.58 GiB of which 100.56 MiB is free. Process 2137 has 14.47 GiB memory "
        "in use. Of the allocated memory 13.10 GiB is allocated by PyTorch, and 1.01 GiB is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting max_split_size_mb to avoid fragmentation.",
        inspect::Cause::need, true},
    Said{
        "torch 2.11",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total "
        "capacity of 6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB is "
        "allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated.",
        inspect::Cause::waste, true},
    Said{"torch, a fraction",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a "
         "total capacity of 250.00 GiB of which 244.00 GiB is free. Including non-PyTorch memory, "
         "this process has 1.55 GiB memory in use. 1.05 GiB allowed; Of the allocated memory 1.00 "
         "GiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated.",
         inspect::Cause::limit, true},
    Said{"torch, others",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a "
         "total capacity of 23.69 GiB of which 100.25 MiB is free. Process 11 has 20.00 GiB memory "
         "in use. Including non-PyTorch memory, this process has 3.55 GiB memory in use. Of the "
         "allocated memory 3.01 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch "
         "but unallocated.",
         inspect::Cause::others, true},
    Said{
        "torch, graphs",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 1.18 GiB is free. Including non-PyTorch memory, this "
        "process has 77.90 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
        "PyTorch, with 1.20 GiB allocated in private pools (e.g., CUDA Graphs), and 5.54 GiB is "
        "reserved by PyTorch but unallocated.",
        inspect::Cause::waste, true},
    Said{"torch, larger than the device",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130206.04 GiB. GPU 0 has a "
         "total capacity of 23.56 GiB of which 16.57 GiB is free. Including non-PyTorch memory, "
         "this "
         "process has 6.97 GiB memory in use. Of the allocated memory 5.45 GiB is allocated by "
         "PyTorch, and 1.17 GiB is reserved by PyTorch but unallocated.",
         inspect::Cause::need, true},
    Said{"torch, room",
         "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 256.00 MiB. GPU 0 has a "
         "total "
         "capacity of 15.98 GiB of which 12.16 GiB is free. Of the allocated memory 3.14 GiB is "
         "allocated by PyTorch, and 131.28 MiB is reserved by PyTorch but unallocated.",
         inspect::Cause::limit, true},
    Said{
        "torch, rounded too much to tell",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 MiB (GPU 0; 4.00 "
        "GiB total capacity; 3.41 GiB already allocated; 0 bytes free; 3.44 GiB reserved in total "
        "by PyTorch)",
        inspect::Cause::need, false},
    Said{"torch, 1 EB", "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.",
         inspect::Cause::need, true},
    Said{
        "xpu",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 896.00 MiB (GPU 0; 15.59 GiB "
        "total capacity; 14.03 GiB already allocated; 14.35 GiB reserved in total by PyTorch)",
        inspect::Cause::not_known, false},
    Said{"mps",
         "RuntimeError: MPS backend out of memory (MPS allocated: 7.64 GiB, other allocations: "
         "68.91 "
         "GiB, max allowed: 88.13 GiB). Tried to allocate 33.92 GiB on private pool.",
         inspect::Cause::limit, true},
    Said{"cupy, a limit",
         "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 600 bytes (allocated so far: "
         "512 bytes, limit set to: 1,000 bytes).",
         inspect::Cause::limit, true},
    Said{"cupy",
         "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes "
         "(allocated "
         "so far: 17,179,869,184 bytes).",
         inspect::Cause::not_known, false},
    Said{"jax",
         "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
         "allocate 34912723376 bytes.",
         inspect::Cause::not_known, false},
    Said{"xla on a tpu",
         "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 16.38G of 15.48G hbm. "
         "Exceeded hbm capacity by 923.67M.",
         inspect::Cause::need, true},
    Said{
        "tensorflow",
        "Resource exhausted: OOM when allocating tensor with shape[64,256,56,56] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        inspect::Cause::not_known, false},
    Said{"rmm, the device",
         "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 33295450768 "
         "bytes) at: /include/rmm/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of "
         "memory",
         inspect::Cause::not_known, false},
    Said{"rmm, its pool",
         "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:73: "
         "Maximum pool size exceeded (failed to allocate 10.371208 GiB): Not enough room to grow, "
         "current/max/try size = 78.000000 GiB, 78.000000 GiB, 10.371208 GiB",
         inspect::Cause::limit, true},
    Said{
        "rmm before 23",
        "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/opt/pool_memory_resource.hpp: "
        "Maximum pool size exceeded",
        inspect::Cause::not_known, false},  // also said of a device that refused
    Said{"vllm, in lines of a terminal",
         "(EngineCore pid=316) ValueError: To serve at least one request with the model's max seq "
         "len (100000), (4.26 GiB KV cach\ne is needed, which is larger than the available KV "
         "cache memory (4.25 GiB). Based on the avai\nlable memory",
         inspect::Cause::limit, true},
    Said{"numba",
         "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
         "CUDA_ERROR_OUT_OF_MEMORY",
         inspect::Cause::not_known, false},
    Said{"onnx runtime, its limit",
         "RuntimeException: [ONNXRuntimeError] : 6 : bfc_arena.cc:342 Available memory of 1000000 "
         "is "
         "smaller than requested bytes of 4194304",
         inspect::Cause::limit, true},
    Said{
        "onnx runtime",
        "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to "
        "allocate memory for requested buffer of size 1073741824",
        inspect::Cause::not_known, false},
    Said{"paddle",
         "Out of memory error on GPU 0. Cannot allocate 1.000000GB memory on GPU 0, 150.000000MB "
         "memory has been allocated and available memory is only 500.000000MB.",
         inspect::Cause::need, true},
    Said{"paddle, whose pool may have it idle",
         "Out of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 14.900000GB "
         "memory has been allocated and available memory is only 899.937500MB.",
         inspect::Cause::not_known, false},
    Said{
        "torch over the driver's pool, which may have it idle",
        "Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : "
        "9.52 GiB Requested : 2.25 GiB Device limit : 12.00 GiB Free (according to CUDA): 0 bytes "
        "PyTorch limit (set by user-supplied memory fraction) : 17179869184.00 GiB",
        inspect::Cause::not_known, false},
    Said{
        "torch over the driver's pool, which cannot have it",
        "Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : "
        "11.52 GiB Requested : 2.25 GiB Device limit : 12.00 GiB Free (according to CUDA): 0 bytes",
        inspect::Cause::need, true},
    Said{
        "torch in a French text",
        "CUDA out of memory. Tried to allocate 1,70 GiB. GPU 0 has a total capacity of 6,00 GiB of "
        "which 0 bytes is free. Of the allocated memory 2,93 GiB is allocated by PyTorch, and 2,30 "
        "GiB is reserved by PyTorch but unallocated.",
        inspect::Cause::waste, true},
    Said{
        "torch, as much free as was asked, as printed",
        "CUDA out of memory. Tried to allocate 8.60 GiB (GPU 0; 23.70 GiB total capacity; 3.77 GiB "
        "already allocated; 8.60 GiB free; 12.92 GiB reserved in total by PyTorch)",
        inspect::Cause::waste, true},
    Said{
        "julia, which tells what is used",
        "ERROR: Out of GPU memory trying to allocate 4.000 GiB\nEffective GPU memory usage: 95.12% "
        "(22.500 GiB/23.653 GiB)\nMemory pool usage: 18.000 GiB (20.000 GiB reserved)",
        inspect::Cause::others, true},
    Said{"triton",
         "out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block "
         "sizes or `num_stages` may help.",
         inspect::Cause::need, true},
    Said{"metal",
         "[metal::malloc] Attempting to allocate 34359738368 bytes which is greater than the "
         "maximum allowed buffer size of 22906503168 bytes.",
         inspect::Cause::need, true},
    Said{"vllm as it starts",
         "ValueError: Free memory on device (10.94/79.11 GiB) on startup is less than desired GPU "
         "memory utilization (0.9, 71.2 GiB). Decrease GPU memory utilization.",
         inspect::Cause::others, true},
    Said{"vllm, its cache",
         "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
         "GiB KV cache is needed, which is larger than the available KV cache memory (10.50 GiB).",
         inspect::Cause::limit, true},
    Said{"llama.cpp",
         "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: "
         "cudaMalloc "
         "failed: out of memory",
         inspect::Cause::not_known, false},
    Said{"nccl", "alloc.h:50 NCCL WARN Failed to CUDA calloc async 4194304 bytes",
         inspect::Cause::not_known, false},
    Said{"cublas",
         "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
         inspect::Cause::not_known, false},
    Said{"cuda", "RuntimeError: CUDA error: out of memory", inspect::Cause::not_known, false},
    Said{"the host",
         "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate "
         "1600000000 "
         "bytes. Error code 12 (Cannot allocate memory)",
         inspect::Cause::not_known, true},
};

}  // namespace emm::message
