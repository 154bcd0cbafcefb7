#include "plugin/running_call.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/text.hpp"

namespace emm::plugin {
namespace {

thread_local const char* this_plugin = nullptr;
thread_local const char* this_slot = nullptr;
CallMark own_mark;
std::atomic<CallMark*> mark{&own_mark};

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr unsigned kRescueSeconds = 2;
std::function<void()>* rescue_work = nullptr;
std::array<struct sigaction, kCrashes.size()> before;
std::atomic<bool> dying{false};

void say(const char* words) noexcept {
  if (write(STDERR_FILENO, words, std::strlen(words)) < 0) return;  // there is nobody else to tell
}

void say_what_ran(const char* how) noexcept {
  for (const char* words : {"emmctl: ", this_plugin, ": ", this_slot, " ", how, "\n"}) say(words);
}

void rescue() noexcept {
  if (dying.exchange(true) || rescue_work == nullptr) return;
  (*rescue_work)();
}

void end_by(int signal) noexcept {
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  _exit(128 + signal);
}

const char* name_of(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "crashed: SIGSEGV, an address that is not its own";
    case SIGBUS:
      return "crashed: SIGBUS, memory that is not there";
    case SIGFPE:
      return "crashed: SIGFPE, arithmetic";
    case SIGILL:
      return "crashed: SIGILL, an instruction that is none";
    default:
      return "crashed: SIGABRT, abort()";
  }
}

std::atomic<int> crash{0};
extern "C" void on_late(int) { end_by(crash.load()); }

extern "C" void on_crash(int signal) {
  if (this_slot != nullptr && !dying.load()) {
    crash.store(signal);
    say_what_ran(name_of(signal));
    std::signal(SIGALRM, on_late);
    alarm(kRescueSeconds);
    rescue();
  }
  end_by(signal);
}

extern "C" void on_exit_of_process() {
  if (this_slot == nullptr || rescue_work == nullptr || dying.load()) return;
  say_what_ran("called exit()");
  rescue();
  _exit(1);
}

}  // namespace

const char* kept_name(std::string name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  return names.emplace_back(text::printable(name, std::string::npos)).c_str();
}

RunningCall::RunningCall(const char* plugin, const char* slot) noexcept
    : outer_plugin_(this_plugin), outer_slot_(this_slot) {
  this_plugin = plugin;
  this_slot = slot;
  auto& to = *mark.load(std::memory_order_relaxed);
  to.last.store(slot, std::memory_order_relaxed);
  to.inside.fetch_add(1, std::memory_order_relaxed);
}

RunningCall::~RunningCall() {
  mark.load(std::memory_order_relaxed)->inside.fetch_sub(1, std::memory_order_relaxed);
  this_plugin = outer_plugin_;
  this_slot = outer_slot_;
}

bool RunningCall::here() noexcept { return this_slot != nullptr; }

void mark_calls_in(CallMark& to) noexcept { mark.store(&to); }

void mark_operation(std::string_view words) noexcept {
  auto& to = mark.load(std::memory_order_relaxed)->operation;
  const auto length = std::min(words.size(), to.size() - 1);
  std::memcpy(to.data(), words.data(), length);
  to[length] = '\0';
}

LastWords::LastWords(std::function<void()> work) {
  static const int registered = std::atexit(on_exit_of_process);
  (void)registered;
  rescue_work = new std::function<void()>(std::move(work));
  // A stack of its own, for the plugin that ran out of this one.
  static std::array<std::byte, 1 << 16> stack;
  const stack_t alternate{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &action, &before[i]);
}

LastWords::~LastWords() {
  for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &before[i], nullptr);
  delete std::exchange(rescue_work, nullptr);
}

}  // namespace emm::plugin
