#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/text_format.hpp"
#include "tools/peers/requests_of.hpp"
#include "tools/peers/threads.hpp"

namespace emm::peers {
namespace {

/// A file that the test makes, and that its end removes.
class File {
 public:
  explicit File(const char* name, const std::string& content = "")
      : path_(std::filesystem::temp_directory_path() /
              text::format("emm_peers_{}_{}", ::getpid(), name)) {
    std::ofstream(path_) << content;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

/// Hands out numbers, and notices what is freed twice or never.
class Ledger {
 public:
  using Memory = std::uint64_t;

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    const std::lock_guard lock(mutex_);
    if (memory != 0) overwritten_ = true;
    memory = ++last_;
    live_.emplace(memory, stream);
    return size > 0;
  }
  void free(Memory& memory, std::uint16_t stream) {
    if (memory == 0) return;
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(memory);
    wrong_ = wrong_ || found == live_.end() || found->second != stream;
    if (found != live_.end()) live_.erase(found);
    memory = 0;
  }

  bool right() const { return !wrong_ && !overwritten_; }
  std::size_t live() const { return live_.size(); }

 private:
  std::mutex mutex_;
  std::map<Memory, std::uint16_t> live_;
  Memory last_ = 0;
  bool wrong_ = false, overwritten_ = false;
};

TEST(Requests, AreWrittenInSlotsThatAreTakenAgain) {
  const File trace("trace.jsonl", R"({"format":"emmctl-trace","version":"1.0"}
{"op":"stream_create","id":"s"}
{"op":"memalloc","id":1,"size":100}
{"op":"memalloc","id":2,"size":200,"stream":"s"}
{"op":"free","id":1}
{"op":"memalloc","id":3,"size":300}
{"op":"memhostalloc","id":4,"size":400}
{"op":"memalloc","id":5,"size":0}
{"op":"free","id":2,"stream":"s"}
{"op":"reset"}
)");
  const File list("list.ops");

  const auto written = write_requests(trace.path(), list.path());

  ASSERT_TRUE(written) << describe(written.error());
  EXPECT_EQ(list.content(), "a 0 100 0\na 1 200 1\nf 0 0\na 0 300 0\nf 1 1\nf 0 0\n");
}

TEST(Requests, AreReadWithTheirPeak) {
  const File list("read.ops", "# comment\na 0 100 0\na 1 50 2\nf 0 0\na 0 70 0\nf 1 2\n");

  const auto requests = read_requests(list.path());

  ASSERT_TRUE(requests);
  EXPECT_EQ(requests->all.size(), 5u);
  EXPECT_EQ(requests->allocations, 3u);
  EXPECT_EQ(requests->slots, 2u);
  EXPECT_EQ(requests->streams, 3u);
  EXPECT_EQ(requests->peak_live, 150u);
  EXPECT_EQ(requests->peak_at, 1u);
  EXPECT_EQ(requests->no_wait_need(), 150u);
}

TEST(Requests, OfSeveralStreamsNeedTheSumOfTheirPeaks) {
  Requests requests;

  requests.add({.size = 100, .slot = 0, .stream = 0, .allocates = true});
  requests.add({.slot = 0, .stream = 0});
  requests.add({.size = 80, .slot = 0, .stream = 1, .allocates = true});
  requests.add({.slot = 0, .stream = 1});

  EXPECT_EQ(requests.peak_live, 100u);
  EXPECT_EQ(requests.no_wait_need(), 180u);
}

TEST(Requests, ThatAreNoneAreRefused) {
  const File list("bad.ops", "a 0 100 0\nb 0\n");

  EXPECT_FALSE(read_requests(list.path()));
}

TEST(Steps, EndWithNothingAliveAndFreeAFifthElsewhere) {
  const Threading threading{.threads = 2, .live = 8, .requests = 10'000};

  const auto steps = detail::steps_of(threading, 1);

  std::set<std::uint32_t> live;
  std::size_t allocations = 0, elsewhere = 0, most = 0;
  for (const auto& step : steps) {
    if (step.what == detail::Step::What::allocate) {
      EXPECT_TRUE(live.insert(step.slot).second);
      ++allocations;
    } else {
      EXPECT_EQ(live.erase(step.slot), 1u);
      elsewhere += step.what == detail::Step::What::free_elsewhere ? 1 : 0;
    }
    most = std::max(most, live.size());
  }
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(most, 8u);
  EXPECT_NEAR(static_cast<double>(elsewhere) / static_cast<double>(allocations), 0.2, 0.03);
}

TEST(Workers, FreeEachAllocationOnceOnItsStream) {
  const Threading threading{.threads = 3, .live = 16, .requests = 5'000};
  Ledger ledger;
  std::vector<std::unique_ptr<detail::Worker<Ledger>>> workers;
  for (std::uint64_t me = 0; me < 3; ++me) {
    workers.push_back(std::make_unique<detail::Worker<Ledger>>(ledger, threading, me));
  }
  for (std::size_t i = 0; i < 3; ++i) workers[i]->follow(*workers[(i + 1) % 3]);

  std::vector<std::thread> running;
  for (auto& worker : workers) running.emplace_back([&worker] { worker->work(); });
  for (auto& thread : running) thread.join();
  for (auto& worker : workers) worker->drain();

  EXPECT_TRUE(ledger.right());
  EXPECT_EQ(ledger.live(), 0u);
}

TEST(Quantiles, AreOfTheSortedList) {
  std::vector<int> values{5, 1, 4, 2, 3};

  EXPECT_EQ(median(values), 3);
  EXPECT_EQ(quantile(values, 0.999), 5);
}

}  // namespace
}  // namespace emm::peers
