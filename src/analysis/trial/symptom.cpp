#include "trial/symptom.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/assert.hpp"
#include "base/text.hpp"
#include "replay/engine.hpp"

namespace emm::trial {
namespace {

// A shell's exit code of a process that a signal ended, less the signal.
constexpr int kSignalled = 128;

}  // namespace

Result<Symptom> Symptom::parse(std::string_view words) {
  Symptom symptom;
  if (words == "oom") return symptom;
  const auto colon = words.find(':');
  const auto kind = words.substr(0, colon);
  auto number = colon == words.npos ? std::string_view() : words.substr(colon + 1);
  if (kind == "exit") {
    symptom.kind = Kind::exit;
    const auto code = text::to_u64(number);
    if (code && *code >= 1 && *code <= 255) {
      symptom.code = static_cast<int>(*code);
      return symptom;
    }
  } else if (kind == "more") {
    symptom.kind = Kind::more;
    if (number.ends_with('%')) number.remove_suffix(1);
    const auto percent = text::to_double(number);
    if (percent && *percent > 0 && *percent <= 1e6) {
      symptom.percent = *percent;
      return symptom;
    }
  }
  return fail(
      Errc::usage,
      "--fails-with {}: expected oom, exit:N (a code from 1 to 255) or more:P (a percentage)",
      words);
}

Result<log::Summary> Examiner::run(const trace::Trace& trace, const ManagerFactory& manager) const {
  auto setting = options_.setting;
  setting.manager = manager;
  auto summary = trial::run(trace, setting, options_.capacity);
  if (summary && summary->abnormal && summary->abnormal->hung)
    return Error{.code = Errc::driver_error, .message = summary->abnormal->words};
  return summary;
}

Result<int> Examiner::code_in_child(const trace::Trace& trace) const {
  const auto parent = getpid();
  const auto child = fork();
  if (child < 0) {
    return Error{.code = Errc::io_error,
                 .message = text::format("no process for a trial: {}", std::strerror(errno))};
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kSignalled);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    const auto summary = run(trace, options_.setting.manager);
    _exit(summary ? replay::exit_code(*summary) : options_.code_of(summary.error()));
  }
  int status = 0;
  pid_t ended = child;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  EMM_ASSERT(ended == child);
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

Result<Finding> Examiner::examine_exit(const trace::Trace& trace) const {
  // ExitCode::inconclusive; larger codes come from a crash or a bug.
  constexpr int kOrdinaryMost = 3;
  Finding finding;
  // A foreign manager has a process of its own anyway, and reports how that ended.
  if (options_.symptom.code > kOrdinaryMost && !options_.setting.manager.apart) {
    const auto code = code_in_child(trace);
    if (!code) return code.error();
    const auto* interrupted = options_.setting.interrupted;
    finding.interrupted = interrupted != nullptr && interrupted->load(std::memory_order_relaxed);
    finding.shown = *code == options_.symptom.code && !finding.interrupted;
    return finding;
  }
  const auto summary = run(trace, options_.setting.manager);
  if (!summary) {
    finding.shown = options_.code_of(summary.error()) == options_.symptom.code;
    return finding;
  }
  finding.interrupted = summary->interrupted;
  finding.failure = summary->first_failure;
  finding.shown = !summary->interrupted && replay::exit_code(*summary) == options_.symptom.code;
  return finding;
}

Result<Finding> Examiner::examine(const trace::Trace& trace) const {
  ++trials_;
  if (options_.symptom.kind == Symptom::Kind::exit) return examine_exit(trace);
  auto summary = run(trace, options_.setting.manager);
  if (!summary) return std::move(summary).error();
  Finding finding;
  finding.interrupted = summary->interrupted;
  finding.failure = std::move(summary->first_failure);
  if (options_.symptom.kind == Symptom::Kind::oom) {
    finding.shown = finding.failure && finding.failure->outcome == trace::Outcome::oom;
    return finding;
  }
  finding.reserved = summary->pass.peak_reserved_bytes;
  if (finding.interrupted || replay::exit_code(*summary) != 0) return finding;
  const auto other = run(trace, *options_.against);
  if (!other) return other.error();
  finding.interrupted = other->interrupted;
  if (replay::exit_code(*other) != 0) {
    finding.failure = other->first_failure;
    return finding;
  }
  finding.reserved_by_other = other->pass.peak_reserved_bytes;
  const auto wanted =
      static_cast<double>(finding.reserved_by_other) * (1 + options_.symptom.percent / 100);
  finding.shown = !finding.interrupted && finding.reserved > finding.reserved_by_other &&
                  static_cast<double>(finding.reserved) >= wanted &&
                  finding.reserved_by_other >= least_of_other_;
  return finding;
}

}  // namespace emm::trial
