// cuDNN 9: handles, plain descriptors, and its graph API as the frontend calls it. A heuristic
// gives one engine for each graph of operations, and its plan has the workspace that
// `--cudnn-workspace` says: one size, or that of a rule (cudnn_workspace.hpp). Nothing is computed.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/cudnn_workspace.hpp"
#include "standin/libraries/handles.hpp"

using namespace emm::standin;

namespace {

// cudnnStatus_t
constexpr Status kSuccess = 0, kNotInitialized = 1001, kBadParameter = 2000;

// cudnnBackendDescriptorType_t
enum Kind : int {
  engine = 2,
  engine_config = 3,
  engine_heuristic = 4,
  execution_plan = 5,
  convolution_forward = 10,
  convolution_backward_filter = 11,
  convolution_backward_data = 12,
  operation_graph = 15,
  tensor = 17
};
// cudnnBackendAttributeName_t
enum Attribute : int {
  heuristic_graph = 201,
  heuristic_results = 202,
  config_engine = 300,
  config_workspace = 303,
  plan_config = 401,
  plan_workspace = 402,
  plan_json = 405,
  forward_w = 703,
  forward_x = 704,
  forward_y = 705,
  data_w = 709,
  data_dx = 710,
  data_dy = 711,
  filter_dw = 715,
  filter_x = 716,
  filter_dy = 717,
  graph_operations = 801,
  graph_engines = 802,
  tensor_type = 901,
  tensor_sizes = 902,
  tensor_strides = 903,
  engine_graph = 1300,
  engine_index = 1301
};

/// Bytes of an element of a cudnnBackendAttributeType_t; 0 if there is none of that number.
std::size_t size_of(int type) {
  // CUDNN_TYPE_BOOLEAN, _CHAR, _FRACTION, and the last one of cuDNN 9.
  constexpr int kBoolean = 2, kChar = 24, kFraction = 26, kLast = 30;
  if (type < 0 || type > kLast) return 0;
  if (type == kBoolean || type == kChar) return 1;
  if (type == kFraction) return 2 * sizeof(std::int64_t);
  for (const int wide : {0, 3, 5, 6, 15}) {  // handle, int64, double, pointer, descriptor
    if (type == wide) return 8;
  }
  return 4;
}

/// Returns what each plan takes; nothing where a rule says it.
std::optional<std::int64_t> given_workspace() {
  static const auto bytes = []() -> std::optional<std::int64_t> {
    const char* const given = std::getenv("EMM_STANDIN_CUDNN");
    if (given == nullptr || std::strcmp(given, "fitted") == 0) return std::nullopt;
    return std::strtoll(given, nullptr, 10);
  }();
  return bytes;
}

struct Descriptor {
  int kind = 0;
  bool is_final = false;
  struct Value {
    int type = 0;
    std::vector<std::byte> bytes{};
  };
  std::map<int, Value> values{};
  std::int64_t workspace = 0;  ///< Bytes of the plan of this graph, or of what this was made of.

