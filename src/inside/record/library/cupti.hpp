#pragma once

#include <cstddef>
#include <cstdint>

/// Declares the part of CUPTI that the recorder uses, so that libcupti is needed only when the
/// program runs. Where a toolkit is installed, a test compares these declarations with cupti.h.
namespace emm::record::cupti {

inline constexpr int kDriverApi = 1;            // CUPTI_CB_DOMAIN_DRIVER_API
inline constexpr int kEnter = 0;                // CUPTI_API_ENTER
inline constexpr int kExit = 1;                 // CUPTI_API_EXIT
inline constexpr int kSeveralSubscribers = 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
inline constexpr std::uint32_t kOldest = 12;    // cuptiGetVersion() of CUDA 11.0

struct CallbackData {
  int site;
  const char* function;
  const void* params;
  void* result;
  const char* symbol;
  void* context;
  std::uint32_t context_uid;
  std::uint64_t* correlation_data;
  std::uint32_t correlation_id;
};
using Callback = void (*)(void* user, int domain, std::uint32_t id, const void* data);
using Subscriber = void*;

inline constexpr std::size_t kSubscriberNameBytes = 64;  // CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN
/// cuptiSubscribe_v2 takes this as its last parameter and writes there who has subscribed already.
struct SubscriberParams {
  std::size_t bytes;  ///< Size of this structure.
  const char* name;
  char* other_name;
  std::size_t other_name_bytes;
};

/// CUPTI's functions. Each returns 0 when it succeeds.
struct Functions {
  int (*get_version)(std::uint32_t*);
  int (*subscribe)(Subscriber*, Callback, void* user);
  int (*subscribe_v2)(Subscriber*, Callback, void* user,
                      SubscriberParams*);  ///< Null before CUDA 13.
  int (*enable_callback)(std::uint32_t enable, Subscriber, int domain, std::uint32_t id);
  int (*get_callback_name)(int domain, std::uint32_t id, const char** name);
  int (*get_result_string)(int result, const char** words);
};

}  // namespace emm::record::cupti
