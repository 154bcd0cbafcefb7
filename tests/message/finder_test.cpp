#include <functional>

#include "base/text_format.hpp"
#include "format/json_writer.hpp"
#include "format/log_line.hpp"
#include "said.hpp"

namespace emm::message {
namespace {

using text::format;

/// `text` as lines of at most `width` characters, each with `prefix` in front.
std::string wrapped_at(std::string_view text, std::size_t width, std::string_view first = {},
                       std::string_view others = {}) {
  std::string out(first);
  for (std::size_t at = 0; at < text.size(); at += width) {
    if (at > 0) out.append("\n").append(others);
    out += text.substr(at, width);
  }
  return out + "\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  format::append_json_string(out, text);
  return out;
}

struct Disguise {
  std::string_view name;
  std::function<std::string(std::string_view)> put_on;
};

const std::vector<Disguise>& disguises() {
  using View = std::string_view;
  static const std::vector<Disguise> all{
      {"between others",
       [](View text) {
         return "step 1 loss 2.30 used 1.50 GiB\nTraceback (most recent call last):\n  File "
                "\"a.py\", line 3\n" +
                std::string(text) + "\nbye, 3.00 GiB free\n";
       }},
      {"a rank", [](View text) { return "[rank3]: " + std::string(text) + "\n"; }},
      {"torchrun", [](View text) { return "[default2]:" + std::string(text) + "\n"; }},
      {"mpirun", [](View text) { return "[1,5]<stderr>:" + std::string(text) + "\n"; }},
      {"srun", [](View text) { return "11: " + std::string(text) + "\n"; }},
      {"pytest", [](View text) { return "E   " + std::string(text) + "\n"; }},
      {"vllm",
       [](View text) {
         return "(EngineCore_0 pid=1234) ERROR 11-28 10:20:30 [core.py:718] " + std::string(text) +
                "\n";
       }},
      {"ray",
       [](View text) {
         return "\x1b[36m(RayTrainWorker pid=1234, ip=10.0.0.1)\x1b[0m " + std::string(text) + "\n";
       }},
      {"logging",
       [](View text) {
         return "2026-11-28 09:36:42,123 - trainer - ERROR - " + std::string(text) + "\n";
       }},
      {"the journal",
       [](View text) { return "Nov 28 09:36:42 host train[12]: " + std::string(text) + "\n"; }},
      {"kubernetes",
       [](View text) {
         return "2026-11-28T09:36:42.123456789Z stderr F " + std::string(text) + "\n";
       }},
      {"compose", [](View text) { return "worker-1  | " + std::string(text) + "\n"; }},
      {"windows", [](View text) { return "one\r\n" + std::string(text) + "\r\n"; }},
      {"utf-16",
       [](View text) {
         std::string out = "\xff\xfe";
         for (const char c : "[rank3]: " + std::string(text) + "\r\n") (out += c) += '\0';
         return out;
       }},
      {"utf-16 of the other order",
       [](View text) {
         std::string out = "\xfe\xff";
         for (const char c : std::string(text) + "\n") (out += '\0') += c;
         return out;
       }},
      {"utf-16 without a mark",
       [](View text) {
         std::string out;
         for (const char c : "log\n" + std::string(text)) (out += c) += '\0';
         return out;
       }},
      {"a page",
       [](View text) {
         std::string out = "<html><pre><span class=\"l\">error</span>\n";
         for (const char c : text) {
           out += c == '>'    ? "&gt;"
                  : c == '\'' ? "&#39;"
                  : c == '"'  ? "&quot;"
                  : c == '<'  ? "&lt;"
                  : c == '&'  ? "&amp;"
                              : std::string(1, c);
           if (c == ' ') out += "<b></b>";
         }
         return out + "</pre></html>\n";
       }},
      {"a mail",
       [](View text) {
         std::string out;
         for (std::size_t at = 0; at < text.size(); at += 70)
           out.append(text.substr(at, 70)).append(at + 70 < text.size() ? "=\n" : "\n");
         return out;
       }},
      {"spaces that break no line",
       [](View text) {
         std::string out;
         for (std::size_t at = 0; at < text.size(); ++at) {
           const bool is_before_unit = text.substr(at).starts_with(" GiB");
           out += is_before_unit ? std::string("\xc2\xa0") : std::string(1, text[at]);
         }
         return out + "\n";
       }},
      {"colours",
       [](View text) {
         return "\x1b[1;31m" + std::string(text.substr(0, 20)) + "\x1b[0m\x1b[31m" +
                std::string(text.substr(20)) + "\x1b[0m\n";
       }},
      {"a progress bar",
       [](View text) { return "  3%|#   | 1/3\r  6%|##  | 2/3\r" + std::string(text) + "\n"; }},
      {"json",
       [](View text) {
         return "{\"level\":\"error\",\"message\":" +
                escaped("Traceback:\n  File \"a.py\"\n" + std::string(text) + "\n") + ",\"n\":1}\n";
       }},
      {"json in json",
       [](View text) {
         return "{\"log\":" + escaped("{\"m\":" + escaped("x\n" + std::string(text)) + "}\n") +
                "}\n";
       }},
      {"a terminal of 80", [](View text) { return wrapped_at(text, 80); }},
      {"a terminal of 37", [](View text) { return wrapped_at(text, 37); }},
      {"a terminal of 80, with a rank",
       [](View text) { return wrapped_at(text, 69, "[rank3]: "); }},
      {"a rank on each line",
       [](View text) { return wrapped_at(text, 60, "[rank3]: ", "[rank3]: "); }},
      {"a box", [](View text) { return wrapped_at(text, 60, "\xe2\x94\x82 ", "\xe2\x94\x82 "); }},
      {"short lines", [](View text) { return wrapped_at(text, 11, "", "    "); }},
  };
  return all;
}

TEST(OomMessages, SayTheSameWhateverStandsAroundThem) {
  for (const auto& said : kSaid) {
    const auto plain = only_in(said.text);
    for (const auto& disguise : disguises()) {
      SCOPED_TRACE(format("{}, {}", said.name, disguise.name));
      const auto log = disguise.put_on(said.text);
      const auto found = find_in(log);
      ASSERT_EQ(found.all.size(), 1u) << log;
      const auto& message = found.all.front();
      for (std::size_t i = 0; i < kFigures; ++i) {
        const auto what = static_cast<Meaning>(i);
        EXPECT_EQ(message.bytes(what), plain.bytes(what)) << name(what) << "\n" << log;
      }
      EXPECT_EQ(message.device, plain.device);
      EXPECT_EQ(message.processes.size(), plain.processes.size());
      EXPECT_EQ(name(answer(message).cause), name(said.cause));
    }
  }
}

TEST(OomMessages, OfSeveralRanksAreCountedByRank) {
  constexpr std::string_view kMessage =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU {} has a total "
      "capacity of 6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB is "
      "allocated "
      "by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated.";
  std::string log = "hello\n";
  for (const auto rank : {2, 0, 3})
    log += format("[rank{}]: Traceback\n[rank{}]: {}\n", rank, rank, format(kMessage, rank));
  const auto found = find_in(log);

  EXPECT_EQ(found.count, 3u);
  EXPECT_EQ(found.by_writer, (std::map<std::string, std::uint64_t>{{"0", 1}, {"2", 1}, {"3", 1}}));
  EXPECT_EQ(found.all.front().writer, "2");
  EXPECT_EQ(found.all.front().line, 3u);
  EXPECT_EQ(found.all.front().device, 2u);
}

TEST(OomMessages, OfInterleavedRanksAreToldApart) {
  const std::string log =
      "[rank0]: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total\n"
      "[rank1]: CUDA out of memory. Tried to allocate 2.70 GiB. GPU 1 has a total\n"
      "[rank0]: capacity of 6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB\n"
      "[rank1]: capacity of 7.00 GiB of which 1024 bytes is free. Of the allocated memory 3.93 "
      "GiB\n"
      "[rank1]: is allocated by PyTorch, and 1.30 GiB is reserved by PyTorch but unallocated.\n"
      "[rank0]: is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated.\n";
  const auto found = find_in(log);

  ASSERT_EQ(found.all.size(), 2u);
  EXPECT_EQ(found.all[0][Meaning::idle]->printed, "2.30 GiB");
  EXPECT_EQ(found.all[0][Meaning::total]->printed, "6.00 GiB");
  EXPECT_EQ(found.all[1][Meaning::idle]->printed, "1.30 GiB");
  EXPECT_EQ(found.all[1][Meaning::total]->printed, "7.00 GiB");
}

TEST(OomMessages, OfRanksWhoseNumbersArePaddedHaveThem) {
  const auto found =
      find_in("10: epoch 1\n 0: Traceback\n 3: CUDA out of memory. Tried to allocate 1.70 GiB.\n");

  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].writer, "3");
}

