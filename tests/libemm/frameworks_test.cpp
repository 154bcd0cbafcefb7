// The functions of libemm.so that PyTorch's and CuPy's allocators are given, called as those call
// them.
#include <gtest/gtest.h>
#include <plugin/emm_plugin.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

thread_local bool has_host_memory = true;

[[maybe_unused]] void* take(std::size_t size) {
  if (void* const memory = has_host_memory ? std::malloc(size) : nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

#ifndef EMM_THREAD_SANITIZER  // which brings its own
// libemm.so finds these too.
void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace emm::libemm {
namespace {

constexpr std::size_t kKiB = 1024, kMiB = kKiB * 1024;

/// JSON Lines without the members of these names, whose values have no comma.
std::string without(std::string text, std::initializer_list<std::string_view> names) {
  for (const auto name : names) {
    const auto member = ",\"" + std::string(name) + "\":";
    for (auto at = text.find(member); at != std::string::npos; at = text.find(member, at))
      text.erase(at, text.find_first_of(",}", at + 1) - at);
  }
  return text;
}

struct Frameworks : testing::Test {
  void SetUp() override {
    ASSERT_EQ(emm_shared_use("name=pool,open=sim;capacity=64MiB", 0), EMM_SUCCESS) << words();
  }
  void TearDown() override { EXPECT_EQ(emm_shared_end(0), EMM_SUCCESS) << "memory is left"; }

  static emm_memory no_memory() {
    return {.struct_size = sizeof(emm_memory),
            .token = 0,
            .device_pointer = 0,
            .host_pointer = nullptr};
  }
  static std::string words() {
    char text[512];
    emm_shared_error(text, sizeof text);
    return text;
  }
  static emm_manager* manager() {
    emm_manager* self = nullptr;
    EXPECT_EQ(emm_shared_manager(0, &self), EMM_SUCCESS);
    return self;
  }
  static std::uint64_t statistic(std::string_view name) {
    std::vector<emm_statistic> all(emm_plugin_v1()->statistics(manager(), nullptr, 0));
    emm_plugin_v1()->statistics(manager(), all.data(), all.size());
    for (const auto& one : all) {
      if (one.name == name) return one.value;
    }
    ADD_FAILURE() << name << " is not counted";
    return 0;
  }
  static std::uint64_t live_bytes() {
    auto* self = manager();
    emm_state state{.struct_size = sizeof(emm_state),
                    .live_bytes = 0,
                    .reserved_bytes = 0,
                    .largest_free_bytes = 0,
                    .pending_count = 0,
                    .pending_bytes = 0};
    emm_plugin_v1()->state(self, &state);
    return state.live_bytes;
  }
};

TEST_F(Frameworks, ShareOneManager) {
  void* torch = emm_torch_alloc(kKiB, 0, nullptr);
  void* cupy = emm_cupy_malloc(nullptr, 3 * kKiB, 0);

  EXPECT_NE(torch, cupy);
  EXPECT_EQ(live_bytes(), 4 * kKiB);
  emm_torch_free(torch, kKiB, 0, nullptr);
  emm_cupy_free(nullptr, cupy, 0);
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, AreToldWhereThereIsNoMemory) {
  try {
    emm_torch_alloc(65 * kMiB, 0, nullptr);
    FAIL() << "65 MiB of 64 were given";
  } catch (const std::bad_alloc& error) {
    EXPECT_EQ(std::string(error.what()).rfind("CUDA out of memory: 65.00 MiB on device 0: ", 0), 0U)
        << error.what();
  }
  EXPECT_EQ(emm_cupy_malloc(nullptr, 65 * kMiB, 0), nullptr);
  EXPECT_TRUE(words().find("OUT_OF_MEMORY") != std::string::npos ||
              words().find("out of memory") != std::string::npos)
      << words();
}

TEST_F(Frameworks, AreNotToldOfMemoryWhereSomethingElseFails) {
  try {
    emm_torch_alloc(kMiB, -1, nullptr);
    FAIL() << "there is no device -1";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("no memory was given: 1.00 MiB on device -1: ", 0),
              0U)
        << error.what();
  }
  EXPECT_NE(emm_shared_status(), EMM_OUT_OF_MEMORY);
  EXPECT_EQ(emm_cupy_malloc(nullptr, 65 * kMiB, 0), nullptr);
  EXPECT_EQ(emm_shared_status(), EMM_OUT_OF_MEMORY);
  EXPECT_EQ(emm_cupy_malloc(nullptr, kMiB, -1), nullptr);
  EXPECT_NE(emm_shared_status(), EMM_OUT_OF_MEMORY);
}

TEST_F(Frameworks, AreToldOfTheStateWhereThereIsNoMemory) {
  void* kept = emm_torch_alloc(3 * kMiB, 0, nullptr);
  emm_torch_free(emm_torch_alloc(kMiB, 0, nullptr), kMiB, 0, nullptr);
  constexpr std::string_view kState =
      "; live 3.00 MiB, reserved 4.00 MiB, active 3.00 MiB, inactive split 1.00 MiB, largest free "
      "block 1.00 MiB";
  constexpr std::string_view kOfDevice = ", free on the device 60.00 MiB of 64.00 MiB";
  const auto ends_with = [](std::string_view all, std::string_view end) {
    return all.size() >= end.size() && all.substr(all.size() - end.size()) == end;
  };

  try {
    emm_torch_alloc(65 * kMiB, 0, nullptr);
    ADD_FAILURE() << "65 MiB of 64 were given";
  } catch (const std::bad_alloc& error) {
    EXPECT_TRUE(ends_with(error.what(), std::string(kState) + std::string(kOfDevice)))
        << error.what();
  }
  EXPECT_EQ(emm_cupy_malloc(nullptr, 65 * kMiB, 0), nullptr);
  EXPECT_TRUE(ends_with(words(), std::string(kState) + std::string(kOfDevice))) << words();
  auto memory = no_memory();
  EXPECT_EQ(emm_plugin_v1()->memalloc(manager(), 65 * kMiB, 0, &memory), EMM_OUT_OF_MEMORY);
  char text[512];
  emm_plugin_v1()->last_error(manager(), text, sizeof text);
  EXPECT_TRUE(ends_with(text, kState)) << text;

  emm_torch_free(kept, 3 * kMiB, 0, nullptr);
}

TEST_F(Frameworks, HaveWrongFreesCountedAndTheFirstOfEachKindSaid) {
  void* memory = emm_torch_alloc(4 * kKiB, 0, nullptr);
  void* inside = static_cast<char*>(memory) + kKiB;
  int foreign = 0;

  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    emm_cupy_free(nullptr, inside, 0);
    emm_torch_free(&foreign, sizeof foreign, 0, nullptr);
  }
  EXPECT_EQ(live_bytes(), 4 * kKiB);
  emm_torch_free(memory, kKiB, 0, nullptr);
  EXPECT_EQ(live_bytes(), 0U) << "whatever its size";
  emm_torch_free(memory, 4 * kKiB, 0, nullptr);
  EXPECT_NE(words().find("it was freed before, or is another's"), std::string::npos) << words();
  const auto said = testing::internal::GetCapturedStderr();

  EXPECT_EQ(statistic("wrong_frees.inside"), 2U);
  EXPECT_EQ(statistic("wrong_frees.not_alive"), 3U);
  EXPECT_EQ(statistic("wrong_frees.size"), 1U);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
  EXPECT_NE(said.find("is inside of the 4096 bytes at"), std::string::npos) << said;
  EXPECT_NE(said.find("has 4096 bytes, not 1024: it is freed"), std::string::npos) << said;
}

TEST_F(Frameworks, AreToldOfAFreeWhereNothingWasHandedOut) {
  int foreign = 0;

  testing::internal::CaptureStderr();
  emm_torch_free(&foreign, sizeof foreign, 5, nullptr);
  const auto said = testing::internal::GetCapturedStderr();

  EXPECT_NE(said.find("on device 5: "), std::string::npos) << said;
  EXPECT_NE(words().find("none was handed out"), std::string::npos) << words();
}

TEST_F(Frameworks, AreToldOfATokenThatTheyDoNotHave) {
  const auto* table = emm_plugin_v1();
  auto* self = manager();
  auto memory = no_memory();
  ASSERT_EQ(table->memalloc(self, kKiB, 0, &memory), EMM_SUCCESS);
  const auto freed = memory.token;
  ASSERT_EQ(table->free(self, freed, 0), EMM_SUCCESS);
  ASSERT_EQ(table->memalloc(self, kKiB, 0, &memory), EMM_SUCCESS);

  EXPECT_EQ(table->free(self, freed, 0), EMM_INVALID_VALUE) << "though its place is used again";
  EXPECT_EQ(table->free(self, memory.token + 7, 0), EMM_INVALID_VALUE);
  char text[256];
  table->last_error(self, text, sizeof text);
  EXPECT_NE(std::string(text).find("was never handed out"), std::string::npos) << text;
  EXPECT_EQ(statistic("wrong_frees.not_alive"), 2U);
  EXPECT_EQ(table->free(self, 0, 0), EMM_SUCCESS) << "it owns nothing";
  EXPECT_EQ(live_bytes(), kKiB);

  table->reset(self);
  EXPECT_EQ(table->free(self, memory.token, 0), EMM_SUCCESS) << "late, after a reset";
  EXPECT_EQ(statistic("wrong_frees.not_alive"), 2U);
}

TEST_F(Frameworks, FreeByTokenOnAnotherThreadThanTheyAsk) {
  const auto& table = *emm_plugin_v1();
  auto* const self = manager();
  std::vector<emm_token> freed;

  for (int round = 0; round < 3; ++round) {
    std::vector<emm_token> held;
    for (int i = 0; i < 1'000; ++i) {
      auto memory = no_memory();
      ASSERT_EQ(table.memalloc(self, 1, 0, &memory), EMM_SUCCESS);
      held.push_back(memory.token);
    }
    std::sort(held.begin(), held.end());
    ASSERT_EQ(std::adjacent_find(held.begin(), held.end()), held.end()) << "a token names two";
    std::thread([&] {
      for (const auto token : held) EXPECT_EQ(table.free(self, token, 0), EMM_SUCCESS);
    }).join();
    freed.insert(freed.end(), held.begin(), held.end());
  }

  EXPECT_EQ(live_bytes(), 0U);
  for (const auto token : freed) EXPECT_EQ(table.free(self, token, 0), EMM_INVALID_VALUE);
  EXPECT_EQ(statistic("wrong_frees.not_alive"), freed.size());
}

TEST_F(Frameworks, FreeByTokenOnMoreThreadsThanKeepPlacesForTokens) {
  const auto& table = *emm_plugin_v1();
  auto* const self = manager();
  std::atomic<int> ready = 0, wrong = 0;
  constexpr int kThreads = 100;
  std::vector<std::thread> threads;

  for (int n = 0; n < kThreads; ++n) {
    threads.emplace_back([&] {
      auto memory = no_memory();
      const bool has = table.memalloc(self, 1, 0, &memory) == EMM_SUCCESS;
      ++ready;
      while (ready < kThreads) std::this_thread::yield();  // all are there at once
      wrong += !has || table.free(self, memory.token, 0) != EMM_SUCCESS;
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, FreeTheSameTokenOnceWhicheverThreadComesFirst) {
  const auto& table = *emm_plugin_v1();
  auto* const self = manager();
  constexpr int kTokens = 2'000;
  std::vector<emm_token> held;
  for (int i = 0; i < kTokens; ++i) {
    auto memory = no_memory();
    ASSERT_EQ(table.memalloc(self, 1, 0, &memory), EMM_SUCCESS);
    held.push_back(memory.token);
  }

  std::atomic<int> frees = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) {
    threads.emplace_back([&] {
      for (const auto token : held) frees += table.free(self, token, 0) == EMM_SUCCESS;
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(frees, kTokens);
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, FindEachOfManyAddresses) {
  constexpr std::size_t kMany = 3'000;
  std::vector<void*> held;
  for (std::size_t i = 0; i < kMany; ++i) held.push_back(emm_torch_alloc(kKiB, 0, nullptr));

  // In an order that has nothing to do with the addresses; each is then used again.
  for (std::size_t i = 0; i < 2 * kMany; ++i) {
    auto& memory = held[i * 1'237 % kMany];
    emm_torch_free(memory, kKiB, 0, nullptr);
    memory = emm_torch_alloc(kKiB, 0, nullptr);
  }
  EXPECT_EQ(live_bytes(), kMany * kKiB);
  for (std::size_t i = 0; i < kMany; ++i) emm_torch_free(held[i * 1'237 % kMany], kKiB, 0, nullptr);

  EXPECT_EQ(live_bytes(), 0U);
  EXPECT_EQ(statistic("wrong_frees.not_alive"), 0U);
}

TEST_F(Frameworks, KeepTorchToItsFractionOnSeveralThreads) {
  void* before = emm_torch_alloc(kMiB, 0, nullptr);  // counts, though it is older than the limit
  emm_torch_memory_fraction(0.5, 0);
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;

  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&] {
      std::vector<void*> held;
      for (int i = 0; i < 10; ++i) {
        try {
          held.push_back(emm_torch_alloc(kMiB, 0, nullptr));
        } catch (const std::bad_alloc&) {
          ++refused;
        }
      }
      for (void* memory : held) emm_torch_free(memory, kMiB, 0, nullptr);
    });
  }
  for (auto& thread : threads) thread.join();
  void* rest = emm_torch_alloc(31 * kMiB, 0, nullptr);

  EXPECT_THROW(emm_torch_alloc(1, 0, nullptr), std::bad_alloc) << "32 MiB are live";
  EXPECT_LE(refused, 4 * 10 - 31) << "while less than 32 MiB were live";
  emm_torch_free(rest, 31 * kMiB, 0, nullptr);
  emm_torch_free(before, kMiB, 0, nullptr);
  emm_torch_memory_fraction(1.0, 0);
}

TEST_F(Frameworks, AreToldNothingWhereThereIsNoHostMemoryForTheAnswer) {
#ifdef EMM_THREAD_SANITIZER
  GTEST_SKIP() << "the heap is ThreadSanitizer's";
#endif
  const auto& table = *emm_plugin_v1();
  auto* const self = manager();
  char report[256] = "?";

  has_host_memory = false;
  const auto statistics = table.statistics(self, nullptr, 0);
  const auto size = table.report(self, report, sizeof report);
  table.defer_cleanup(self);  // needs none
  has_host_memory = true;

  EXPECT_EQ(statistics, 0U);
  EXPECT_EQ(size, 0U);
  table.end_defer_cleanup(self);
}

TEST_F(Frameworks, GiveNothingWhereNothingIsAskedFor) {
  void* nothing = emm_torch_alloc(0, 0, nullptr);
  EXPECT_EQ(nothing, nullptr);
  emm_torch_free(nothing, 0, 0, nullptr);
}

TEST_F(Frameworks, KeepTorchToItsFraction) {
  emm_torch_memory_fraction(0.5, 0);
  void* within = emm_torch_alloc(32 * kMiB, 0, nullptr);

  EXPECT_THROW(emm_torch_alloc(kKiB, 0, nullptr), std::bad_alloc);

  emm_torch_memory_fraction(1.0, 0);
  void* beyond = emm_torch_alloc(kKiB, 0, nullptr);
  emm_torch_free(within, 32 * kMiB, 0, nullptr);
  emm_torch_free(beyond, kKiB, 0, nullptr);
}

TEST_F(Frameworks, KeepTorchToItsFractionWhenTheManagerIsMadeAgain) {
  emm_torch_memory_fraction(0.5, 0);
  ASSERT_EQ(emm_shared_end(0), EMM_SUCCESS);

  EXPECT_THROW(emm_torch_alloc(33 * kMiB, 0, nullptr), std::bad_alloc);

  emm_torch_memory_fraction(1.0, 0);
}

TEST_F(Frameworks, HoldMemoryThatAnotherStreamWasRecordedFor) {
  void* stream = reinterpret_cast<void*>(1);  // the legacy one, which always is there
  void* used = emm_torch_alloc(kMiB, 0, nullptr);
  emm_torch_record_stream(used, stream);

  emm_torch_free(used, kMiB, 0, nullptr);

  emm_torch_reset();  // waits for it
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, FindTheBaseOfAnAllocation) {
  void* first = emm_torch_alloc(kKiB, 0, nullptr);
  void* second = emm_torch_alloc(kKiB, 0, nullptr);
  std::size_t size = 0;

  auto* base = static_cast<char*>(emm_torch_base_alloc(second, &size));

  EXPECT_LE(base, second);
  EXPECT_GT(base + size, second);
  emm_torch_free(first, kKiB, 0, nullptr);
  emm_torch_free(second, kKiB, 0, nullptr);
  EXPECT_EQ(emm_torch_base_alloc(second, &size), nullptr) << "it was freed";
}

/// The stream that is captured; any that is not the default one will do.
void* const kCaptured = reinterpret_cast<void*>(2);
const std::function<bool(void*)> kTakesCaptured = [](void* stream) { return stream == kCaptured; };

TEST_F(Frameworks, KeepTheMemoryOfAGraphFromOthers) {
  emm_torch_begin_allocate_to_pool(0, 0, 1, &kTakesCaptured);
  void* first = emm_torch_alloc(kMiB, 0, kCaptured);
  emm_torch_free(first, kMiB, 0, kCaptured);
  void* again = emm_torch_alloc(kMiB, 0, kCaptured);
  void* elsewhere = emm_torch_alloc(kMiB, 0, nullptr);
  emm_torch_free(again, kMiB, 0, kCaptured);
  emm_torch_end_allocate_to_pool(0, 0, 1);
  EXPECT_EQ(again, first) << "in the graph its work is in order";

  void* after = emm_torch_alloc(kMiB, 0, kCaptured);
  emm_torch_reset();

  EXPECT_NE(after, first) << "a replay writes there";
  EXPECT_NE(elsewhere, first);
  EXPECT_EQ(live_bytes(), 3 * kMiB);
  emm_torch_release_pool(0, 0, 1);
  EXPECT_EQ(live_bytes(), 2 * kMiB);
  emm_torch_free(after, kMiB, 0, kCaptured);
  emm_torch_free(elsewhere, kMiB, 0, nullptr);
}

TEST_F(Frameworks, KeepTheMemoryOfGraphsThatShareAPoolToTheLast) {
  void* first = nullptr;
  for (int graph = 0; graph < 2; ++graph) {
    emm_torch_begin_allocate_to_pool(0, 5, 0, &kTakesCaptured);
    void* memory = emm_torch_alloc(kMiB, 0, kCaptured);
    if (graph == 0) first = memory;
    EXPECT_EQ(memory, first);
    void* large = emm_torch_alloc(3 * kMiB, 0, kCaptured);
    EXPECT_NE(large, first) << "it has no room for that";
    emm_torch_free(large, 3 * kMiB, 0, kCaptured);
    emm_torch_free(memory, kMiB, 0, kCaptured);
    emm_torch_end_allocate_to_pool(0, 5, 0);
  }

  emm_torch_release_pool(0, 5, 0);
  EXPECT_EQ(live_bytes(), 4 * kMiB);
  emm_torch_release_pool(0, 5, 0);
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, FreeWhatOutlivesItsGraph) {
  emm_torch_begin_allocate_to_pool(0, 0, 1, &kTakesCaptured);
  void* output = emm_torch_alloc(kMiB, 0, kCaptured);
  emm_torch_end_allocate_to_pool(0, 0, 1);
  emm_torch_release_pool(0, 0, 1);
  EXPECT_EQ(live_bytes(), kMiB);

  emm_torch_free(output, kMiB, 0, kCaptured);

  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, AskNothingOfStreamsInACapture) {
  void* legacy = reinterpret_cast<void*>(1);
  void* before = emm_torch_alloc(kMiB, 0, nullptr);
  emm_torch_record_stream(before, legacy);
  emm_torch_begin_allocate_to_pool(0, 0, 1, &kTakesCaptured);
  void* within = emm_torch_alloc(kMiB, 0, kCaptured);
  emm_torch_record_stream(within, legacy);
  emm_torch_free(before, kMiB, 0, nullptr);
  emm_torch_free(within, kMiB, 0, kCaptured);

  void* more = emm_torch_alloc(kMiB, 0, kCaptured);
  emm_torch_reset();

  EXPECT_NE(more, within) << "another stream may use it in the graph";
  EXPECT_EQ(live_bytes(), 3 * kMiB);
  emm_torch_free(more, kMiB, 0, kCaptured);
  emm_torch_end_allocate_to_pool(0, 0, 1);
  emm_torch_reset();
  EXPECT_EQ(live_bytes(), 2 * kMiB) << "the one that was made before is free";
  emm_torch_release_pool(0, 0, 1);
  EXPECT_EQ(live_bytes(), 0U);
}

TEST_F(Frameworks, AskForTheStreamThatTheyAreOn) {
  static thread_local int asked = 0;
  auto* current = +[]() -> std::intptr_t { return ++asked, 2; };

  void* memory = emm_cupy_malloc(reinterpret_cast<void*>(current), kKiB, 0);
  emm_cupy_free(reinterpret_cast<void*>(current), memory, 0);

  EXPECT_EQ(asked, 1) << "freed in the order of the stream of its birth";
}

TEST_F(Frameworks, MayNotChangeTheManagerWhileItIsInUse) {
  void* memory = emm_cupy_malloc(nullptr, kKiB, 0);
  EXPECT_EQ(emm_shared_use("name=default,open=sim", 0), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_shared_end(0), EMM_NOT_READY);
  EXPECT_EQ(emm_shared_use("name=pool,open=sim;capacity=64MiB", 0), EMM_SUCCESS);
  emm_cupy_free(nullptr, memory, 0);
}

TEST_F(Frameworks, ForgetADeviceThatWasReset) {
  void* before = emm_torch_alloc(kKiB, 0, nullptr);
  emm_shared_abandon(0);
  void* after = emm_torch_alloc(3 * kKiB, 0, nullptr);

  if (before != after) emm_torch_free(before, kKiB, 0, nullptr);
  EXPECT_EQ(statistic("wrong_frees.not_alive"), 0U) << "it is late, not wrong";

  EXPECT_EQ(live_bytes(), 3 * kKiB);
  emm_torch_free(after, 3 * kKiB, 0, nullptr);
}

TEST_F(Frameworks, AreRecordedAsTheyAsk) {
  const auto path = testing::TempDir() + "frameworks_test.jsonl";
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), EMM_SUCCESS);
  void* before = emm_torch_alloc(kKiB, 0, nullptr);
  emm_shared_record(trace, 0);

  void* legacy = reinterpret_cast<void*>(1);
  void* block = emm_torch_alloc(2 * kKiB, 0, nullptr);
  EXPECT_EQ(emm_cupy_malloc(nullptr, 65 * kMiB, 0), nullptr);
  emm_torch_record_stream(block, legacy);
  emm_torch_free(before, kKiB, 0, nullptr);
  emm_torch_free(block, 2 * kKiB, 0, nullptr);
  void* left = emm_torch_alloc(3 * kKiB, 0, legacy);
  emm_shared_record(nullptr, 0);
  EXPECT_EQ(emm_trace_end(trace, 0), EMM_SUCCESS);
  EXPECT_EQ(emm_trace_close(trace), EMM_SUCCESS);
  emm_torch_free(left, 3 * kKiB, 0, legacy);
  emm_torch_reset();

  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(without(text.str(), {"time_ns", "duration_ns", "thread", "addr"}),
            R"({"format":"emmctl-trace","version":"1.0"}
{"op":"memalloc","id":"a1","size":1024,"preexisting":true}
{"op":"memalloc","id":"a2","size":2048}
{"op":"memalloc","id":"a3","size":68157440,"result":{"outcome":"oom","code":2}}
{"op":"record_stream","id":"a2","stream":"legacy"}
{"op":"free","id":"a1"}
{"op":"free","id":"a2"}
{"op":"memalloc","id":"a4","size":3072,"stream":"legacy"}
{"op":"end","lost":0,"events":7,"live":1,"live_bytes":3072}
)");
  std::remove(path.c_str());
}

TEST_F(Frameworks, AreRecordedAgainWithWhatIsAlive) {
  const auto path = testing::TempDir() + "frameworks_again_test.jsonl";
  void* first = nullptr;
  void* second = nullptr;
  for (int recording = 0; recording < 2; ++recording) {
    emm_trace* trace = nullptr;
    ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), EMM_SUCCESS);
    emm_shared_record(trace, 0);
    (recording == 0 ? first : second) = emm_torch_alloc(kKiB, 0, nullptr);
    if (recording == 1) emm_torch_free(first, kKiB, 0, nullptr);
    emm_shared_record(nullptr, 0);
    EXPECT_EQ(emm_trace_end(trace, 0), EMM_SUCCESS);
    EXPECT_EQ(emm_trace_close(trace), EMM_SUCCESS);
  }
  emm_torch_free(second, kKiB, 0, nullptr);

  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const auto rows = without(text.str(), {"time_ns", "duration_ns", "thread", "addr"});
  const auto alive = rows.find(R"("size":1024,"preexisting":true})");
  ASSERT_NE(alive, std::string::npos) << rows;
  EXPECT_NE(rows.find(R"({"op":"end","lost":0,"events":3,"live":1,"live_bytes":1024})"),
            std::string::npos)
      << rows;
  std::remove(path.c_str());
}

/// What a forked child does with its parent's managers. Returns the number of the step that went
/// wrong, or 0.
int use_in_a_child(void* of_parent, emm_manager* self) {
  alarm(20);  // a hang is a death by a signal
  try {
    emm_torch_alloc(kKiB, 0, nullptr);
    return 1;
  } catch (const std::exception&) {
  }
  if (emm_shared_status() != EMM_NOT_INITIALIZED) return 2;
  emm_torch_free(of_parent, kKiB, 0, nullptr);
  if (emm_cupy_malloc(nullptr, kKiB, 0) != nullptr) return 3;
  emm_cupy_free(nullptr, of_parent, 0);
  emm_torch_record_stream(of_parent, nullptr);
  emm_torch_reset();
  emm_torch_memory_fraction(0.5, 0);
  auto memory = Frameworks::no_memory();
  const auto& table = *emm_plugin_v1();
  if (table.memalloc(self, kKiB, 0, &memory) != EMM_NOT_INITIALIZED) return 4;
  if (table.flush(self) != EMM_NOT_INITIALIZED) return 5;
  if (table.trim(self, 0) != EMM_NOT_INITIALIZED) return 6;
  table.defer_cleanup(self);
  table.end_defer_cleanup(self);
  table.reset(self);
  table.destroy(self);
  return emm_shared_end(0) == EMM_SUCCESS ? 0 : 7;
}

TEST_F(Frameworks, AForkedChildCallsNoManagerOfItsParent) {
  void* memory = emm_torch_alloc(kKiB, 0, nullptr);
  auto* self = manager();
  std::atomic<bool> ends = false;
  std::thread busy([&] {  // holds locks at some of the forks
    while (!ends) emm_torch_free(emm_torch_alloc(kMiB, 0, nullptr), kMiB, 0, nullptr);
  });
  for (int i = 0; i < 20; ++i) {
    const auto child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(use_in_a_child(memory, self));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  ends = true;
  busy.join();
  emm_torch_free(memory, kKiB, 0, nullptr);
}

TEST_F(Frameworks, ServeManyThreads) {
  std::vector<std::thread> threads;
  for (std::uintptr_t n = 0; n < 4; ++n) {
    threads.emplace_back([n] {
      void* stream = reinterpret_cast<void*>(n % 3);
      for (std::ptrdiff_t i = 1; i <= 200; ++i) {
        void* memory = emm_torch_alloc(i * 100, 0, stream);
        if (i % 7 == 0) emm_torch_record_stream(memory, reinterpret_cast<void*>(n % 2 + 1));
        emm_torch_free(memory, i * 100, 0, stream);
      }
    });
  }
  for (std::uint64_t graph = 1; graph <= 50; ++graph) {
    emm_torch_begin_allocate_to_pool(0, 0, graph, &kTakesCaptured);
    emm_torch_free(emm_torch_alloc(kKiB, 0, kCaptured), kKiB, 0, kCaptured);
    emm_torch_end_allocate_to_pool(0, 0, graph);
    emm_torch_release_pool(0, 0, graph);
  }
  for (auto& thread : threads) thread.join();
  emm_torch_reset();
  EXPECT_EQ(live_bytes(), 0U);
}

}  // namespace
}  // namespace emm::libemm
