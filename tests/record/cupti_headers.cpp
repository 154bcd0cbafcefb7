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
