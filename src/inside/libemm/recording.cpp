#include "libemm/recording.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/text_format.hpp"
#include "libemm/monotonic_clock.hpp"
#include "libemm/trace_file.hpp"

namespace emm::libemm {
namespace {

std::string hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), kDigits[value % 16]);
  } while ((value /= 16) != 0);
  return "0x" + digits;
}

/// The stream as a member of a trace line; empty for the default stream.
std::string member_of(StreamHandle stream) {
  if (stream.value == 0) return "";
  if (stream == kLegacyStream) return R"(,"stream":"legacy")";
  if (stream == kPerThreadStream) return R"(,"stream":"per_thread")";
  return text::format(R"(,"stream":"{}")", hex(stream.value));
}

}  // namespace

Recording& Recording::of_process() {
  static auto* const one = [] {
    ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                     [] { of_process().forget(); });
    return new Recording;
  }();
  return *one;
}

// Called in a forked child. The file belongs to the parent.
void Recording::forget() {
  on_.store(false, std::memory_order_release);
  file_.reset();
  mutex_.unlock();
}

void Recording::write_to(std::shared_ptr<TraceFile> file, std::uint64_t start_ns) {
  const std::lock_guard lock(mutex_);
  if (file != nullptr && file != file_) first_ = last_number_ + 1;
  file_ = std::move(file);
  start_ns_ = start_ns;
  on_.store(file_ != nullptr, std::memory_order_release);
}

std::uint64_t Recording::now_ns() const noexcept {
  return on_.load(std::memory_order_acquire) ? monotonic_ns() - start_ns_ : 0;
}

std::uint64_t Recording::made(int device, std::uint64_t size, StreamHandle stream, DevicePtr ptr,
                              std::uint64_t began_ns) {
  if (!on_.load(std::memory_order_acquire)) return 0;
  const auto number = 1 + last_number_.fetch_add(1, std::memory_order_relaxed);
  write("memalloc", number, device,
        text::format(R"(,"size":{},"duration_ns":{},"addr":"{}")", size, now_ns() - began_ns,
                     hex(ptr.value)),
        stream);
  return number;
}

std::uint64_t Recording::alive(std::uint64_t number, int device, std::uint64_t size,
                               StreamHandle stream, DevicePtr ptr) {
  if (!on_.load(std::memory_order_acquire) || number >= first_) return number;
  number = 1 + last_number_.fetch_add(1, std::memory_order_relaxed);
  write("memalloc", number, device,
        text::format(R"(,"size":{},"addr":"{}","preexisting":true)", size, hex(ptr.value)), stream);
  return number;
}

void Recording::refused(int device, std::uint64_t size, StreamHandle stream, const Error& error,
                        std::uint64_t began_ns) {
  if (!on_.load(std::memory_order_acquire)) return;
  const auto number = 1 + last_number_.fetch_add(1, std::memory_order_relaxed);
  const auto* outcome = error.code == Errc::out_of_memory   ? "oom"
                        : error.code == Errc::not_supported ? "unsupported"
                                                            : "error";
  write("memalloc", number, device,
        text::format(R"(,"size":{},"duration_ns":{},"result":{"outcome":"{}","code":{}})", size,
                     now_ns() - began_ns, outcome, error.native),
        stream);
}

void Recording::freed(std::uint64_t number, int device, StreamHandle stream) {
  write("free", number, device, "", stream);
}

void Recording::used_on(std::uint64_t number, int device, StreamHandle stream) {
  // The format requires a stream here, and this is the only name of the default stream.
  write("record_stream", number, device, "", stream.value != 0 ? stream : kLegacyStream);
}

void Recording::write(std::string_view op, std::uint64_t number, int device,
                      std::string_view members, StreamHandle stream) {
  if (number < first_ || !on_.load(std::memory_order_acquire)) return;
  const auto where =
      device == 0 ? std::string() : text::format(R"(,"context":"c{}","device":{})", device, device);
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  const auto written = file_->append(
      text::format(R"({"op":"{}","time_ns":{},"thread":{},"id":"a{}"{}{}{}})", op,
                   monotonic_ns() - start_ns_, static_cast<std::uint64_t>(::syscall(SYS_gettid)),
                   number, where, members, member_of(stream)));
  if (!written) file_->lose();
}

}  // namespace emm::libemm
