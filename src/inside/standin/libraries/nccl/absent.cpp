#include "standin/libraries/nccl/absent.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "standin/libraries/nccl/communicator.hpp"

namespace emm::standin::nccl {
namespace {

struct Named {
  int ranks = 0;
  std::vector<char> run{};
};
const Named& named() {
  static const auto& known = *new Named([] {
    Named found;
    const char* at = std::getenv(kRunningRanks);
    if (at == nullptr) return found;
    std::vector<int> all;
    for (char* end = nullptr;; at = end + 1) {
      all.push_back(static_cast<int>(std::strtol(at, &end, 10)));
      if (*end == ',') continue;
      if (*end == '/') found.ranks = std::atoi(end + 1);
      break;
    }
    if (found.ranks > 0) found.run.assign(static_cast<std::size_t>(found.ranks), 0);
    for (const auto rank : all) {
      if (rank >= 0 && rank < found.ranks) found.run[static_cast<std::size_t>(rank)] = 1;
    }
    return found;
  }());
  return known;
}

std::atomic<AskMembers> ask_members{nullptr};

}  // namespace

int ranks_of_program() noexcept { return named().ranks; }

int running_ranks() noexcept {
  return static_cast<int>(std::count(named().run.begin(), named().run.end(), 1));
}

bool runs(int rank) noexcept {
  const auto& all = named();
  return all.ranks == 0 || rank < 0 || rank >= all.ranks ||
         all.run[static_cast<std::size_t>(rank)] != 0;
}

void set_ask_members(AskMembers ask) noexcept { ask_members = ask; }

std::optional<std::vector<int>> members_of(const char* id, std::uint64_t id_bytes, int size,
                                           int rank, int shown) {
  const auto all = ranks_of_program();
  if (all == 0) return std::vector<int>{};
  std::vector<int> members(static_cast<std::size_t>(size), shown);
  if (size == 1) return members;
  if (const auto ask = ask_members.load();
      ask != nullptr && ask(id, id_bytes, size, rank, members.data()) == 1)
    return members;
  if (size != all || rank != shown) return std::nullopt;
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace emm::standin::nccl

#pragma GCC visibility push(default)
extern "C" {

// What emmctl's Python package calls. `ask` is called on the threads that make communicators.
void emm_standin_ask_members(emm::standin::nccl::AskMembers ask) {
  emm::standin::nccl::set_ask_members(ask);
}
// For emmctl: what ranks that do not run were asked for, and cannot be answered.
void emm_standin_tell_unanswered(const char* words) { emm::standin::nccl::tell("absent", words); }

}  // extern "C"
#pragma GCC visibility pop