  template <class T>
  std::vector<T> all(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> elements(found->second.bytes.size() / sizeof(T));
    if (!elements.empty())
      std::memcpy(elements.data(), found->second.bytes.data(), elements.size() * sizeof(T));
    return elements;
  }
  const Descriptor* descriptor(int name) const {
    const auto found = all<const Descriptor*>(name);
    return found.empty() ? nullptr : found.front();
  }
};

/// Returns the bytes of an element of a cudnnDataType_t, and four for one that is not known.
std::int64_t element_bytes(int type) {
  constexpr int kDouble = 1, kHalf = 2, kBfloat16 = 9;  // CUDNN_DATA_DOUBLE, _HALF, _BFLOAT16
  return type == kDouble ? 8 : type == kHalf || type == kBfloat16 ? 2 : 4;
}

ConvolutionTensor tensor_of(const Descriptor* of) {
  if (of == nullptr || of->kind != tensor) return {};
  ConvolutionTensor made{.sizes = of->all<std::int64_t>(tensor_sizes)};
  const auto types = of->all<std::int32_t>(tensor_type);
  made.element_bytes = element_bytes(types.empty() ? 0 : types.front());
  const auto strides = of->all<std::int64_t>(tensor_strides);
  made.channels_last = strides.size() > 2 && strides.size() == made.sizes.size() &&
                       strides[1] == 1 && strides.back() != 1;
  return made;
}

/// Returns what the operation of a graph takes, by the rule.
std::int64_t workspace_of_operation(const Descriptor& of) {
  const auto tensors = [&](ConvolutionPart part, int x, int w, int y) {
    return workspace_of({.part = part,
                         .x = tensor_of(of.descriptor(x)),
                         .w = tensor_of(of.descriptor(w)),
                         .y = tensor_of(of.descriptor(y))});
  };
  switch (of.kind) {
    case convolution_forward:
      return tensors(ConvolutionPart::y, forward_x, forward_w, forward_y);
    case convolution_backward_data:
      return tensors(ConvolutionPart::x_gradient, data_dx, data_w, data_dy);
    case convolution_backward_filter:
      return tensors(ConvolutionPart::w_gradient, filter_x, filter_dw, filter_dy);
    default:
      return 0;
  }
}

/// Returns what a plan of `of` takes. It is asked when `of` becomes whole, since the caller may
/// destroy then what `of` names.
std::int64_t workspace_when_whole(const Descriptor& of) {
  if (const auto given = given_workspace()) return *given;
  const auto of_named = [&](int name) {
    const auto* const named = of.descriptor(name);
    return named == nullptr ? of.workspace : named->workspace;
  };
  switch (of.kind) {
    case operation_graph: {
      std::int64_t most = 0;
      for (const auto* each : of.all<const Descriptor*>(graph_operations))
        most = std::max(most, each == nullptr ? 0 : each->workspace);
      return most;
    }
    case engine_heuristic:
      return of_named(heuristic_graph);
    case engine:
      return of_named(engine_graph);
    case engine_config:
      return of_named(config_engine);
    case execution_plan:
      return of_named(plan_config);
    default:
      return workspace_of_operation(of);
  }
}

/// What a plan, a heuristic and the like tell of themselves.
Status answer(const Descriptor& of, int name, std::int64_t requested, std::int64_t* count,
              void* into) {
  const auto number = [&](std::int64_t value) {
    *count = 1;
    if (requested >= 1 && into != nullptr) std::memcpy(into, &value, sizeof value);
    return kSuccess;
  };
  // The caller made the descriptors that it gets, which are then whole.
  const auto one = [&](int kind) -> Status {
    *count = 1;
    if (requested < 1 || into == nullptr) return kSuccess;
    auto* const made = *static_cast<Descriptor**>(into);
    if (made == nullptr || made->kind != kind) return kBadParameter;
    made->is_final = true;
    made->workspace = of.workspace;
    return kSuccess;
  };
  switch (name) {
    case heuristic_results:
      return one(engine_config);
    case config_engine:
      return one(engine);
    case config_workspace:
    case plan_workspace:
      return number(of.workspace);
    case graph_engines:
      return number(1);
    case engine_index:
      return number(0);
    case plan_json: {
      constexpr char kNothing[] = "{}";
      *count = sizeof kNothing;
      const auto room = static_cast<std::size_t>(std::max<std::int64_t>(requested, 0));
      if (into != nullptr) std::memcpy(into, kNothing, std::min(room, sizeof kNothing));
      return kSuccess;
    }
    default:
      *count = 0;  // no notes, and no knobs
      return kSuccess;
  }
}

Status no_bytes(std::size_t* bytes) {
  if (bytes == nullptr) return kBadParameter;
  *bytes = 0;
  return kSuccess;
}

/// Returns the version that the loaded library, which leads here, was made to tell; 0 without one.
std::size_t loaded_version() {
  using Version = std::size_t (*)();
  Version found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        if (std::strstr(info->dlpi_name, "libcudnn.so") == nullptr) return 0;
        void* const library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        if (library == nullptr) return 0;
        *static_cast<void**>(into) = dlsym(library, "cudnnGetVersion");
        dlclose(library);
        return 1;
      },
      &found);
  return found != nullptr ? found() : 0;
}

