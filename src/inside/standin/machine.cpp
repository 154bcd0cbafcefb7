#include "standin/machine.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/text_format.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "driver/sim/sim_platform.hpp"
#include "standin/report.hpp"
#include "standin/visible.hpp"

namespace emm::standin {
namespace {

std::atomic<Machine*> the_machine{nullptr};
std::atomic<bool> has_initialized{false};  // by cuInit, not by NVML
std::atomic<bool> is_refused{false};       // the child of a process that had
thread_local std::vector<Machine::Context*> contexts;
thread_local int sees_all = 0;

/// A child of a process that asked only NVML has a machine of its own.
void after_fork_in_child() {
  if (has_initialized) {
    is_refused = true;
    return;
  }
  the_machine = nullptr;
  Report::forget();
}

std::string uuid_of(Driver& driver) {
  return text::format("{}{}{}", kUuids,
                      "0123456789abcdef"[driver.device_identity().pci_bus_id / 16 % 16],
                      "0123456789abcdef"[driver.device_identity().pci_bus_id % 16]);
}

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// Stand-ins may lie over one another, in tests.
bool is_this_library(const char* path) {
  Dl_info own{};
  struct stat here {};
  struct stat there {};
  return dladdr(reinterpret_cast<void*>(&variable), &own) != 0 && stat(own.dli_fname, &here) == 0 &&
         stat(path, &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

/// Writes each line with one write() to a file opened with O_APPEND, so that lines of several
/// threads and processes stay whole without a lock.
class Machine::Log final : public CallHook {
 public:
  explicit Log(const char* path) : file_(open_file(path)) {}
  bool is_open() const noexcept { return file_ >= 0; }

  void after(const CallEvent& event) override {
    auto line = to_text(event);
    line += '\n';
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()) &&
        !complained_.exchange(true, std::memory_order_relaxed)) {
      std::fputs("emmctl's stand-in for libcuda.so.1: EMM_STANDIN_LOG cannot be written\n", stderr);
    }
  }

 private:
  static int open_file(const char* path) {
    return ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
  int file_;
  std::atomic<bool> complained_{false};  // any thread may set it
};

Tap& Machine::tap() noexcept {
  static auto& tap = *new Tap;
  return tap;
}

namespace {
std::atomic<std::uint64_t> stray_calls{0};
}

std::int32_t Machine::stray(std::int32_t code) noexcept {
  ++stray_calls;
  return code;
}
std::uint64_t Machine::strays() noexcept { return stray_calls; }

Script& Machine::script() noexcept {
  static auto& script = *new Script;
  return script;
}

void Machine::see_all(bool begins) noexcept { sees_all += begins ? 1 : -1; }

Machine* Machine::started() noexcept {
  if (is_refused || (!has_initialized && sees_all == 0)) return nullptr;
  return the_machine.load(std::memory_order_acquire);
}

std::int32_t Machine::start() {
  static std::mutex once;
  const std::lock_guard lock(once);
  if (started() != nullptr) return kSuccess;
  if (is_refused) return kNotInitialized;
  if (the_machine.load() == nullptr) {
    const char* const over = variable("EMM_STANDIN_OVER", nullptr);
    auto platform = over != nullptr && !is_this_library(over)
                        ? open_platform("cuda", {.cuda_driver = over})
                        : open_platform(variable("EMM_STANDIN_DEVICE", "sim"), {});
    if (!platform) {
      std::fprintf(stderr, "EMM_STANDIN_DEVICE: %s\n", platform.error().message.c_str());
      return kNoDevice;
    }
    static const bool forks_are_seen = [] {
      // Without a report, in tests of the driver, a child goes on with what the parent had.
      if (is_whole_program()) pthread_atfork(nullptr, nullptr, after_fork_in_child);
      return true;
    }();
    (void)forks_are_seen;
    (void)Report::of_this_process();
    the_machine.store(new Machine(std::move(*platform)), std::memory_order_release);
  }
  if (sees_all != 0) return kSuccess;
  auto& machine = *the_machine.load();
  if (is_whole_program()) machine.show(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (machine.device_count() == 0) return kNoDevice;
  has_initialized = true;
  return kSuccess;
}

void Machine::show(const char* visible_devices) {
  if (visible_devices == nullptr) return;
  std::vector<std::string> uuids;
  see_all(true);
  for (int i = 0; i < device_count(); ++i) uuids.push_back(uuid_of(*device(i)));
  see_all(false);
  visible_ = standin::visible_devices(visible_devices, uuids);
  for (std::size_t i = 0; i < visible_.size(); ++i)
    primaries_[static_cast<std::size_t>(visible_[i])].known->ordinal = static_cast<int>(i);
}

int Machine::device_count() const noexcept {
  return sees_all != 0 ? platform_->device_count() : static_cast<int>(visible_.size());
}

int Machine::of_machine(int ordinal) const noexcept {
  if (ordinal < 0 || ordinal >= device_count()) return -1;
  return sees_all != 0 ? ordinal : visible_[static_cast<std::size_t>(ordinal)];
}

Machine::Machine(std::unique_ptr<Platform> platform)
    : platform_(std::move(platform)),
      primaries_(static_cast<std::size_t>(platform_->device_count())) {
  for (int i = 0; i < platform_->device_count(); ++i) visible_.push_back(i);
  const char* path = variable("EMM_STANDIN_LOG", nullptr);
  if (path == nullptr) return;
  log_ = std::make_unique<Log>(path);
  if (log_->is_open()) return;
  std::perror("EMM_STANDIN_LOG");
  log_.reset();
}

std::unique_ptr<Machine::Context> Machine::open(int ordinal) {
  auto device = platform_->open(ordinal);
  if (!device) return nullptr;
  auto context = std::make_unique<Context>();
  const auto seen = std::find(visible_.begin(), visible_.end(), ordinal);
  context->ordinal = static_cast<int>(seen - visible_.begin());
  context->number = ordinal;
  if (auto* const report = Report::of_this_process()) {
    context->report = report->hook_for(ordinal, *device->driver);
    report->set_counts_libraries(ordinal, libraries() != nullptr);
    *device = hooked(std::move(*device), *context->report);
  }
  context->device = log_ ? hooked(std::move(*device), *log_) : std::move(*device);
  if (variable("EMM_STANDIN_SCRIPT", nullptr) != nullptr) {
    context->device = hooked(std::move(context->device), script());
  }
  context->device = hooked(std::move(context->device), tap());
  return context;
}

SimPlatform* Machine::simulated() noexcept {
  return platform_->kind() == "sim" ? static_cast<SimPlatform*>(platform_.get()) : nullptr;
}

const LibraryMemory* Machine::libraries() noexcept {
  const auto* const sim = simulated();
  return sim != nullptr ? sim->options().libraries : nullptr;
}

Machine::Primary* Machine::primary(int shown) {
  const int ordinal = of_machine(shown);
  if (ordinal < 0) return nullptr;
  auto& found = primaries_[static_cast<std::size_t>(ordinal)];
  if (!found.known) found.known = open(ordinal);
  return found.known ? &found : nullptr;
}

Driver* Machine::device(int ordinal) {
  const std::lock_guard lock(mutex_);
  auto* found = primary(ordinal);
  return found != nullptr ? found->known->device.driver.get() : nullptr;
}

Machine::Context* Machine::retain(int ordinal) {
  const std::lock_guard lock(mutex_);
  auto* found = primary(ordinal);
  if (found == nullptr) return nullptr;
  ++found->retained;
  return found->known.get();
}

// Ends the context and moves it to the past ones. The next query or retain opens the device again.
std::int32_t Machine::end(Primary& primary) {
  const auto done = primary.known->device.driver->primary_ctx_reset();
  primary.past.push_back(std::move(primary.known));
  return done ? kSuccess : done.error().native;
}

std::int32_t Machine::release(int ordinal) {
  const std::lock_guard lock(mutex_);
  auto* found = primary(ordinal);
  if (found == nullptr) return kInvalidDevice;
  if (found->retained == 0) return kInvalidContext;
  return --found->retained == 0 ? end(*found) : kSuccess;
}

std::int32_t Machine::reset(int ordinal) {
  const std::lock_guard lock(mutex_);
  auto* found = primary(ordinal);
  return found != nullptr ? end(*found) : kInvalidDevice;
}

bool Machine::is_active(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto* found = primary(ordinal);
  return found != nullptr && found->retained != 0;
}

bool Machine::is_context(const Context* context) {
  const std::lock_guard lock(mutex_);
  for (const auto& primary : primaries_) {
    if (primary.known.get() == context) return true;
    for (const auto& past : primary.past) {
      if (past.get() == context) return true;
    }
  }
  return false;
}

Machine::Context* Machine::current() noexcept {
  return contexts.empty() ? nullptr : contexts.back();
}

void Machine::set_current(Context* context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(context);
}

void Machine::push(Context* context) { contexts.push_back(context); }

std::optional<Machine::Context*> Machine::pop() {
  if (contexts.empty()) return std::nullopt;
  auto* context = contexts.back();
  contexts.pop_back();
  return context;
}

}  // namespace emm::standin
