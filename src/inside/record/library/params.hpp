#pragma once

#include "record/library/cuda.hpp"

// CUPTI passes a function's parameters as a structure <function>_params with one member for each.
// These declarations come from wrapped.def; where a toolkit is installed, a test compares them with
// cupti.h.

#define EMM_PARENS ()
#define EMM_EXPAND(...) EMM_EXPAND_3(EMM_EXPAND_3(EMM_EXPAND_3(__VA_ARGS__)))
#define EMM_EXPAND_3(...) EMM_EXPAND_2(EMM_EXPAND_2(EMM_EXPAND_2(__VA_ARGS__)))
#define EMM_EXPAND_2(...) EMM_EXPAND_1(EMM_EXPAND_1(EMM_EXPAND_1(__VA_ARGS__)))
#define EMM_EXPAND_1(...) __VA_ARGS__
/// Expands `what(x)` for each x of the list.
#define EMM_EACH(what, ...) __VA_OPT__(EMM_EXPAND(EMM_EACH_STEP(what, __VA_ARGS__)))
#define EMM_EACH_STEP(what, first, ...) \
  what(first) __VA_OPT__(EMM_EACH_AGAIN EMM_PARENS(what, __VA_ARGS__))
#define EMM_EACH_AGAIN() EMM_EACH_STEP
#define EMM_FIELD(parameter) parameter;
#define EMM_FIELDS(...) EMM_EACH(EMM_FIELD, __VA_ARGS__)

namespace emm::record::params {

#define EMM_WRAP(symbol, call, point, parameters, ...) \
  struct symbol##_params {                             \
    EMM_FIELDS parameters                              \
  };
#define EMM_WRAP_STREAM EMM_WRAP
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"

struct cuMemGetInfo_v2_params {
  Size* free;
  Size* total;
};
struct cuLaunchKernel_params {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
  void** arguments;
  void** extra;
};
struct cuLaunchCooperativeKernel_params {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
  void** arguments;
};
struct cuLaunchKernelEx_params {
  const LaunchConfig* config;
  void* function;
  void** arguments;
  void** extra;
};

}  // namespace emm::record::params