TEST(OomMessages, OfRanksThatWriteAtOnceAreToldApartInsideOfALine) {
  const std::string whole =
      "CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacity of 6.00 GiB of "
      "which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 "
      "GiB is reserved by PyTorch but unallocated.";
  const auto found = find_in("[rank0]: " + whole.substr(0, 140) + "[rank1]: " + whole +
                             "\n[rank0]: " + whole.substr(140) + "\n");

  ASSERT_EQ(found.all.size(), 2u);
  EXPECT_EQ(found.by_writer.at("0"), 1u);
  EXPECT_EQ(found.by_writer.at("1"), 1u);
  for (const auto& message : found.all) EXPECT_TRUE(message[Meaning::idle]) << message.writer;
}

TEST(OomMessages, ThatAreOneFailureCountOnce) {
  const auto found = find_in(
      "2024-05-28 07:02:44.349554: W external/tsl/tsl/framework/bfc_allocator.cc:482] Allocator "
      "(GPU_0_bfc) ran out of memory trying to allocate 1.97GiB (rounded to 2110783744)requested "
      "by "
      "op \n"
      "2024-05-28 07:02:44.350162: W external/tsl/bfc_allocator.cc:494] ****___***\n"
      "E0528 07:02:44.350251   27487 pjrt_stream_executor_client.cc:2826] Execution of replica 0 "
      "failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2110783616 bytes.\n"
      "BufferAssignment stats:\n                 total allocation:    7.88GiB\n"
      "Traceback (most recent call last):\n"
      "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
      "allocate 2110783616 bytes.\n");

  ASSERT_EQ(found.count, 1u);
  EXPECT_EQ(found.all[0].bytes(Meaning::asked), (Range{2110783616, 2110783616}));
  EXPECT_EQ(found.all[0][Meaning::program]->printed, "7.88 GiB");
}

