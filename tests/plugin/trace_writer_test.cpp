#include <gtest/gtest.h>
#include <plugin/emm_plugin.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "exchange/check.hpp"

namespace emm::plugin {
namespace {

struct TraceFile : testing::Test {
  std::string path = testing::TempDir() + "trace_writer_" +
                     testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
  ~TraceFile() override { std::remove(path.c_str()); }

  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::string error() {
    char words[256];
    emm_trace_error(words, sizeof words);
    return words;
  }
};

TEST_F(TraceFile, HoldsWhatWasAppendedInOrder) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(),
                           R"({"format":"emmctl-trace","version":"1.0","name":"mine"})", &trace),
            0);

  EXPECT_EQ(emm_trace_append(trace, R"({"op":"memalloc", "id":1, "size":4096})"), 0);
  EXPECT_EQ(emm_trace_append(trace, R"({"op":"free","id":1})"), 0);
  EXPECT_EQ(emm_trace_close(trace), 0);

  EXPECT_EQ(content(),
            "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"name\":\"mine\"}\n"
            "{\"op\":\"memalloc\",\"id\":1,\"size\":4096}\n"
            "{\"op\":\"free\",\"id\":1}\n");
}

TEST_F(TraceFile, IsWholeAfterAFlush) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);
  ASSERT_EQ(emm_trace_append(trace, R"({"op":"initialize"})"), 0);

  EXPECT_EQ(emm_trace_flush(trace), 0);

  EXPECT_EQ(content(),
            "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n{\"op\":\"initialize\"}\n");
  EXPECT_EQ(emm_trace_close(trace), 0);
}

TEST_F(TraceFile, HasItsHeaderFromTheBeginning) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);

  EXPECT_EQ(content(), "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n");
  EXPECT_EQ(emm_trace_close(trace), 0);
}

TEST_F(TraceFile, RefusesWhatComesAfterItsEndAndAfterItsClose) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);
  EXPECT_EQ(emm_trace_end(trace, 0), 0);
  EXPECT_EQ(emm_trace_append(trace, R"({"op":"reset"})"), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_trace_close(trace), 0);
  const auto before = content();

  EXPECT_EQ(emm_trace_append(trace, R"({"op":"reset"})"), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_trace_flush(trace), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_trace_end(trace, 0), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_trace_close(trace), EMM_INVALID_VALUE);

  EXPECT_EQ(content(), before);
  EXPECT_EQ(before.find("reset"), std::string::npos) << before;
}

TEST_F(TraceFile, StampsWhatHasNoTime) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(),
                           R"({"format":"emmctl-trace","version":"1.0",)"
                           R"("clock":{"source":"CLOCK_MONOTONIC","start_ns":0}})",
                           &trace),
            0);

  EXPECT_EQ(emm_trace_append(trace, R"({"op":"reset"})"), 0);
  EXPECT_EQ(emm_trace_append(trace, R"({"op":"reset","time_ns":7})"), 0);
  EXPECT_EQ(emm_trace_close(trace), 0);

  const auto rows = content().substr(content().find('\n') + 1);
  EXPECT_EQ(rows.rfind(R"({"op":"reset","time_ns":)", 0), 0U) << rows;
  EXPECT_NE(rows.find(R"({"op":"reset","time_ns":7})"), std::string::npos) << rows;
}

TEST_F(TraceFile, IsTheParentsAfterAFork) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);
  ASSERT_EQ(emm_trace_append(trace, R"({"op":"initialize"})"), 0);
  const auto child = ::fork();
  if (child == 0) {
    const bool refused = emm_trace_append(trace, R"({"op":"reset"})") == EMM_INVALID_VALUE &&
                         emm_trace_close(trace) == EMM_INVALID_VALUE;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);

  EXPECT_EQ(emm_trace_close(trace), 0);
  EXPECT_EQ(content(),
            "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n{\"op\":\"initialize\"}\n");
}

TEST_F(TraceFile, RefusesWhatIsNoOperationAndGoesOn) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);

  EXPECT_EQ(emm_trace_append(trace, R"({"op":"memalloc","id":1,"size":-1})"), EMM_INVALID_VALUE);
  EXPECT_NE(error().find("\"size\" is -1"), std::string::npos) << error();
  EXPECT_EQ(emm_trace_append(trace, "{"), EMM_INVALID_VALUE);
  EXPECT_EQ(emm_trace_append(trace, R"({"op":"reset"})"), 0);
  EXPECT_EQ(emm_trace_close(trace), 0);

  EXPECT_EQ(content(), "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n{\"op\":\"reset\"}\n");
}

