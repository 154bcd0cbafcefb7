#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "cli/command.hpp"
#include "commands/named_ranks.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Starts the ranks of `run --ranks`, with the variables that torchrun sets, and waits for them. As
/// torchrun it ends the others where one fails, though not at once: they may say what they wait
/// for.
class StartRanks final : public CommandRun {
 public:
  explicit StartRanks(Arguments& arguments) {
    arguments.program("RANKS NODE PROGRAM", words_,
                      "As in '0,7 of 64', how many ranks a node has, and what each rank runs");
  }

  Result<ExitCode> run(Console& console) override {
    const auto local = words_.size() > 2 ? text::to_u64(words_[1]) : std::nullopt;
    if (!local || *local == 0) return fail(Errc::usage, "expected RANKS NODE PROGRAM");
    auto named = NamedRanks::parse(words_[0]);
    if (!named) return std::move(named).error();
    const auto port = free_port();
    if (!port) return port.error();
    sigset_t awaited, before;
    sigemptyset(&awaited);
    for (const int signal : kPassedOn) sigaddset(&awaited, signal);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    for (const auto rank : named->run) {
      const auto process = fork();
      if (process == 0) become(rank, *named, static_cast<int>(*local), *port, before);
      if (process < 0) {
        const int error = errno;
        end_all(SIGKILL);
        return fail(Errc::io_error, "{}: {}", "fork", std::strerror(error));
      }
      going_[process] = rank;
    }
    while (!going_.empty()) wait_a_while(console, awaited);
    return static_cast<ExitCode>(code_);
  }

 private:
  static constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

  [[noreturn]] void become(int rank, const NamedRanks& named, int local, int port,
                           const sigset_t& mask) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // it ends with us, however we do
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    const auto set = [](const char* name, int value) {
      setenv(name, text::format("{}", value).c_str(), 1);
    };
    set("RANK", rank);
    set("WORLD_SIZE", named.all);
    set("LOCAL_RANK", rank % local);
    set("LOCAL_WORLD_SIZE", std::min(local, named.all));
    set("GROUP_RANK", rank / local);
    set("GROUP_WORLD_SIZE", (named.all + local - 1) / local);
    set("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("OMP_NUM_THREADS", "1", 0);
    // A communicator of PyTorch's has one unique id, however many its ranks are.
    setenv("TORCH_NCCL_RANKS_PER_ROOT", "1000000", 1);
    std::vector<char*> arguments;
    for (std::size_t i = 2; i < words_.size(); ++i) arguments.push_back(words_[i].data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const auto words = text::format("emmctl: {}: {}: expected a program that can be run\n",
                                    words_[2], std::strerror(errno));
    (void)!write(STDERR_FILENO, words.data(), words.size());
    constexpr int kUsage = 2;  // ExitCode::usage
    _exit(kUsage);
  }

  void end_all(int signal) const {
    for (const auto& [process, rank] : going_) kill(process, signal);
  }

  void wait_a_while(Console& console, const sigset_t& awaited) {
    using Clock = std::chrono::steady_clock;
    // How late a second rank's failure or the end of the grace is noticed.
    constexpr timespec kLook{.tv_sec = 1, .tv_nsec = 0};
    siginfo_t info{};
    const int signal = sigtimedwait(&awaited, &info, &kLook);
    // A terminal sends its signals to the ranks itself.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) end_all(signal);
    int status = 0;
    for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = going_.find(process);
      if (found == going_.end()) continue;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code != 0 && code_ == 0) {
        code_ = code;
        failed_ = Clock::now();
        console.say(text::format("rank {} ended with exit code {}", found->second, code));
      }
      going_.erase(found);
    }
    // The ranks that live get kGrace to end by themselves, as NCCL's time limits make them, and
    // kMore after SIGTERM.
    constexpr auto kGrace = std::chrono::seconds(30), kMore = std::chrono::seconds(10);
    if (code_ == 0 || Clock::now() - failed_ < kGrace) return;
    end_all(Clock::now() - failed_ < kGrace + kMore ? SIGTERM : SIGKILL);
  }

  std::vector<std::string> words_;
  std::map<pid_t, int> going_;  // the rank of each process
  int code_ = 0;
  std::chrono::steady_clock::time_point failed_{};
};

}  // namespace

extern constinit const Command start_ranks_command{"start-ranks", "Starts the ranks of run --ranks",
                                                   true, make_run<StartRanks>, Heading::about};

}  // namespace emm
