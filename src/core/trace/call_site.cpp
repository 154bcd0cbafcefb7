#include "trace/call_site.hpp"

#include <algorithm>
#include <array>

namespace emm::trace {
namespace {

template <std::size_t N>
bool starts_with_any(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}
template <std::size_t N>
bool has_any(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != text.npos; });
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

struct Frame {
  std::string_view file, name;
  bool has_line = false;
};

/// Splits at the line number, since a path may contain spaces and colons.
Frame parts(std::string_view frame) {
  for (auto colon = frame.find(':'); colon != frame.npos; colon = frame.find(':', colon + 1)) {
    auto end = colon + 1;
    while (end < frame.size() && is_digit(frame[end])) ++end;
    if (end == colon + 1 || (end < frame.size() && frame[end] != ' ')) continue;
    const bool zero = frame.substr(colon + 1, end - colon - 1).find_first_not_of('0') == frame.npos;
    return {.file = frame.substr(0, colon),
            .name = frame.substr(std::min(end + 1, frame.size())),
            .has_line = !zero};
  }
  const auto space = frame.find(' ');
  if (space == frame.npos) return {.file = {}, .name = frame};
  return {.file = frame.substr(0, space), .name = frame.substr(space + 1)};
}

std::string without(std::string_view text, std::string_view part) {
  std::string out;
  for (;;) {
    const auto at = text.find(part);
    out.append(text.substr(0, at));
    if (at == text.npos) return out;
    text.remove_prefix(at + part.size());
  }
}

/// Returns "at::native::add" for "at::Tensor at::native::(anonymous
/// namespace)::add<float>(at::Tensor const&) [clone .isra.0]".
std::string qualified(std::string_view signature) {
  auto text = without(signature.substr(0, signature.find(" [clone")), "(anonymous namespace)::");
  constexpr std::string_view kOperator = "operator";
  std::size_t begin = 0, depth = 0, at = 0;
  for (; at < text.size(); ++at) {
    if (depth == 0 && text.compare(at, kOperator.size(), kOperator) == 0) {
      at = text.find('(', at + kOperator.size() + 1);  // "operator new(...)", "operator()(...)"
      break;
    }
    const char c = text[at];
    if (c == '<') {
      ++depth;
    } else if (c == '>') {
      depth -= depth > 0 ? 1 : 0;
    } else if (depth == 0 && c == '(') {
      break;
    } else if (depth == 0 && c == ' ') {
      begin = at + 1;
    }
  }
  return text.substr(begin, std::min(at, text.size()) - begin);
}

bool is_python(const Frame& frame) {
  return frame.file.ends_with(".py") || frame.file.ends_with(".pyx") ||
         frame.file.starts_with('<') || frame.name == "<module>" || frame.name == "<lambda>";
}

/// Is the file part of PyTorch's own package? A checkout named pytorch has the package outside of
/// "site-packages". A program's own torch/utils does not count.
bool is_torch_checkout(std::string_view file) {
  constexpr std::array<std::string_view, 15> kFolders{
      "nn/",    "optim/",   "autograd/",  "cuda/",       "distributed/",
      "utils/", "_dynamo/", "_inductor/", "_functorch/", "fx/",
      "amp/",   "jit/",     "_ops.py",    "_tensor.py",  "_compile.py"};
  constexpr std::string_view kPackage = "/pytorch/torch/";
  const auto at = file.find(kPackage);
  return at != file.npos && starts_with_any(file.substr(at + kPackage.size()), kFolders);
}

FrameKind python_kind(const Frame& frame) {
  constexpr std::array<std::string_view, 6> kInstalled{
      "-packages/", "-packages\\", "/lib/python", "\\lib\\", "/torchinductor_", "<frozen "};
  if (has_any(frame.file, kInstalled) || is_torch_checkout(frame.file)) return FrameKind::library;
  constexpr std::array<std::string_view, 4> kCython{"cupy/", "cupy_backends/", "rmm/",
                                                    "cuda/"};  // relative, as compiled
  if (frame.file.ends_with(".pyx") && starts_with_any(frame.file, kCython))
    return FrameKind::library;
  const bool launcher =
      !frame.file.ends_with(".py") && frame.file.find("/bin/") != frame.file.npos;  // torchrun
  if (launcher) return FrameKind::library;
  constexpr std::array<std::string_view, 3> kTyped{"<stdin>", "<string>", "<ipython-input"};
  if (frame.file.starts_with('<') && !starts_with_any(frame.file, kTyped))
    return FrameKind::library;
  return FrameKind::own;
}

/// The kind by the name of the function, without its arguments; `native` for an unknown name.
FrameKind named_kind(std::string_view signature) {
  if (signature.empty() || signature == "?" || signature == "??") return FrameKind::runtime;
  const auto name = qualified(signature);
  constexpr std::array<std::string_view, 14> kAllocator{
      "torch::unwind",     "torch::CapturedTraceback",
      "torch::symbolize",  "torch::cuda::CUDAPluggableAllocator",
      "torch::gather",     "torch::cuda::gather",
      "gather_with_cpp",   "c10::StorageImpl",
      "c10::Allocator",    "c10::CachingDeviceAllocator",
      "at::detail::empty", "at::detail::_empty",
      "rmm::mr::",         "cupy::cuda::memory"};
  const bool gathers = name == "gather" && (signature == "gather()" ||
                                            signature.find("GatheredContext") != signature.npos);
  if (starts_with_any(name, kAllocator) || gathers || name.find("CachingAllocator") != name.npos ||
      name.find("PluggableAllocator") != name.npos) {
    return FrameKind::allocator;
  }
  constexpr std::array<std::string_view, 25> kPlumbing{"c10::",
                                                       "caffe2::",
                                                       "std::",
                                                       "__gnu_cxx::",
                                                       "operator",
                                                       "at::detail::",
                                                       "at::empty",
                                                       "at::_empty",
                                                       "at::native::empty",
                                                       "at::native::_empty",
                                                       "at::native::new_empty",
                                                       "at::_ops::empty",
                                                       "at::_ops::_empty",
                                                       "at::_ops::new_empty",
                                                       "at::wrapper_",
                                                       "wrapper_C",
                                                       "at::TensorBase",
                                                       "at::Tensor::",
                                                       "at::TensorIterator",
                                                       "at::structured_",
                                                       "at::create_out",
                                                       "at::native::resize_",
                                                       "at::cuda::",
                                                       "at::maybe_create_proxy",
                                                       "at::OptionalDeviceGuard"};
  if (starts_with_any(name, kPlumbing)) return FrameKind::plumbing;
  constexpr std::array<std::string_view, 16> kFramework{
      "at::",  "torch::", "pybind11::", "THP",   "THC",      "thrust::", "cub::",   "cutlass::",
      "cudnn", "cublas",  "cusolver",   "cufft", "cusparse", "nccl",     "caffe::", "nvfuser::"};
  if (starts_with_any(name, kFramework)) return FrameKind::framework;
  constexpr std::array<std::string_view, 4> kCuda{"cudaMalloc", "cudaFree", "cuMem", "cudaLaunch"};
  if (starts_with_any(name, kCuda)) return FrameKind::plumbing;
  const bool is_c =
      signature.find('(') == signature.npos;  // the interpreter and libc have no overloads
  constexpr std::array<std::string_view, 36> kRuntime{"_Py",
                                                      "Py_",
                                                      "PyObject_",
                                                      "PyEval_",
                                                      "PyRun_",
                                                      "PyVectorcall_",
                                                      "PyCFunction",
                                                      "PyNumber_",
                                                      "PySequence_",
                                                      "PyIter_",
                                                      "PyImport_",
                                                      "PyTuple_",
                                                      "PyMethod_",
                                                      "pymain_",
                                                      "pyrun_",
                                                      "run_mod",
                                                      "run_eval_code_obj",
                                                      "cfunction_",
                                                      "method_",
                                                      "slot_",
                                                      "type_call",
                                                      "object_",
                                                      "function_",
                                                      "vectorcall_",
                                                      "_vectorcall",
                                                      "partial_",
                                                      "builtin_",
                                                      "gen_send",
                                                      "gen_iternext",
                                                      "wrap_call",
                                                      "wrapperdescr_",
                                                      "property_",
                                                      "__libc_",
                                                      "_dl_",
                                                      "call_function",
                                                      "pthread_"};
  constexpr std::array<std::string_view, 8> kWhole{"_start",
                                                   "start_thread",
                                                   "clone",
                                                   "clone3",
                                                   "__clone",
                                                   "__clone3",
                                                   "execute_native_thread_routine",
                                                   "do_call_core"};
  if (is_c && starts_with_any(name, kRuntime)) return FrameKind::runtime;
  if (std::find(kWhole.begin(), kWhole.end(), name) != kWhole.end()) return FrameKind::runtime;
  return FrameKind::native;
}

FrameKind native_kind(const Frame& frame) {
  const auto by_name =
      frame.name.empty() && frame.has_line ? FrameKind::native : named_kind(frame.name);
  if (by_name != FrameKind::native) return by_name;
  constexpr std::array<std::string_view, 4> kAllocator{"CachingAllocator", "PluggableAllocator",
                                                       "/profiler/unwind/", "combined_traceback"};
  if (has_any(frame.file, kAllocator)) return FrameKind::allocator;
  constexpr std::array<std::string_view, 13> kFramework{"aten/src/ATen",
                                                        "torch/csrc/",
                                                        "c10/",
                                                        "torch/include/",
                                                        "libtorch",
                                                        "libc10",
                                                        "RegisterCUDA",
                                                        "RegisterBackend",
                                                        "RegisterComposite",
                                                        "VariableType_",
                                                        "python_torch_functions",
                                                        "python_variable_methods",
                                                        "python_nn_functions"};
  if (has_any(frame.file, kFramework)) return FrameKind::framework;
  constexpr std::array<std::string_view, 5> kRuntime{"libpython", "libc.so", "libpthread",
                                                     "libstdc++", "ld-linux"};
  constexpr std::array<std::string_view, 7> kSources{
      "Objects/", "Python/ceval", "Modules/main", "Programs/python",
      "sysdeps/", "csu/",         "nptl/"};  // CPython's and glibc's, in C
  if (has_any(frame.file, kRuntime) ||
      (frame.file.ends_with(".c") && has_any(frame.file, kSources)))
    return FrameKind::runtime;
  // Built by a distribution, or in a library: the reader of a report cannot change it.
  constexpr std::array<std::string_view, 5> kBuilt{"/usr/", "/lib/", "/opt/conda/", "/build/",
                                                   "/croot/"};
  const bool installed =
      starts_with_any(frame.file, kBuilt) || frame.file.find("-packages/") != frame.file.npos ||
      frame.file.find("conda-bld/") != frame.file.npos || frame.file.find(".so") != frame.file.npos;
  return frame.has_line && !installed ? FrameKind::own : FrameKind::native;
}

}  // namespace