TEST(OomMessages, ThatAreNoFailuresAreCountedApart) {
  const auto found = find_in(
      "W bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB "
      "with freed_by_count=0. The caller indicates that this is not a failure, but may mean that "
      "there could be performance gains if more memory were available.\n");

  EXPECT_TRUE(found.all.empty());
  EXPECT_EQ(found.not_failures, 1u);
}

TEST(OomMessages, AreNotTheTextOfProgramsThatSpeakOfThem) {
  EXPECT_TRUE(find_in("if 'out of memory. Tried to allocate' in str(error): pass\n"
                      "raise MemoryError('std::bad_alloc: out_of_memory: ')\n"
                      "# Out of memory allocating request\n"
                      "OOM_SCORE=3\nmemory allocated: 3.00 GiB\n"
                      "git: fatal: out of memory\nthe server ran out of memory\n"
                      "INFO if you get CUDA out of memory, lower the batch size\n"
                      "this may run into a CUDA error: out of memory\n"
                      "If you see `torch.cuda.OutOfMemoryError: CUDA out of memory`, wait\n"
                      "INFO using GPU 0, run out of memory never\nout of resource: time\n")
                  .all.empty());
}

TEST(OomMessages, AreFoundInALineOfAnyLengthAndInALongLog) {
  const std::string message =
      "CUDA out of memory. Tried to allocate 1.70 GiB (GPU 0; 6.00 GiB total capacity; 2.93 GiB "
      "already allocated; 0 bytes free; 5.23 GiB reserved in total by PyTorch)";
  for (std::size_t before = 16200; before < 16500; before += 7) {
    const auto log = std::string(before, 'x') + message + std::string(40000, 'y') + "\n";
    const auto found = find_in(log);
    ASSERT_EQ(found.all.size(), 1u) << before;
    EXPECT_EQ(found.all[0][Meaning::reserved]->printed, "5.23 GiB") << before;
    EXPECT_EQ(found.lines, 1u);
  }
  std::string log;
  for (int i = 0; i < 20000; ++i) log += format("step {} memory 3.00 GiB allocated\n", i);
  log += message + "\n";
  const auto found = find_in(log);
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].line, 20001u);
}

