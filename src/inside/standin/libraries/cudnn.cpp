// cuDNN 9, where `--cudnn-workspace` says what its plans take: handles, plain descriptors, and its
// graph API as the frontend calls it. A heuristic gives one engine for each graph of operations,
// and its plan has the workspace of the option. Nothing is computed.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/handles.hpp"

using namespace emm::standin;

namespace {

// cudnnStatus_t
constexpr Status kSuccess = 0, kNotInitialized = 1001, kBadParameter = 2000, kNotSupported = 3000;

// cudnnBackendDescriptorType_t
enum Kind : int { engine = 2, engine_config = 3, engine_heuristic = 4, execution_plan = 5 };
// cudnnBackendAttributeName_t
enum Attribute : int {
  heuristic_results = 202,
  config_engine = 300,
  config_workspace = 303,
  plan_workspace = 402,
  plan_json = 405,
  graph_engines = 802,
  engine_index = 1301
};

/// Bytes of an element of a cudnnBackendAttributeType_t; 0 if there is none of that number.
std::size_t size_of(int type) {
  constexpr int kBoolean = 2, kChar = 24, kFraction = 26, kLast = 30;
  if (type < 0 || type > kLast) return 0;
  if (type == kBoolean || type == kChar) return 1;
  if (type == kFraction) return 2 * sizeof(std::int64_t);
  for (const int wide : {0, 3, 5, 6, 15}) {  // handle, int64, double, pointer, descriptor
    if (type == wide) return 8;
  }
  return 4;
}

std::int64_t workspace() {
  static const auto bytes = [] {
    const char* const given = std::getenv("EMM_STANDIN_CUDNN");
    return given != nullptr ? std::strtoll(given, nullptr, 10) : 0LL;
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
};

/// What a plan, a heuristic and the like tell of themselves.
Status answer(int name, std::int64_t requested, std::int64_t* count, void* into) {
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
    return kSuccess;
  };
  switch (name) {
    case heuristic_results:
      return one(engine_config);
    case config_engine:
      return one(engine);
    case config_workspace:
    case plan_workspace:
      return number(workspace());
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
  return create(out);
}
Status cudnnDestroy(LibraryHandle* handle) { return destroy(handle); }
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
    return answer(name, requested, found_count, elements);
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