CallSites::Seen CallSites::see(std::string_view text) {
  const auto frame = parts(text);
  const bool python = is_python(frame);
  return {.kind = python ? python_kind(frame) : native_kind(frame),
          .python = python,
          .interpreter =
              python || frame.name.find("PyEval") != frame.name.npos || frame.name == "Py_RunMain",
          .main = !python && (frame.name == "main" || frame.name.starts_with("main("))};
}

void CallSites::look(std::span<const std::string_view> frames) {
  stack_.clear();
  python_ = false;
  bool interpreter = false;
  for (const auto& frame : frames) {
    const auto found = known_.find(frame);
    stack_.push_back(found != known_.end() ? found->second : see(frame));
    if (found == known_.end() && known_.size() < kKept) known_.emplace(frame, stack_.back());
    python_ = python_ || stack_.back().python;
    interpreter = interpreter || stack_.back().interpreter;
  }
  // All frames inside of an allocator count as the allocator, whatever their names: the plugin
  // behind CUDAPluggableAllocator, std::function.
  auto last = stack_.size();
  while (last > 0 && stack_[last - 1].kind != FrameKind::allocator) --last;
  for (std::size_t i = 0; i < last; ++i) stack_[i].kind = FrameKind::allocator;
  for (auto& each : stack_) {
    if (interpreter && each.main) each.kind = FrameKind::runtime;
  }
}

