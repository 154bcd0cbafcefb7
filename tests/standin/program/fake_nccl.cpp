// A library of the shape of NCCL, with its functions' names. None of them may run.
#include <cstdlib>

#define EMM_FAKE(name) \
  int name() { std::abort(); }

#pragma GCC visibility push(default)
extern "C" {
EMM_FAKE(ncclGetVersion)
EMM_FAKE(ncclGetUniqueId)
EMM_FAKE(ncclCommInitRank)
EMM_FAKE(ncclCommInitRankConfig)
EMM_FAKE(ncclCommInitRankScalable)
EMM_FAKE(ncclCommInitAll)
EMM_FAKE(ncclCommSplit)
EMM_FAKE(ncclCommShrink)
EMM_FAKE(ncclCommFinalize)
EMM_FAKE(ncclCommDestroy)
EMM_FAKE(ncclCommAbort)
EMM_FAKE(ncclCommGetAsyncError)
EMM_FAKE(ncclCommCount)
EMM_FAKE(ncclCommUserRank)
EMM_FAKE(ncclCommCuDevice)
EMM_FAKE(ncclCommRegister)
EMM_FAKE(ncclCommDeregister)
EMM_FAKE(ncclMemAlloc)
EMM_FAKE(ncclMemFree)
EMM_FAKE(ncclGroupStart)
EMM_FAKE(ncclGroupEnd)
EMM_FAKE(ncclAllReduce)
EMM_FAKE(ncclBroadcast)
EMM_FAKE(ncclBcast)
EMM_FAKE(ncclReduce)
EMM_FAKE(ncclAllGather)
EMM_FAKE(ncclReduceScatter)
EMM_FAKE(ncclAlltoAll)
EMM_FAKE(ncclGather)
EMM_FAKE(ncclScatter)
EMM_FAKE(ncclSend)
EMM_FAKE(ncclRecv)
EMM_FAKE(ncclRedOpCreatePreMulSum)
EMM_FAKE(ncclRedOpDestroy)
EMM_FAKE(ncclGetErrorString)
EMM_FAKE(ncclGetLastError)
}
#pragma GCC visibility pop