struct Spoken {
  std::string_view text, framework, asked;
};
constexpr std::array kSpoken{
    Spoken{"RuntimeError: cuda runtime error (2) : out of memory at /aten/src/THC/THCStorage.cu:58",
           "PyTorch", ""},
    Spoken{"THCudaCheck FAIL file=/aten/src/THC/THCStorage.cu line=58 error=2 : out of memory",
           "PyTorch", ""},
    Spoken{"JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.",
           "XLA (JAX, TensorFlow)", "17179869184 bytes"},
    Spoken{"failed to allocate 2.2KiB (2304 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of "
           "memory",
           "CUDA", "2304 bytes"},
    Spoken{"ValueError: The model's max seq len (131072) is larger than the maximum number of "
           "tokens that can be stored in KV cache (58848). Try increasing "
           "`gpu_memory_utilization`",
           "vLLM", ""},
    Spoken{"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
           "Current value: 0.8",
           "SGLang", ""},
    Spoken{"ERROR: Out of GPU memory trying to allocate 4.000 GiB\nEffective GPU memory usage: "
           "98.12% (23.251 GiB/23.691 GiB)\nMemory pool usage: 20.003 GiB (21.000 GiB reserved)",
           "CUDA.jl", "4.000 GiB"},
    Spoken{"[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of "
           "memory)",
           "TensorRT", ""},
    Spoken{"[TRT] [W] Requested amount of GPU memory (8589934592 bytes) could not be allocated.",
           "TensorRT", "8589934592 bytes"},
    Spoken{"CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; file=cuda_allocator.cc ; line=48",
           "ONNX Runtime", ""},
    Spoken{"MXNetError: pooled_storage_manager.h:161: cudaMalloc retry failed: out of memory",
           "MXNet", ""},
    Spoken{"MXNetError: Check failed: err == cudaSuccess (2 vs. 0) : Memory allocation failed out "
           "of memory",
           "MXNet", ""},
    Spoken{"MXNetError: pooled_storage_manager.h:151: cudaMalloc failed: out of memory", "CUDA",
           ""},
    Spoken{"ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 13908455424\n"
           "llama_init_from_model: failed to allocate compute pp buffers",
           "llama.cpp", "13908455424 bytes"},
    Spoken{"alloc_tensor_range: failed to allocate CUDA0 buffer of size 4831838208\n"
           "llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
           "kv cache",
           "llama.cpp", "4831838208 bytes"},
    Spoken{"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 1: "
           "hipMalloc failed: out of memory",
           "llama.cpp", "9216.00 MiB"},
    Spoken{"Error: llama runner process has terminated: cudaMalloc failed: out of memory",
           "llama.cpp", ""},
    Spoken{"ggml_vulkan: Device memory allocation of size 5368709120 failed.\n"
           "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
           "llama.cpp", "5368709120 bytes"},
    Spoken{"CUDA error 2 at ggml-cuda.cu:7233: out of memory", "CUDA", ""},
    Spoken{"error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
           "Metal", ""},
    Spoken{
        "RuntimeError: [metal::malloc] Attempting to allocate 34359738368 bytes which is greater "
        "than the maximum allowed buffer size of 22906503168 bytes.",
        "Metal", "34359738368 bytes"},
    Spoken{"RuntimeError: Invalid buffer size: 24.41 GB", "PyTorch (MPS)", "24.41 GB"},
    Spoken{"OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: "
           "101376. Reducing block sizes or `num_stages` may help.",
           "Triton", "147456 bytes"},
    Spoken{"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
           "memory)\nCurrently allocated     : 9.52 GiB\nRequested               : 2.25 GiB\n"
           "Device limit            : 12.00 GiB\nFree (according to CUDA): 0 bytes",
           "PyTorch", "2.25 GiB"},
    Spoken{
        "torch.OutOfMemoryError: Allocation on device \nGot an OOM, unloading all loaded models.",
        "PyTorch", ""},
    Spoken{"RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total "
           "capacity; 55.10 GiB already allocated; 1.20 GiB free; 58.00 GiB reserved in total by "
           "PyTorch)",
           "PyTorch", "2.00 GiB"},
    Spoken{"out of memory to allocate 8589934592 bytes (total 12884901888 bytes)", "CuPy",
           "8589934592 bytes"},
    Spoken{"InternalError: Dst tensor is not initialized.", "TensorFlow or JAX", ""},
    Spoken{"Device(id:0) memory isn't enough and alloc failed, kernel name: Default/Conv2D, alloc "
           "size: 1234567168B.",
           "MindSpore", "1234567168 B"},
    Spoken{"RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
           "requests.",
           "vLLM", ""},
    Spoken{"RuntimeError: Not enough memory to handle 4096 prefill tokens.",
           "Text Generation Inference", ""},
    Spoken{"[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory "
           "(Requested size was 34359738368 bytes.)",
           "TensorRT", "34359738368 bytes"},
    Spoken{"CUDA runtime error in ::cudaMallocAsync(ptr, n, pool, stream): out of memory", "CUDA",
           ""},
    Spoken{"- cudaErrorMemoryAllocation: out of memory\n- Free memory: 1073741824\n- Requested "
           "memory: 2147483648",
           "CUDA", "2147483648 bytes"},
    Spoken{"[LightGBM] [Fatal] [CUDA] out of memory /src/cuda/x.cpp 42", "CUDA", ""},
    Spoken{"pycuda._driver.MemoryError: cuMemAlloc failed: out of memory", "CUDA", ""},
    Spoken{"syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory", "CUDA",
           ""},
    Spoken{"gpu_mat.cu:116: error: (-217:Gpu API call) out of memory in function 'allocate'",
           "CUDA", ""},
    Spoken{"CUDA Error 2, out of memory", "CUDA", ""},
    Spoken{"vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY", "the driver of the device", ""},
    Spoken{"clCreateBuffer failed: CL_MEM_OBJECT_ALLOCATION_FAILURE", "the driver of the device",
           ""},
    Spoken{"CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`", "a CUDA library",
           ""},
    Spoken{"HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`", "a CUDA library",
           ""},
    Spoken{"cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "a CUDA library",
           ""},
    Spoken{"failed to create cublas handle: the resource allocation failed", "a CUDA library", ""},
    Spoken{"MIOpen Error: handlehip.cpp:133: Memory not available to allocate buffer: 134217728",
           "a CUDA library", "134217728 bytes"},
    Spoken{
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "the host", ""},
    Spoken{"  Last State:     Terminated\n    Reason:       OOMKilled", "the host", ""},
    Spoken{"model requires more system memory (21.5 GiB) than is available (15.2 GiB)", "the host",
           "21.5 GiB"},
    Spoken{"NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes", "the host", ""},
    Spoken{"Warp CUDA error 2: out of memory (in function wp_alloc_device_default, warp.cu:500)",
           "CUDA", ""},
    Spoken{
        "Error: StandardGpuResources: alloc fail type FlatData dev 0 space Device stream 0x0 size "
        "30720000000 bytes (cudaMalloc error out of memory [2])",
        "CUDA", "30720000000 bytes"},
    Spoken{"CUDA error: Out of memory in cuMemAlloc(&device_pointer, size)", "CUDA", ""},
    Spoken{"slurmstepd: error: Detected 1 oom_kill event in StepId=123.0.", "the host", ""},
    Spoken{"Memory cgroup out of memory: Killed process 4321 (python)", "the host", ""},
    Spoken{"Out of memory: Kill process 4321 (python) score 900", "the host", ""}};

