// Our declarations of what CUPTI hands over, held against those of a toolkit: built where one is.
#include <cupti.h>

#include <cstddef>

#include "record/library/cupti.hpp"
#include "record/library/params.hpp"

struct cuCtxSynchronize_params {};  // none is published: it has no parameters

namespace {

using Ours = emm::record::cupti::CallbackData;
static_assert(sizeof(Ours) == sizeof(CUpti_CallbackData));
static_assert(offsetof(Ours, site) == offsetof(CUpti_CallbackData, callbackSite));
static_assert(offsetof(Ours, params) == offsetof(CUpti_CallbackData, functionParams));
static_assert(offsetof(Ours, result) == offsetof(CUpti_CallbackData, functionReturnValue));
static_assert(offsetof(Ours, context) == offsetof(CUpti_CallbackData, context));
static_assert(offsetof(Ours, correlation_id) == offsetof(CUpti_CallbackData, correlationId));
static_assert(emm::record::cupti::kDriverApi == CUPTI_CB_DOMAIN_DRIVER_API);
static_assert(emm::record::cupti::kEnter == CUPTI_API_ENTER);
static_assert(emm::record::cupti::kExit == CUPTI_API_EXIT);
static_assert(emm::record::cupti::kSeveralSubscribers ==
              CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
#ifdef CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN
using Params = emm::record::cupti::SubscriberParams;
static_assert(sizeof(Params) == sizeof(CUpti_SubscriberParams));
static_assert(offsetof(Params, name) == offsetof(CUpti_SubscriberParams, subscriberName));
static_assert(offsetof(Params, other_name) == offsetof(CUpti_SubscriberParams, oldSubscriberName));
static_assert(emm::record::cupti::kSubscriberNameBytes == CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN);
#endif

// What is read of CUDA's structures lies where CUDA has it.
static_assert(offsetof(emm::record::GraphNode, alloc) == offsetof(CUgraphNodeParams, alloc));
static_assert(offsetof(emm::record::GraphNode, free) == offsetof(CUgraphNodeParams, free));
static_assert(offsetof(emm::record::MemAllocNode, size) ==
              offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v2, bytesize));
static_assert(offsetof(emm::record::MemAllocNode, address) ==
              offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v2, dptr));
static_assert(emm::record::kAllocNode == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
static_assert(emm::record::kFreeNode == CU_GRAPH_NODE_TYPE_MEM_FREE);
static_assert(offsetof(emm::record::ArrayMapInfo, array) == offsetof(CUarrayMapInfo, resource));
static_assert(offsetof(emm::record::ArrayMapInfo, memory) == offsetof(CUarrayMapInfo, memHandle));
static_assert(offsetof(emm::record::MulticastProperties, size) ==
              offsetof(CUmulticastObjectProp, size));
static_assert(offsetof(emm::record::ExternalMemory, size) ==
              offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size));
static_assert(offsetof(emm::record::ExternalBuffer, size) ==
              offsetof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size));
static_assert(offsetof(emm::record::ExternalArray, array) ==
              offsetof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, arrayDesc));
static_assert(sizeof(emm::record::IpcHandle) == sizeof(CUmemPoolPtrExportData) &&
              sizeof(emm::record::IpcHandle) == sizeof(CUipcEventHandle));

#define EMM_HOLD(symbol) \
  static_assert(sizeof(emm::record::params::symbol##_params) == sizeof(::symbol##_params));
#define EMM_WRAP(symbol, ...) EMM_HOLD(symbol)
#define EMM_WRAP_STREAM EMM_WRAP
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
EMM_HOLD(cuMemGetInfo_v2)
EMM_HOLD(cuLaunchKernel)
EMM_HOLD(cuLaunchCooperativeKernel)
EMM_HOLD(cuLaunchKernelEx)

}  // namespace
