#include "trace/call_site.hpp"

#include <gtest/gtest.h>

namespace emm::trace {
namespace {

using Frames = std::vector<std::string>;

// What PyTorch's _dump_snapshot() has with stacks="all", of an add in a forward pass under
// CPython 3.11 or later, whose interpreter runs several Python frames in one of C.
const Frames kRecorded{
    "?? torch::unwind::unwind()",
    "?? torch::CapturedTraceback::gather(bool, bool, bool)",
    "memory_snapshot.cpp (anonymous namespace)::gather_with_cpp()",
    "?? std::_Function_handler<std::shared_ptr<c10::GatheredContext> (), "
    "std::shared_ptr<c10::GatheredContext> (*)()>::_M_invoke(std::_Any_data const&)",
    "CUDACachingAllocator.cpp "
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, "
    "CUstream_st*)",
    "?? c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, signed "
    "char, unsigned long, CUstream_st*)",
    "?? c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
    "?? c10::StorageImpl::StorageImpl(c10::StorageImpl::use_byte_size_t, c10::SymInt const&, "
    "c10::Allocator*, bool)",
    "?? at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*, "
    "c10::DispatchKeySet, c10::ScalarType, std::optional<c10::MemoryFormat>)",
    "?? at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, std::optional<c10::Device>, "
    "std::optional<c10::MemoryFormat>)",
    "RegisterCUDA_0.cpp at::(anonymous namespace)::create_out(c10::ArrayRef<long>, "
    "c10::ArrayRef<long>, c10::TensorOptions const&)",
    "?? at::native::structured_ufunc_add_CUDA::impl(at::Tensor const&, at::Tensor const&, "
    "c10::Scalar const&, at::Tensor const&)",
    "RegisterCUDA_0.cpp at::(anonymous namespace)::wrapper_CUDA_add_Tensor(at::Tensor const&, "
    "at::Tensor const&, c10::Scalar const&)",
    "?? c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<int>, "
    "at::Tensor (at::Tensor const&)>::call(c10::OperatorKernel*)",
    "?? at::_ops::add_Tensor::call(at::Tensor const&, at::Tensor const&, c10::Scalar const&)",
    "VariableType_2.cpp torch::autograd::VariableType::(anonymous "
    "namespace)::add_Tensor(c10::DispatchKeySet, at::Tensor const&)",
    "python_variable_methods.cpp _object* "
    "torch::autograd::TypeError_to_NotImplemented_<&(torch::autograd::THPVariable_add(_object*, "
    "_object*, _object*))>(_object*, _object*, _object*)",
    "?? THPVariable_add",
    "/usr/local/src/conda/python-3.11.9/Objects/descrobject.c:364 "
    "method_vectorcall_VARARGS_KEYWORDS",
    "?? cfunction_call",
    "?? PyObject_Vectorcall",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:125 forward",
    "?? _PyEval_EvalFrameDefault",
    "?? _PyObject_FastCallDictTstate",
    "?? _PyObject_Call_Prepend",
    "?? slot_tp_call",
    "?? _PyObject_MakeTpCall",
    "?? _PyEval_EvalFrameDefault",
    "?? PyEval_EvalCode",
    "?? run_eval_code_obj",
    "?? run_mod",
    "?? pyrun_file.cold",
    "?? _PyRun_SimpleFileObject",
    "?? Py_RunMain",
    "?? Py_BytesMain",
    "?? main",
    "../sysdeps/nptl/libc_start_call_main.h:58 __libc_start_call_main",
    "../csu/libc-start.c:392 __libc_start_main_impl",
    "?? _start",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1750 _call_impl",
    "/home/me/my project/model.py:41 forward",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1750 _call_impl",
    "/home/me/my project/train.py:88 step",
    "/home/me/my project/train.py:120 <module>",
};

Frames shown(const Frames& frames) { return CallSites().shown(frames); }

TEST(CallSites, BeginWithTheInnermostLineOfTheProgram) {
  EXPECT_EQ(
      shown(kRecorded),
      (Frames{"/home/me/my project/model.py:41 forward",
              "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1750 _call_impl",
              "/home/me/my project/train.py:88 step",
              "/home/me/my project/train.py:120 <module>"}));
}

TEST(CallSites, NameTheInnermostPythonFunctionThatTheProgramCalled) {
  const std::vector<std::string_view> views(kRecorded.begin(), kRecorded.end());

  EXPECT_EQ(CallSites().of(views).called,
            "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:125 forward");
}

TEST(CallSites, AreWholeStacksWhereAllFramesAreAskedFor) {
  EXPECT_EQ(CallSites(true).shown(kRecorded), kRecorded);
}

TEST(CallSites, OfAProgramWithoutPythonAreItsOwnFunctionsUpToMain) {
  const Frames native{kRecorded.begin(), kRecorded.begin() + 15};
  auto frames = native;
  for (const auto* frame :
       {"?? Net::forward(at::Tensor)",
        "?? torch::nn::Module::apply(std::function<void (torch::nn::Module&)> const&)", "?? main",
        "?? __libc_start_main", "?? _start"}) {
    frames.emplace_back(frame);
  }
  EXPECT_EQ(shown(frames), (Frames{"?? Net::forward(at::Tensor)", "?? main"}));

  frames = native;
  for (const auto* frame :
       {"/home/me/net.cpp:20 Net::forward(at::Tensor)", "/home/me/app.cpp:7 main", "?? _start"}) {
    frames.emplace_back(frame);
  }
  EXPECT_EQ(shown(frames),
            (Frames{"/home/me/net.cpp:20 Net::forward(at::Tensor)", "/home/me/app.cpp:7 main"}));
}

TEST(CallSites, BeginInAnExtensionWhoseLinesAreKnown) {
  EXPECT_EQ(
      shown(
          {"?? c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned "
           "long)",
           "?? at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)",
           "/home/me/ext/fused.cu:33 fused_forward(at::Tensor)",
           "?? pybind11::cpp_function::dispatcher(_object*, _object*, _object*)",
           "?? cfunction_call", "/home/me/train.py:9 <module>"}),
      (Frames{"/home/me/ext/fused.cu:33 fused_forward(at::Tensor)",
              "/home/me/train.py:9 <module>"}));
}

TEST(CallSites, SkipWhatAPluggableAllocatorCalls) {
  EXPECT_EQ(
      shown({"/home/me/alloc.cpp:12 my_malloc(long, int, CUstream_st*)",
             "?? std::function<void* (unsigned long)>::operator()(unsigned long) const",
             "?? torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned "
             "long, signed char, CUstream_st*)",
             "?? at::detail::empty_generic(c10::ArrayRef<long>)", "train.py:3 <module>"}),
      Frames{"train.py:3 <module>"});
}

TEST(CallSites, OfAutogradsThreadBeginWithTheOperator) {
  const auto frames = shown(
      {"?? torch::unwind::unwind()",
       "?? c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned "
       "long)",
       "?? at::detail::empty_cuda(c10::ArrayRef<long>)",
       "?? at::native::empty_cuda(c10::ArrayRef<long>)",
       "?? at::native::cudnn_convolution_backward_input(c10::ArrayRef<long>)",
       "?? torch::autograd::generated::ConvolutionBackward0::apply(std::vector<at::Tensor>&&)",
       "?? torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> "
       "const&)",
       "?? execute_native_thread_routine", "?? start_thread", "?? clone3"});

  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.front(), "?? at::native::cudnn_convolution_backward_input(c10::ArrayRef<long>)");
  EXPECT_EQ(frames.back(),
            "?? torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> "
            "const&)");
}

TEST(CallSites, AreNeverEmptyWhereFramesWereRecorded) {
  EXPECT_EQ(shown({"?? torch::unwind::unwind()", "?? c10::StorageImpl::StorageImpl()"}),
            (Frames{"?? torch::unwind::unwind()", "?? c10::StorageImpl::StorageImpl()"}));
  EXPECT_EQ(shown({"?? ??"}), Frames{"?? ??"});
  EXPECT_EQ(shown({""}), Frames{""});
  EXPECT_TRUE(shown({}).empty());
}

TEST(CallSites, DoNotTakeTheProgramsOwnLinesForThoseOfTheRuntime) {
  for (const std::string own :
       {"/home/me/Objects/mesh.cpp:12 build()", "/srv/app/csu/pool.cpp:5 take()",
        "/home/me/reduce.cpp:7 gather(float*, int)", "/home/me/data.c:3 gen_batch"}) {
    EXPECT_EQ(shown({own, "main.cpp:9 main"}).front(), own);
  }
  EXPECT_EQ(shown({"?? pthread_condattr_setpshared", "?? torch::autograd::Engine::thread_main()",
                   "?? clone3"})
                .front(),
            "?? torch::autograd::Engine::thread_main()");
}

TEST(CallSites, TakeFramesOfAnyTool) {
  EXPECT_EQ(shown({"inner", "outer"}), (Frames{"inner", "outer"}));
  EXPECT_EQ(shown({"model.cpp:88"}), Frames{"model.cpp:88"});
  EXPECT_EQ(
      shown({"/tmp/ipykernel_12/3.py:4 <module>", "/usr/lib/python3.12/runpy.py:88 _run_code"})
          .front(),
      "/tmp/ipykernel_12/3.py:4 <module>");
  EXPECT_EQ(shown({"<eval_with_key>.3:9 forward", "/usr/local/bin/torchrun:8 <module>",
                   "<stdin>:1 <module>"}),
            Frames{"<stdin>:1 <module>"});
  EXPECT_EQ(shown({"cupy/cuda/memory.pyx:1234 cupy.cuda.memory.alloc", "/home/me/a.py:1 <module>"}),
            Frames{"/home/me/a.py:1 <module>"});
  EXPECT_EQ(shown({"C:\\work\\train.py:3 step", "C:\\Python\\lib\\runpy.py:9 f"}).front(),
            "C:\\work\\train.py:3 step");
  EXPECT_EQ(shown({"/home/me/pytorch/torch/nn/modules/linear.py:125 forward",
                   "/home/me/bin/train.py:1 <module>"}),
            Frames{"/home/me/bin/train.py:1 <module>"});
}

TEST(CallSites, AProgramsOwnFolderNamedTorchIsNoLibrary) {
  EXPECT_EQ(
      shown({"/home/bob/proj/torch/utils/mine.py:7 load", "/home/bob/proj/main.py:1 <module>"}),
      (Frames{"/home/bob/proj/torch/utils/mine.py:7 load", "/home/bob/proj/main.py:1 <module>"}));
}

}  // namespace
}  // namespace emm::trace