TEST(OomMessages, AreThoseOfWhoeverSaysThem) {
  for (const auto& spoken : kSpoken) {
    SCOPED_TRACE(spoken.text);
    const auto message = only_in(spoken.text);
    ASSERT_NE(message.wording, nullptr);
    EXPECT_EQ(framework(message.wording->speaker), spoken.framework);
    const auto& asked = message[Meaning::asked];
    EXPECT_EQ(asked ? asked->printed : "", spoken.asked);
    EXPECT_TRUE(anchors().is_in(spoken.text)) << "it is found in a long log";
  }
}

TEST(OomMessages, AreFoundByTheirWordsAlone) {
  for (const auto& wording : wordings()) {
    const auto device = wording.needs_device ? "cuda " : "";
    const auto found = find_in(device + std::string(wording.trigger) + " 1 GiB");
    EXPECT_TRUE(found.all.size() == 1 || wording.needs_figure) << wording.trigger;
  }
}

TEST(OomMessages, HaveAWordByWhichTheyAreFoundInALongLog) {
  for (const auto& said : kSaid) {
    EXPECT_TRUE(anchors().is_in(said.text)) << said.name;
    EXPECT_TRUE(anchors().is_in(" " + std::string(said.text))) << said.name << ", at an odd place";
  }
  EXPECT_FALSE(anchors().is_in("step 118 of 9000: loss 2.30, memory 1.50 GiB, allocated 3 GiB"));
}