TEST_F(TraceFile, CannotBeOpenedWithoutAHeaderOrAPath) {
  emm_trace* trace = nullptr;

  EXPECT_EQ(emm_trace_open(path.c_str(), R"({"format":"other"})", &trace), EMM_INVALID_VALUE);
  EXPECT_EQ(trace, nullptr);
  EXPECT_NE(emm_trace_open("/nowhere/at/all", nullptr, &trace), 0);
  EXPECT_EQ(error(), "cannot write /nowhere/at/all: No such file or directory");
  EXPECT_EQ(emm_trace_close(nullptr), 0);
}

TEST_F(TraceFile, TakesOperationsOfSeveralThreadsWhole) {
  emm_trace* trace = nullptr;
  ASSERT_EQ(emm_trace_open(path.c_str(), nullptr, &trace), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto id = std::to_string(100 * t + i);
        emm_trace_append(trace, (R"({"op":"memalloc","thread":)" + std::to_string(t) + R"(,"id":)" +
                                 id + R"(,"size":8})")
                                    .c_str());
        emm_trace_append(
            trace,
            (R"({"op":"free","thread":)" + std::to_string(t) + R"(,"id":)" + id + "}").c_str());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(emm_trace_close(trace), 0);

  auto source = format::ByteSource::open(path);
  const auto report = trace::check(**source);

  ASSERT_TRUE(report) << describe(report.error());
  EXPECT_EQ(report->errors, 0u);
  EXPECT_EQ(report->summary.operations, 800u);
  EXPECT_EQ(report->leaked, 0u);
}

TEST(BundledManagers, AreListed) {
  std::vector<std::string> names;
  emm_manager_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; emm_bundled_manager(i, &info) == 0; ++i) {
    names.emplace_back(info.name);
    EXPECT_NE(info.summary[0], '\0');
    EXPECT_NE(info.options[0], '\0');
  }

  ASSERT_GE(names.size(), 4u);
  EXPECT_EQ(names.front(), "default");
}

TEST(BundledManagers, OpenADeviceThemselvesWhereNoTableIsGiven) {
  emm_create_v1 create{};
  create.struct_size = sizeof create;
  create.options = "name=pool,open=sim;capacity=64MiB";
  emm_manager* manager = nullptr;
  const auto* table = emm_plugin_v1();
  ASSERT_EQ(table->create(&create, &manager), 0);
  emm_memory memory{};
  memory.struct_size = sizeof memory;

  EXPECT_EQ(table->memalloc(manager, 4096, 0, &memory), 0);
  EXPECT_NE(memory.device_pointer, 0u);
  EXPECT_EQ(table->free(manager, memory.token, 0), 0);
  EXPECT_EQ(table->free(manager, memory.token, 0), EMM_INVALID_VALUE) << "it was freed";
  EXPECT_EQ(table->memalloc(manager, 1 << 30, 0, &memory), EMM_OUT_OF_MEMORY);
  char words[64];
  EXPECT_GT(table->last_error(manager, words, sizeof words), 0u);
  emm_memory_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(table->get_memory_info(manager, &info), 0);
  EXPECT_EQ(info.total, 64u << 20);
  table->destroy(manager);
}

TEST(BundledManagers, SayWhichNamesThereAre) {
  emm_create_v1 create{};
  create.struct_size = sizeof create;
  create.flags = EMM_CREATE_PROBE;
  create.options = "name=pol";
  emm_manager* manager = nullptr;
  const auto* table = emm_plugin_v1();

  EXPECT_EQ(table->create(&create, &manager), EMM_INVALID_VALUE);

  char words[256];
  table->last_error(nullptr, words, sizeof words);
  std::string expected = "libemm: option 'name' is 'pol': expected one of ";
  emm_manager_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; emm_bundled_manager(i, &info) == 0; ++i) {
    expected += std::string(i == 0 ? "" : ", ") + info.name;
  }
  EXPECT_EQ(std::string(words).substr(0, expected.size()), expected);
}

}  // namespace
}  // namespace emm::plugin
