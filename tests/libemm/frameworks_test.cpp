// The functions of libemm.so that PyTorch's and CuPy's allocators are given, called as those call
// them.
#include <gtest/gtest.h>
#include <plugin/emm_plugin.h>

#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

  static std::string words() {
    char text[256];
    emm_shared_error(text, sizeof text);
    return text;
  }
  static std::uint64_t live_bytes() {
    emm_manager* self = nullptr;
    EXPECT_EQ(emm_shared_manager(0, &self), EMM_SUCCESS);
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
  EXPECT_NE(words().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << words();
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
  EXPECT_EQ(without(text.str(), {"time_ns", "thread", "addr"}),
            R"({"format":"emmctl-trace","version":"1.0"}
{"op":"memalloc","id":"a1","size":2048}
{"op":"memalloc","id":"a2","size":68157440,"result":{"outcome":"oom","code":2}}
{"op":"record_stream","id":"a1","stream":"legacy"}
{"op":"free","id":"a1"}
{"op":"memalloc","id":"a3","size":3072,"stream":"legacy"}
{"op":"end","lost":0,"events":5,"live":1,"live_bytes":3072}
)");
  std::remove(path.c_str());
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
  for (auto& thread : threads) thread.join();
  emm_torch_reset();
  EXPECT_EQ(live_bytes(), 0U);
}

}  // namespace
}  // namespace emm::libemm
