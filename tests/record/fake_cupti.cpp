// A stand-in for libcupti over full_libcuda.cpp. EMM_FAKE_CUPTI_VERSION is its version,
// EMM_FAKE_CUPTI_SUBSCRIBE the result of cuptiSubscribe.
#include <cstdlib>
#include <cstring>

#include "tests/record/full_libcuda.hpp"

using namespace emm::record::cupti;

namespace {

int number_of(const char* variable, int otherwise) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? std::atoi(value) : otherwise;
}
constexpr int kInvalid = 1;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuptiGetVersion(std::uint32_t* version) {
  *version = static_cast<std::uint32_t>(number_of("EMM_FAKE_CUPTI_VERSION", 130001));
  return 0;
}
int cuptiSubscribe(Subscriber* subscriber, Callback to, void*) {
  const int result = number_of("EMM_FAKE_CUPTI_SUBSCRIBE", 0);
  if (result != 0) return result;
  emm_fake_cupti_set(to);
  *subscriber = subscriber;
  return 0;
}
/// EMM_FAKE_CUPTI_OTHER: the name of who has subscribed.
int cuptiSubscribe_v2(Subscriber* subscriber, Callback to, void* user, SubscriberParams* params) {
  const char* const other = std::getenv("EMM_FAKE_CUPTI_OTHER");
  if (params == nullptr || params->bytes != sizeof *params) return kInvalid;
  if (other != nullptr) std::strncpy(params->other_name, other, params->other_name_bytes);
  return cuptiSubscribe(subscriber, to, user);
}
int cuptiEnableCallback(std::uint32_t enable, Subscriber, int domain, std::uint32_t id) {
  return domain == kDriverApi ? emm_fake_cupti_enable(id, enable != 0) : kInvalid;
}
int cuptiGetCallbackName(int domain, std::uint32_t id, const char** name) {
  *name = domain == kDriverApi ? emm_fake_cupti_name(id) : nullptr;
  return *name != nullptr ? 0 : kInvalid;
}
int cuptiGetResultString(int, const char** words) {
  *words = "CUPTI_ERROR_UNKNOWN";
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
