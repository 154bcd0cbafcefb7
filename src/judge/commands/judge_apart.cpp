#include "commands/judge_apart.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/console.hpp"
#include "conformance/bench.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "driver/device_entry.hpp"
#include "emm/memory_manager.hpp"
#include "plugin/child.hpp"
#include "plugin/imported_manager.hpp"
#include "plugin/python_class.hpp"

namespace emm::cli {
namespace {

using conformance::Subject;
using conformance::Verdict;

/// The subject inside a child process, with the library loaded and the device set.
struct Ready {
  Subject subject;
  std::optional<plugin::StandIns> standins;
};

Status make_ready(const ManagerChoice& manager, const Subject& given, Ready& ready) {
  ready.subject = given;
  // Under a class the stand-in is there on a real device, too; see Conformance::run().
  const bool simulated = given.device.starts_with("sim");
  if ((simulated && given.foreign) || given.is_class) ready.standins = plugin::StandIns::load();
  auto factory = manager.find();
  if (!factory) return std::move(factory).error();
  const auto name = factory->name;
  ready.subject.factory = *std::move(factory);
  ready.subject.with_options = manager.with_options();
  if (given.foreign) ready.subject.has_trim = plugin::has_trim(name);
  if (!ready.standins || !ready.subject.foreign || !plugin::calls_cuda(name)) return {};
  if (simulated) {
    setenv("EMM_STANDIN_DEVICE", conformance::device_of(given).c_str(), 1);
    ready.subject.device = "cuda";
  }
  ready.subject.standin_is_over_driver = !simulated;
  ready.subject.standins = &*ready.standins;
  return {};
}

/// Counts the calls that reach the stand-in's device.
class Counted final : public CallHook {
 public:
  std::int32_t before(const CallEvent&) override {
    ++calls;
    return 0;
  }
  std::atomic<std::uint64_t> calls{0};
};

/// Allocates memory of each kind once and frees it.
void ask_of_each_kind(MemoryManager& manager) {
  constexpr std::size_t kPage = 4096;  // bytes: memory is shared in whole pages
  const auto region = std::make_unique<std::byte[]>(2 * kPage);
  const auto begin = (reinterpret_cast<std::uintptr_t>(region.get()) + kPage - 1) / kPage * kPage;
  const auto device = manager.memalloc(kPage);
  const auto managed = manager.memallocmanaged(kPage, AttachFlags::global);
  const auto mapped = manager.memhostalloc(kPage, {.mapped = true});
  const auto pinned = manager.mempin({reinterpret_cast<std::byte*>(begin), kPage}, {}, {});
  const auto info = manager.get_memory_info();
}

/// Says why a library without the flag EMM_PLUGIN_CALLS_CUDA cannot be judged; empty if it can. The
/// library calls CUDA itself if calls reach the stand-in. It also does if its file names CUDA and
/// it makes no call through its table: then it found another libcuda, or none.
std::string why_undeclared(const Ready& ready) {
  if (!ready.standins) return {};
  const auto platform = open_platform(ready.subject.device, {});
  if (!platform) return {};
  auto opened = (*platform)->open(0);
  if (!opened) return {};
  Counted by_table;
  auto device = hooked(*std::move(opened), by_table);
  Counted counted;
  ready.standins->tap(&counted);
  {
    auto manager = ready.subject.factory.make({.driver = device.driver.get(),
                                               .runtime = device.runtime.get(),
                                               .clock = &(*platform)->clock()});
    if (manager && (*manager)->initialize()) ask_of_each_kind(**manager);
  }
  ready.standins->tap(nullptr);
  const auto own_calls =
      counted.calls + ready.standins->strays() + ready.standins->asked_for_tables();
  if (own_calls == 0 && (by_table.calls != 0 || !plugin::names_cuda(ready.subject.factory.name)))
    return {};
  return "it calls CUDA itself and does not say so: set EMM_PLUGIN_CALLS_CUDA in the flags of its "
         "table, or make the calls through emm_create_v1.driver";
}

/// Allocates memory once, to see what the manager calls in libcuda.
std::string why_not_judged(const Ready& ready) {
  if (ready.subject.standins == nullptr) return why_undeclared(ready);
  const auto platform = open_platform(ready.subject.device, {});
  if (!platform)
    return text::format("it calls CUDA itself, and this emmctl knows no CUDA: {}",
                        describe(platform.error()));
  auto device = (*platform)->open(0);
  if (!device) return describe(device.error());
  auto manager = ready.subject.factory.make({.driver = device->driver.get(),
                                             .runtime = device->runtime.get(),
                                             .clock = &(*platform)->clock()});
  if (manager && (*manager)->initialize()) {
    const auto memory = (*manager)->memalloc(4096);
    if (ready.standins->asked_for_tables() == 0) return {};
  }
  if (ready.standins->asked_for_tables() == 0) return {};
  return "its cudart is linked into it, and asks libcuda for what is not documented: it cannot be "
         "judged without a GPU";
}

/// Packs an error into the bytes of a child's answer, and unpacks it. The first byte is never a
/// digit.
std::string to_bytes(const Error& error) {
  return text::format("{}{}", static_cast<char>('A' + static_cast<int>(error.code)),
                      describe(error));
}
Error from_bytes(std::string_view bytes) {
  return {.code = static_cast<Errc>(bytes[0] - 'A'), .message = std::string(bytes.substr(1))};
}

constexpr const char* kQuiet = "+";
constexpr std::string_view kHarmless = "abi/harmless";

std::string place_of(const plugin::ChildEnd& end) {
  if (end.last_call.empty()) return "before any call";
  return (end.inside ? "in " : "after ") + end.last_call;
}

/// Whether the import of the class asks nothing of CUDA and begins no thread. Then this program
/// imports it once, and each child has it.
bool imports_quietly(const Ready& ready) {
  if (!ready.subject.is_class || !ready.standins || !ready.subject.device.starts_with("cuda") ||
      std::getenv("EMM_STANDIN_OVER") != nullptr)
    return false;
  const auto heard = [&] { return ready.standins->strays() + ready.standins->asked_for_tables(); };
  const auto before = heard();
  Counted counted;
  ready.standins->tap(&counted);
  const bool is_quiet = plugin::import_python_class(ready.subject.manager);
  ready.standins->tap(nullptr);
  return is_quiet && counted.calls == 0 && heard() == before;
}

// Classes of Python's may share what they hold among the managers of a process, as RMM's do. So
// what one gives is measured in a process that judges nothing else.
std::string measured(const Subject& subject) {
  const auto bench = conformance::Bench::create(subject, "capacity");
  if (!bench) return {};
  const auto& found = (*bench)->capacity();
  return text::format("{} {} {} {}", found.device_memory ? 1 : 0, found.limit.value_or(0),
                      found.of_total, found.block.value_or(0));
}
conformance::Capacity capacity_from(const std::string& words) {
  std::istringstream in(words);
  std::uint64_t limit = 0, block = 0;
  conformance::Capacity found;
  in >> found.device_memory >> limit >> found.of_total >> block;
  if (limit != 0) found.limit = limit;
  if (block != 0) found.block = block;
  return found;
}

}  // namespace

HeldOpen::HeldOpen(const std::string& device) {
  if (device.starts_with("sim")) return;
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  const auto parent = getpid();
  child_ = fork();
  close(ends[child_ == 0 ? 0 : 1]);
  channel_ = ends[child_ == 0 ? 1 : 0];
  if (child_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  signal(SIGINT, SIG_IGN);  // the clause that is judged comes to its end first
  const auto platform = open_platform(device, {});
  if (!platform) _exit(0);
  const auto opened = (*platform)->open(0);
  if (!opened) _exit(0);
  std::vector<DevicePtr> taken;
  for (std::uint64_t bytes = 0; read(channel_, &bytes, sizeof bytes) == sizeof bytes;) {
    for (const auto piece : std::exchange(taken, {})) {
      if (!opened->driver->mem_free(piece)) _exit(0);
    }
    conformance::take_all_but(*opened->driver, bytes, taken);
    if (write(channel_, "", 1) != 1) break;
  }
  _exit(0);
}

HeldOpen::~HeldOpen() {
  if (channel_ >= 0) close(channel_);
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void HeldOpen::leave(std::uint64_t bytes) {
  if (child_ <= 0 || bytes == left_) return;
  left_ = bytes;
  char answer = 0;
  // A child that could not open the device has closed its end. Then all memory is left.
  if (send(channel_, &bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes)
    while (recv(channel_, &answer, 1, 0) < 0 && errno == EINTR && !interrupted()) {
    }
}

Result<std::string> Apart::look() const {
  constexpr std::chrono::milliseconds kLeast{1000};  // the first look gets a quarter, or this
  const auto deadline = std::min(deadline_, std::max(deadline_ / 4, kLeast));
  const plugin::ChildOptions options{
      .deadline = deadline, .interrupted = &interrupted(), .killed_when_interrupted = true};
  const auto end = plugin::run_in_child(options, [&](const std::atomic<bool>&) -> std::string {
    if (const auto opens = open_platform(subject_.device, {}); !opens)
      return to_bytes(opens.error());
    Ready ready;
    if (auto made = make_ready(manager_, subject_, ready); !made) return to_bytes(made.error());
    const bool is_quiet = imports_quietly(ready);
    auto why = why_not_judged(ready);
    return (is_quiet ? kQuiet : " ") + (why.empty() ? measured(ready.subject) : "") + '\n' + why;
  });
  if (!end) return end.error();
  if (end->kind != plugin::ChildEnd::Kind::answered) return std::string();
  const bool is_quiet = end->bytes.starts_with(kQuiet);
  if (!is_quiet && end->bytes[0] != ' ') return from_bytes(end->bytes);
  if (is_quiet) plugin::import_python_class(subject_.manager);
  const auto line = end->bytes.find('\n');
  if (line > 1) *subject_.capacity = capacity_from(end->bytes.substr(1, line - 1));
  return end->bytes.substr(line + 1);
}

Verdict Apart::judge(const conformance::Clause& clause) {
  if (auto why = conformance::why_not_asked(clause, subject_); !why.empty())
    return {.kind = Verdict::Kind::not_applicable, .words = std::move(why)};
  auto verdict = judge_once(clause, false);
  const bool has_failed = verdict.kind == Verdict::Kind::fail || !verdict.broken.empty();
  if (!subject_.is_class || !has_failed || !hung_.empty()) return verdict;
  // Keeping the lines that Python runs takes twice the time, so they are asked for where it pays.
  auto told = judge_once(clause, true);
  const bool is_same = told.kind == verdict.kind && told.words == verdict.words;
  return is_same ? told : verdict;
}

Verdict Apart::judge_once(const conformance::Clause& clause, bool keeps_stories) {
  using namespace std::chrono_literals;
  const auto not_asked = [](const std::string& where) {
    return Verdict{.words = "not asked: it hung " + where};
  };
  const bool hung_before = !hung_.empty();
  if (spent_ >= deadline_ / 2) return not_asked(hung_);
  held_.leave(clause.wants_all_memory ? ~std::uint64_t{0} : conformance::kDeviceRoom);
  plugin::ChildOptions options{.deadline = deadline_,
                               .deadline_is_for_a_step = true,
                               .interrupted = &interrupted(),
                               .killed_when_interrupted = true};
  if (hung_before) {
    options.deadline = std::max(deadline_ / 10, 1000ms);
    options.call_deadline = std::max(deadline_ / 100, 100ms);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto end = plugin::run_in_child(options, [&](const std::atomic<bool>&) {
    Ready ready;
    if (auto made = make_ready(manager_, subject_, ready); !made)
      return Verdict{.words = describe(made.error())}.to_bytes();
    if (keeps_stories) plugin::keep_python_stories();
    // so that a clause itself reports a waiting thread before it is killed
    constexpr int kPart = 4;
    ready.subject.patience = std::min(ready.subject.patience, options.deadline / kPart);
    return conformance::judge(clause, ready.subject).to_bytes();
  });
  if (!end) return {.words = describe(end.error())};
  if (end->kind == plugin::ChildEnd::Kind::answered) {
    auto verdict = Verdict::from_bytes(end->bytes);
    if (!verdict) return {.words = describe(verdict.error())};
    return *std::move(verdict);
  }
  if (end->kind == plugin::ChildEnd::Kind::interrupted)
    return {.words = std::string(conformance::kInterrupted)};
  if (end->kind == plugin::ChildEnd::Kind::hung) {
    if (hung_before) {
      spent_ += std::chrono::steady_clock::now() - begin;
      return not_asked(place_of(*end));
    }
    hung_ = place_of(*end);
  }
  Verdict failure{.kind = Verdict::Kind::fail,
                  .words = "the clause was run in a process of its own",
                  .seen = plugin::describe(*end, options.deadline),
                  .expected = std::string(conformance::kNoHarm),
                  .calls = end->said};
  const bool hung = end->kind == plugin::ChildEnd::Kind::hung;
  if (hung && clause.source.starts_with("emm_plugin.h"))
    failure.expected += text::format("; {}", clause.source);
  if (clause.id == kHarmless) return failure;
  return {.words = text::format("{} is broken here", kHarmless),
          .broken = std::string(kHarmless),
          .evidence = failure.to_bytes()};
}

}  // namespace emm::cli