TEST(OomMessages, AreTheSameInALongLogThatHasNothingElse) {
  std::string noise;
  while (noise.size() < 3 * format::kLogWhole)
    noise += "[rank1]: step 118 loss 2.301 memory 1.50 GiB tokens 1204 of 9000\n";
  const std::string before = "allocating 5 things\n[rank2]: CUDA out of memory. Tried to ";
  const std::string message =
      before +
      "allocate 1.70 GiB. GPU 0 has a total capacity of 6.00 GiB of which 0 bytes is free. Of the "
      "allocated\n memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch "
      "but "
      "unallocated.\n";
  for (const std::size_t shift : {1, 65'530}) {
    SCOPED_TRACE(shift);
    const auto log = noise + std::string(shift, 'x') + "\n" + message + noise + message + noise +
                     std::string(3 * format::kLogNear, 'y');

    const auto found = find_in(log);

    ASSERT_EQ(found.all.size(), 1u);
    EXPECT_EQ(found.all[0].printed, 2u);
    EXPECT_EQ(found.all[0].writer, "2");
    const auto lines_before = std::count(noise.begin(), noise.end(), '\n') + 1;
    EXPECT_EQ(found.all[0].line, static_cast<std::uint64_t>(lines_before) + 2);
    EXPECT_EQ(found.lines,
              static_cast<std::uint64_t>(std::count(log.begin(), log.end(), '\n')) + 1);
    EXPECT_TRUE(found.all[0][Meaning::idle]);
  }
}

TEST(OomMessages, ThatAProgramPrintsWithoutEndAreBounded) {
  std::string log;
  for (int i = 0; i < 1000; ++i)
    log += format("Out of memory allocating {} bytes (allocated so far: 512 bytes).\n", 1000 + i);
  const auto found = find_in(log);

  EXPECT_EQ(found.count, 1000u);
  EXPECT_EQ(found.all.size(), kMost);
}

TEST(LogLine, KeepsWhatIsNoPrefix) {
  for (const std::string_view text :
       {"(allocated so far: 512 bytes)", "[2] Call to cuMemAlloc", "1.70 GiB free",
        "2147483648 bytes", "InUse at 7fa140000000 of size 536870912 next 878"})
    EXPECT_EQ(format::without_prefix(text).text, text);
}

}  // namespace
}  // namespace emm::message
