// The recordings of numba's own test suite say where its deferred deallocation emptied its queue: a
// replay on default:profile=numba flushes at exactly those events, with exactly those counts and
// bytes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "exchange/importer.hpp"
#include "replay/device_stack.hpp"

namespace emm::replay {
namespace {

std::vector<std::string> recordings(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
    if (file.path().filename().string().starts_with("numba")) found.push_back(file.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

trace::Trace load(const std::string& path) {
  trace::Trace trace;
  trace.set_source(path);
  auto source = format::ByteSource::open(path);
  EXPECT_TRUE(source) << describe(source.error());
  auto importer = trace::detect(**source);
  EXPECT_TRUE(importer) << describe(importer.error());
  auto counts = (*importer)->read(**source, trace, {});
  EXPECT_TRUE(counts) << describe(counts.error());
  return trace;
}

/// With what the recorded device had, as `emmctl replay --manager default:profile=numba --device
/// sim` does.
log::Summary replay(const trace::Trace& trace) {
  auto manager = find_manager("default:profile=numba");
  EXPECT_TRUE(manager) << describe(manager.error());
  StackOptions options;
  options.device = "sim";
  options.trace = &trace;
  options.manager = std::move(*manager);
  options.profile = Profile::numba;
  std::vector<std::string> said;
  auto stack = DeviceStack::create(std::move(options), &said);
  EXPECT_TRUE(stack) << describe(stack.error());
  auto summary = Engine(trace, **stack, {.verify = true}).run();
  EXPECT_TRUE(summary) << describe(summary.error());
  return *std::move(summary);
}

void expect_flushes_as_recorded(const std::string& path) {
  SCOPED_TRACE(path);
  const auto trace = load(path);

  const auto summary = replay(trace);

  ASSERT_TRUE(summary.recorded_flushes);
  EXPECT_GT(summary.recorded_flushes->recorded, 0u);
  EXPECT_EQ(summary.recorded_flushes->as_recorded, summary.recorded_flushes->recorded);
  EXPECT_EQ(summary.recorded_flushes->unrecorded, 0u);
  EXPECT_EQ(summary.recorded_flushes->first_difference, "");
  EXPECT_FALSE(found_failure(summary, false));
}

TEST(Oracle, TheConvertedRecordingsFlushWhereNumbaDid) {
  const auto found = recordings(EMM_SOURCE_DIR "/traces/numba");
  ASSERT_FALSE(found.empty());

  for (const auto& path : found) expect_flushes_as_recorded(path);
}

TEST(Oracle, TheRecordingsThemselvesFlushWhereNumbaDid) {
  const char* extra = std::getenv("EMM_EXTRA_TRACES");
  const auto found = recordings(std::filesystem::path(extra != nullptr ? extra : "") / "numba");
  if (found.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES names no folder with numba's recordings";

  for (const auto& path : found) expect_flushes_as_recorded(path);
}

}  // namespace
}  // namespace emm::replay
