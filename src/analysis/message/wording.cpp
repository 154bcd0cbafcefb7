#include "message/wording.hpp"

#include <array>

namespace emm::message {
namespace {

using enum Speaker;

// A row is a way to say it, as the framework's sources print it, without spaces. Where two begin at
// one place the first row counts.
constexpr std::array kWordings{
    Wording{torch, "outofmemory.Triedtoallocate", true, Rounding::nearest, true},
    Wording{torch_mps, "MPSbackendoutofmemory(MPSallocated:", true},
    Wording{torch_mps, "Invalidbuffersize:", true, Rounding::nearest, true},
    Wording{metal, "[metal::malloc]Attemptingtoallocate", true, Rounding::nearest, true},
    Wording{metal, "kIOGPUCommandBufferCallbackErrorOutOfMemory", true},
    Wording{xla, "RESOURCE_EXHAUSTED:Outofmemoryallocating", true, Rounding::truncates, true},
    Wording{cupy, "Outofmemoryallocating", true, Rounding::nearest, true},
    Wording{cupy, "outofmemorytoallocate", true, Rounding::nearest, true},
    Wording{xla, "Outofmemorywhiletryingtoallocate", true, Rounding::truncates, true},
    Wording{xla, "Failedtoallocaterequestfor", true, Rounding::truncates, true},
    Wording{xla, "Ranoutofmemoryinmemoryspace", true, Rounding::truncates},
    Wording{xla, "Attemptingtoallocate", true, Rounding::truncates, true},
    Wording{xla, "Attemptingtoreserve", true, Rounding::truncates, true},
    Wording{onnxruntime, "BFCArenaranoutofmemorytryingtoallocate", true, Rounding::nearest, true},
    Wording{onnxruntime, "Failedtoallocatememoryforrequestedbufferofsize", true},
    Wording{onnxruntime, "Availablememoryof", true, Rounding::nearest, true},
    Wording{tensorflow, "ranoutofmemorytryingtoallocate", true, Rounding::truncates, true},
    Wording{tensorflow, "OOMwhenallocatingtensorwithshape", true},
    Wording{tensorflow, "Dsttensorisnotinitialized", true},
    Wording{rmm, "Maximumpoolsizeexceeded", true, Rounding::nearest, true},
    Wording{rmm, "maximumpoolsizeexceeded", true, Rounding::nearest, true},
    Wording{rmm, "std::bad_alloc:out_of_memory", true, Rounding::nearest, true},
    Wording{paddle, "OutofmemoryerroronGPU", true},
    Wording{mxnet, "cudaMallocretryfailed:outofmemory", true},
    Wording{mxnet, "Memoryallocationfailedoutofmemory", true},
    Wording{mindspore, "memoryisn'tenoughandallocfailed", true},
    Wording{vllm, "Noavailablememoryforthecacheblocks", true},
    Wording{vllm, "islessthandesiredGPUmemoryutilization", true},
    Wording{vllm, "islargerthantheavailableKVcachememory", true, Rounding::nearest, true},
    Wording{vllm, "islargerthanthemaximumnumberoftokensthatcanbestoredinKVcache", true},
    Wording{vllm, "outofmemoryoccurredwhenwarmingup", true},
    Wording{sglang, "Notenoughmemory.Pleasetrytoincrease--mem-fraction-static", true},
    Wording{tgi, "Notenoughmemorytohandle", true},
    Wording{triton, "outofresource:", true, Rounding::nearest, true},
    Wording{julia, "OutofGPUmemorytryingtoallocate", true, Rounding::nearest, true},
    Wording{tensorrt, "RequestedamountofGPUmemory(", true, Rounding::nearest, true},
    Wording{tensorrt, "CudaRuntime(outofmemory)", true},
    Wording{tensorrt, "ErrorCode2:OutOfMemory", true},
    Wording{llama, "Mallocfailed:outofmemory", true},
    Wording{llama, "ggml_gallocr_reserve_n:failedtoallocate", true},
    Wording{llama, "ggml_gallocr_reserve_n_impl:failedtoallocate", true},
    Wording{llama, "alloc_tensor_range:failedtoallocate", true},
    Wording{llama, "failedtoallocatebufferforkvcache", true},
    Wording{llama, "ggml_vulkan:Devicememoryallocationofsize", true},
    Wording{nccl, "FailedtoCUDAcalloc", true},
    Wording{nccl, "Cudafailure2'outofmemory'", true},
    Wording{nccl, "Cudafailure'outofmemory'", true},
    Wording{numba, "resultsinCUDA_ERROR_OUT_OF_MEMORY", true},
    // Each library has the prefix of its own: CUBLAS, CUDNN, CUSPARSE, HIPBLAS, ...
    Wording{cublas, "_STATUS_ALLOC_FAILED", true},
    Wording{cublas, "_STATUS_ALLOCATION_FAILED", true},
    Wording{cublas, "_ERROR_DEVICE_ALLOCATION_FAILED", true},
    Wording{cublas, "FFT_ALLOC_FAILED", true},
    Wording{cublas, "rocblas_status_memory_error", true},
    Wording{cublas, "handle:theresourceallocationfailed", true},
    Wording{cublas, "Memorynotavailabletoallocatebuffer:", true, Rounding::nearest, true},
    Wording{host, "DefaultCPUAllocator:can'tallocatememory", true},
    Wording{host, "DefaultCPUAllocator:notenoughmemory", true},
    Wording{host, "Outofmemory:Killedprocess", true},
    Wording{host, "Outofmemory:Killprocess", true},
    Wording{host, "outofmemory:Killedprocess", true},
    Wording{host, "oom_killevent", true},
    Wording{host, "oom-killevent", true},
    Wording{host, "MemoryError:Unabletoallocate", true},
    Wording{host, "OutOfMemoryError:Taskwaskilled", true},  // Ray
    Wording{host, "OOMKilled", true},                       // Kubernetes
    Wording{host, "modelrequiresmoresystemmemory(", true, Rounding::nearest, true},
    Wording{host, "failedtoextend/dev/shm", true},
    Wording{host, "NVRTC_ERROR_OUT_OF_MEMORY", true},
    Wording{torch, "wouldexceedallowedmemory", true},  // over cudaMallocAsync
    Wording{torch, "OutOfMemoryError:Allocationondevice", false},
    Wording{torch, "CUDAoutofmemory", false},
    Wording{torch, "HIPoutofmemory", false},
    Wording{torch, "cudaruntimeerror(2):outofmemory", false},  // before 1.5
    Wording{torch, "error=2:outofmemory", false},
    Wording{onnxruntime, "CUDAfailure2:outofmemory", false},
    Wording{cuda, "CUDAerror2:outofmemory", false},
    Wording{cuda, "CUDAError:outofmemory", false},
    Wording{cuda, "CUDAerror:Outofmemory", false},
    Wording{cuda, "cudaMallocerroroutofmemory", false},
    Wording{cuda, "CUDAerror:outofmemory", false},
    Wording{cuda, "HIPerror:outofmemory", false},
    Wording{cuda, "CUDAdrivererror:outofmemory", false},
    Wording{cuda, "cudaErrorMemoryAllocation", false},
    Wording{cuda, "hipErrorOutOfMemory", false},
    Wording{cuda, "HIP_ERROR_OutOfMemory", false},
    Wording{cuda, "CUDA_ERROR_OUT_OF_MEMORY", false},
    Wording{other_driver, "OUT_OF_DEVICE_MEMORY", false},  // Vulkan, SYCL, Level Zero
    Wording{other_driver, "ErrorOutOfDeviceMemory", false},
    Wording{other_driver, "CL_MEM_OBJECT_ALLOCATION_FAILURE", false},
    Wording{cuda, "SystemisoutofGPUmemory", false},
    // CUDA's words for the error, behind what any program puts in front of them. Prose about memory
    // has a word there.
    Wording{cuda, ":outofmemory", false, Rounding::nearest, false, true},
    Wording{cuda, ")outofmemory", false, Rounding::nearest, false, true},
    Wording{cuda, "]outofmemory", false, Rounding::nearest, false, true},
    Wording{cuda, ",,outofmemory", false, Rounding::nearest, false, true},
    Wording{xla, "RESOURCE_EXHAUSTED:Outofmemory", false},
};

using enum Meaning;

constexpr std::array kPhrases{
    // PyTorch, all versions; MPS and XPU say some of it, too.
    Phrase{"Triedtoallocate", asked, ""},
    Phrase{"GPU", device, "hasatotalcapac"},
    Phrase{"(GPU", device, ";"},
    Phrase{"(NPU", device, ";"},
    Phrase{"NPU", device, "hasatotalcapac"},
    Phrase{"totalcapacityof", total, ""},
    Phrase{"totalcapactyof", total, ""},  // as 2.0 and 2.1 spell it
    Phrase{"ofwhich", free, "isfree"},
    Phrase{"thisprocesshas", process, "memoryinuse"},
    Phrase{"", allowed, "allowed;"},
    Phrase{"Oftheallocatedmemory", allocated, "isallocatedbyPyTorch"},
    Phrase{"with", private_pools, "allocatedinprivatepools"},
    Phrase{"", idle, "isreservedbyPyTorchbutunallocated"},
    Phrase{";", total, "totalcapacity"},
    Phrase{";", allocated, "alreadyallocated"},
    Phrase{";", free, "free"},
    Phrase{";", reserved, "reservedintotalbyPyTorch"},
    Phrase{";", idle, "cached"},  // before 1.4: what is cached beside what is allocated
    Phrase{"(MPSallocated:", allocated, ""},
    Phrase{"otherallocations:", elsewhere, ""},
    Phrase{"maxallowed:", allowed, ""},
    Phrase{"Invalidbuffersize:", asked, ""},
    // PyTorch over CUDA's stream-ordered allocator.
    Phrase{"Allocationondevice", device, "would"},
    Phrase{"Currentlyallocated:", allocated, ""},
    Phrase{"Requested:", asked, ""},
    Phrase{"Devicelimit:", total, ""},
    Phrase{"Free(accordingtoCUDA):", free, ""},
    Phrase{"user-suppliedmemoryfraction):", allowed, ""},
    // Metal without PyTorch.
    Phrase{"Attemptingtoallocate", asked, "whichisgreater"},
    Phrase{"maximumallowedbuffersizeof", allowed, ""},
    // CuPy.
    Phrase{"outofmemorytoallocate", asked, ""},
    Phrase{"(total", reserved, ")"},
    Phrase{"Outofmemoryallocating", asked, ""},
    Phrase{"(allocatedsofar:", reserved, ""},
    Phrase{"limitsetto:", allowed, ""},
    // XLA, on GPUs and TPUs.
    Phrase{"Outofmemorywhiletryingtoallocate", asked, ""},
    Phrase{"Failedtoallocaterequestfor", asked, ""},
    Phrase{"deviceordinal", device, ""},
    Phrase{"parameterallocation:", parameters, ""},
    Phrase{"maybe_live_outallocation:", outputs, ""},
    Phrase{"preallocatedtempallocation:", temporaries, ""},
    Phrase{"totalallocation:", program, ""},
    Phrase{"Used", asked, "of"},
    Phrase{"of", total, "hbm"},
    Phrase{"hbmcapacityby", excess, ""},
    Phrase{"Attemptingtoallocate", asked, ".Thatwasnotpossible"},
    Phrase{"Attemptingtoreserve", asked, "atthe"},
    Phrase{"Thereare", free, "free"},
    // The BFC allocator of TensorFlow, XLA and ONNX Runtime.
    Phrase{"ranoutofmemorytryingtoallocate", asked, ""},
    Phrase{"(roundedto", rounded, ")"},
    Phrase{"GPU:", device, "by"},
    Phrase{"Availablememoryof", room, "issmaller"},
    Phrase{"smallerthanrequestedbytesof", asked, ""},
    // RMM.
    Phrase{"(failedtoallocate", asked, ")"},
    Phrase{"failureallocating", asked, ""},
    Phrase{"[Upstream", asked, "]["},
    // CUDA.jl, TensorRT.
    Phrase{"OutofGPUmemorytryingtoallocate", asked, ""},
    Phrase{"iB/", total, ")Memorypool"},
    Phrase{"Memorypoolusage:", allocated, "("},
    Phrase{"(", reserved, "reserved)"},
    Phrase{"RequestedamountofGPUmemory(", asked, ")couldnot"},
    Phrase{"Requestedsizewas", asked, ""},
    // Faiss.
    Phrase{"size", asked, "(cudaMallocerror"},
    // TensorFlow, of the driver itself.
    Phrase{"(", asked, ")fromdevice"},
    // NCCL, llama.cpp, Paddle.
    Phrase{"FailedtoCUDAcallocasync", asked, ""},
    Phrase{"FailedtoCUDAcalloc", asked, ""},
    Phrase{"allocating", asked, "ondevice"},
    Phrase{"ondevice", device, ":cudaMalloc"},
    Phrase{"ondevice", device, ":hipMalloc"},
    Phrase{"ondevice", device, ":musaMalloc"},
    Phrase{"bufferofsize", asked, ""},
    Phrase{"Devicememoryallocationofsize", asked, "failed"},
    Phrase{"allocsize:", asked, ""},
    Phrase{"Device(id:", device, ")memory"},
    Phrase{"toallocatebuffer:", asked, ""},
    Phrase{"OutofmemoryerroronGPU", device, "."},
    Phrase{"Cannotallocate", asked, "memoryonGPU"},
    Phrase{"onGPU", device, ","},
    Phrase{",", reserved, "memoryhasbeenallocated"},
    Phrase{"availablememoryisonly", free, ""},
    // vLLM.
    Phrase{"(", asked, "KVcacheisneeded"},
    Phrase{"availableKVcachememory(", room, ")"},
    Phrase{"(", free, "/"},
    Phrase{"/", total, ")onstartup"},
    Phrase{",", asked, ").Decrease"},
    // Triton: what a kernel needs of one multiprocessor.
    Phrase{"sharedmemory,,Required:", asked, ""},
    Phrase{"Hardwarelimit:", total, ""},
    // XGBoost.
    Phrase{"outofmemoryFreememory:", free, ""},
    Phrase{"Requestedmemory:", asked, ""},
    // Memory of the host.
    Phrase{"moresystemmemory(", asked, ")thanis"},
    Phrase{"isavailable(", free, ")"},
    Phrase{"youtriedtoallocate", asked, ""},
    Phrase{"Unabletoallocate", asked, "foranarray"},
};

}  // namespace

std::span<const Wording> wordings() noexcept { return kWordings; }

const format::AnyWord& anchors() {
  using Word = format::RareWord;
  static constexpr std::array kAnchors{// A line may end behind "of".
                                       Word{"ut of m", 3},         Word{"ut of\n", 3},
                                       Word{"ut of\r", 3},         Word{"ut of\\", 3},
                                       Word{"ut of\x1b", 3},       Word{"ut_of_m", 2},
                                       Word{"ried to al", 0},      Word{"OOM", 0},
                                       Word{"ALLOC_F", 4},         Word{"OF_MEM", 1},
                                       Word{"OfMem", 1},           Word{"OF_DEV", 1},
                                       Word{"OfDev", 1},           Word{"ATION_FAI", 4},
                                       Word{"memory_err", 5},      Word{"ry not avail", 3},
                                       Word{"source alloc", 5},    Word{"location on dev", 8},
                                       Word{"is not initial", 4},  Word{"lid buffer size", 4},
                                       Word{"of resource: ", 3},   Word{"n't enough", 1},
                                       Word{"mory allocat", 4},    Word{"system memory (", 5},
                                       Word{"yError: Task", 0},    Word{"to extend /dev", 10},
                                       Word{"yAlloc", 0},          Word{"bad_al", 2},
                                       Word{"ize exceed", 4},      Word{"ailed to al", 0},
                                       Word{"mpting to", 0},       Word{"lable memory of", 10},
                                       Word{"o available mem", 2}, Word{"than desired", 7},
                                       Word{"KV cache", 0},        Word{"CUDA call", 1},
                                       Word{"allocate mem", 3},    Word{"nough mem", 2},
                                       Word{"t of GPU mem", 5},    Word{"amount of GPU", 0},
                                       Word{"(out of", 0},         Word{"oom_kill", 0},
                                       Word{"oom-kill", 0},        Word{"yError: Un", 0},
                                       Word{"E_EXHAU", 0},         Word{"InUse at", 0},
                                       Word{"Free  at", 0},        Word{"Free at", 0},
                                       Word{"Chunk at", 0}};
  static const format::AnyWord made(kAnchors);
  return made;
}
std::span<const Phrase> phrases() noexcept { return kPhrases; }

std::string_view name(Meaning what) noexcept {
  constexpr std::array<std::string_view, kFigures + 1> kNames{
      "asked",       "rounded",       "total",   "free",    "allowed",   "room", "reserved",
      "allocated",   "private_pools", "idle",    "process", "elsewhere", "peak", "program",
      "temporaries", "parameters",    "outputs", "excess",  "device"};
  return kNames[static_cast<std::size_t>(what)];
}

std::string_view describe(Meaning what) noexcept {
  constexpr std::array<std::string_view, kFigures + 1> kWords{"asked for",
                                                              "asked for, rounded",
                                                              "the device has",
                                                              "free on the device",
                                                              "its own limit",
                                                              "what that limit leaves",
                                                              "the allocator holds",
                                                              "given out by it",
                                                              "of that in private pools",
                                                              "idle in it",
                                                              "this process holds",
                                                              "held beside it",
                                                              "given out at most",
                                                              "the compiled program needs",
                                                              "of that temporary buffers",
                                                              "of that parameters",
                                                              "of that results",
                                                              "too large by",
                                                              "device"};
  return kWords[static_cast<std::size_t>(what)];
}

std::string_view framework(Speaker speaker) noexcept {
  constexpr std::array<std::string_view, 24> kNames{"PyTorch",
                                                    "PyTorch (MPS)",
                                                    "Metal",
                                                    "CuPy",
                                                    "XLA (JAX, TensorFlow)",
                                                    "TensorFlow or JAX",
                                                    "ONNX Runtime",
                                                    "RMM",
                                                    "Numba",
                                                    "Paddle",
                                                    "MXNet",
                                                    "MindSpore",
                                                    "vLLM",
                                                    "SGLang",
                                                    "Text Generation Inference",
                                                    "Triton",
                                                    "CUDA.jl",
                                                    "TensorRT",
                                                    "llama.cpp",
                                                    "NCCL",
                                                    "a CUDA library",
                                                    "CUDA",
                                                    "the driver of the device",
                                                    "the host"};
  return kNames[static_cast<std::size_t>(speaker)];
}

unsigned family(Speaker speaker) noexcept {
  switch (speaker) {
    case Speaker::tensorflow:
      return static_cast<unsigned>(Speaker::xla);
    default:
      return static_cast<unsigned>(speaker);
  }
}

}  // namespace emm::message