/// For emmctl: cuDNN's plans that were made.
void note_plan() {
  static std::atomic<bool> is_noted{false};
  if (is_noted.exchange(true)) return;
  const char* const folder = std::getenv("EMM_STANDIN_PROGRAM");
  if (folder == nullptr) return;
  if (auto* const file = std::fopen((std::string(folder) + "/planned.cudnn").c_str(), "we"))
    std::fclose(file);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Status cudnnCreate(LibraryHandle** out) {
  if (out == nullptr) return kBadParameter;
  if (cudart::enter() != cudart::kSuccess) return kNotInitialized;
  return create(out, dnn_handle, kNotInitialized);  // as cuDNN says it where memory lacks
}
Status cudnnDestroy(LibraryHandle* handle) { return destroy(handle, dnn_handle); }
Status cudnnSetStream(LibraryHandle* handle, void* stream) {
  if (handle == nullptr) return kBadParameter;
  handle->stream = stream;
  return kSuccess;
}
Status cudnnGetStream(LibraryHandle* handle, void** stream) {
  if (handle == nullptr || stream == nullptr) return kBadParameter;
  *stream = handle->stream;
  return kSuccess;
}
Status cudnnGetProperty(int type, int* value) {
  constexpr int kMajor = 0, kMinor = 1, kPatch = 2;  // libraryPropertyType
  if (value == nullptr || type < kMajor || type > kPatch) return kBadParameter;
  const auto version = static_cast<int>(loaded_version());  // 91203 is 9.12.3
  if (version == 0) return kNotInitialized;
  *value = type == kMajor ? version / 10000 : type == kMinor ? version / 100 % 100 : version % 100;
  return kSuccess;
}
std::size_t cudnnGetCudartVersion() { return static_cast<std::size_t>(cuda_version()) * 1000; }
const char* cudnnGetErrorString(Status status) {
  switch (status) {
    case kSuccess:
      return "CUDNN_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case kBadParameter:
      return "CUDNN_STATUS_BAD_PARAM";
    default:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
}
void cudnnGetLastErrorString(char* words, std::size_t size) {
  if (words != nullptr && size != 0) words[0] = '\0';
}

// Descriptors that nobody asks what was set.
#define EMM_PLAIN(name)                                  \
  Status cudnnCreate##name(LibraryHandle** out) {        \
    return out != nullptr ? create(out) : kBadParameter; \
  }                                                      \
  Status cudnnDestroy##name(LibraryHandle* handle) { return destroy(handle); }
EMM_PLAIN(TensorDescriptor)
EMM_PLAIN(FilterDescriptor)
EMM_PLAIN(ConvolutionDescriptor)
EMM_PLAIN(ActivationDescriptor)
EMM_PLAIN(PoolingDescriptor)
#undef EMM_PLAIN

// What batch normalization takes besides is not known, and taken to be nothing.
Status cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*,
                                                                void*, void*, void*,
                                                                std::size_t* bytes) {
  return no_bytes(bytes);
}
Status cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*,
                                                         void*, void*, void*, void*,
                                                         std::size_t* bytes) {
  return no_bytes(bytes);
}
Status cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*,
                                                            std::size_t* bytes) {
  return no_bytes(bytes);
}

Status cudnnBackendCreateDescriptor(int kind, Descriptor** out) {
  if (out == nullptr) return kBadParameter;
  *out = new Descriptor{.kind = kind};
  return kSuccess;
}
Status cudnnBackendDestroyDescriptor(Descriptor* of) {
  delete of;
  return kSuccess;
}
Status cudnnBackendInitialize(Descriptor* of) {
  if (of == nullptr) return kBadParameter;
  *of = Descriptor{.kind = of->kind};
  return kSuccess;
}
Status cudnnBackendFinalize(Descriptor* of) {
  if (of == nullptr) return kBadParameter;
  of->is_final = true;
  of->workspace = workspace_when_whole(*of);
  if (of->kind == execution_plan) note_plan();
  return kSuccess;
}
Status cudnnBackendSetAttribute(Descriptor* of, int name, int type, std::int64_t count,
                                const void* elements) {
  if (of == nullptr || of->is_final || count < 0 || size_of(type) == 0 ||
      (count != 0 && elements == nullptr))
    return kBadParameter;
  const auto* const bytes = static_cast<const std::byte*>(elements);
  of->values[name] = {.type = type,
                      .bytes = {bytes, bytes + static_cast<std::size_t>(count) * size_of(type)}};
  return kSuccess;
}
Status cudnnBackendGetAttribute(const Descriptor* of, int name, int type, std::int64_t requested,
                                std::int64_t* count, void* elements) {
  std::int64_t nobody = 0;
  auto* const found_count = count != nullptr ? count : &nobody;
  if (of == nullptr || !of->is_final || size_of(type) == 0) return kBadParameter;
  const auto found = of->values.find(name);
  // The engine that was set is copied into the one that the caller made.
  if (found == of->values.end() || name == config_engine)
    return answer(*of, name, requested, found_count, elements);
  if (found->second.type != type) return kBadParameter;
  const auto& bytes = found->second.bytes;
  *found_count = static_cast<std::int64_t>(bytes.size() / size_of(type));
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(requested, 0)) * size_of(type);
  if (elements != nullptr) std::memcpy(elements, bytes.data(), std::min(room, bytes.size()));
  return kSuccess;
}
Status cudnnBackendExecute(LibraryHandle* handle, const Descriptor* plan, const Descriptor* pack) {
  const bool is_whole = handle != nullptr && plan != nullptr && pack != nullptr &&
                        plan->kind == execution_plan && plan->is_final && pack->is_final;
  return is_whole ? kSuccess : kBadParameter;
}

}  // extern "C"
#pragma GCC visibility pop