/// REQUIRES: look() was called with a stack that is not empty.
std::size_t CallSites::first() const {
  using enum FrameKind;
  constexpr std::array<FrameKind, 7> kNative{own,      native,  library,  framework,
                                             plumbing, runtime, allocator};
  constexpr std::array<FrameKind, 7> kPython{own,      library, native,   framework,
                                             plumbing, runtime, allocator};
  for (const auto kind : python_ ? kPython : kNative) {
    const auto found = std::find_if(stack_.begin(), stack_.end(),
                                    [&](const Seen& each) { return each.kind == kind; });
    if (found != stack_.end()) return static_cast<std::size_t>(found - stack_.begin());
  }
  return 0;
}

CallSite CallSites::of(std::span<const std::string_view> frames) {
  if (all_ || frames.empty()) return {.frames = {frames.begin(), frames.end()}, .called = {}};
  look(frames);
  CallSite site;
  const auto from = first();
  for (std::size_t i = 0; i < from && site.called.empty(); ++i) {
    if (stack_[i].python) site.called = frames[i];
  }
  const auto most = std::max(stack_[from].kind, python_ ? FrameKind::library : FrameKind::native);
  for (auto i = from; i < frames.size(); ++i) {
    if (stack_[i].kind <= most) site.frames.push_back(frames[i]);
  }
  return site;
}

std::vector<std::string> CallSites::shown(const std::vector<std::string>& frames) {
  const std::vector<std::string_view> views(frames.begin(), frames.end());
  const auto site = of(views);
  return {site.frames.begin(), site.frames.end()};
}

}  // namespace emm::trace
