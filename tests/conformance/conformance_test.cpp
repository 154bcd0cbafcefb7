#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "conformance/suite.hpp"

namespace emm::conformance {
namespace {

Subject subject_of(const std::string& spec) {
  auto factory = find_manager(spec);
  EXPECT_TRUE(factory) << describe(factory.error());
  Subject subject{.manager = spec, .factory = *std::move(factory), .promise = promise_of(spec)};
  if (spec.find("profile=numba") != std::string::npos) subject.profile = Profile::numba;
  return subject;
}

class EveryBundledManager : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryBundledManager, FailsNoClause) {
  const auto subject = subject_of(GetParam());

#ifdef EMM_THREAD_SANITIZER
  // The other clauses use one thread, and take minutes under ThreadSanitizer.
  const Selection selection{.globs = {"threads/*", "*/threads", "suite/cross_*", "deferral/*",
                                      "reset/*", "ERR-*", "PD-*", "RST-*"}};
  constexpr std::size_t kLeast = 15;
#else
  const Selection selection{};
  constexpr std::size_t kLeast = 30;
#endif
  const auto report = run_suite(subject, selection);

  EXPECT_EQ(report.count(Verdict::Kind::fail), 0u) << to_text(report);
  EXPECT_EQ(report.count(Verdict::Kind::inconclusive), 0u) << to_text(report);
  EXPECT_GT(report.count(Verdict::Kind::pass), kLeast);
}

// In this process, for the sanitizers. The test conformance.table judges them all by the command,
// with their variants.
std::vector<std::string> all_judged_specs() {
#ifdef EMM_THREAD_SANITIZER
  std::vector<std::string> all;
  for (const auto* entry : bundled_managers()) all.emplace_back(entry->name);
  return all;
#else
  return {"default", "pool", "pytorch"};
#endif
}

/// Three suites, since ctest runs each in a process of its own: the sanitizers make them slow.
std::vector<std::string> third_of_specs(std::size_t third) {
  const auto all = all_judged_specs();
  std::vector<std::string> some;
  for (std::size_t i = third; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}
/// Options under which a right manager once failed a clause.
TEST(Suite, FailsNoManagerForAnOptionOfIts) {
  struct Asked {
    std::string manager, clause;
  };
  for (const auto& [manager, clause] :
       {Asked{"pool:initial=32MiB", "RST-8"}, Asked{"pool:release_threshold=0", "ERR-6"},
        Asked{"async:max=96MiB", "suite/limit"}, Asked{"pytorch:fraction=0.5", "suite/serves"},
        Asked{"pytorch:fraction=0.1", "suite/large"},
        Asked{"pytorch:fraction=0.5", "suite/beyond_4GiB"},
        Asked{"cupy:limit=96MiB", "suite/limit"}}) {
    const auto report = run_suite(subject_of(manager), {.globs = {clause}});

    EXPECT_EQ(report.count(Verdict::Kind::fail), 0u) << manager << to_text(report);
  }
}

INSTANTIATE_TEST_SUITE_P(First, EveryBundledManager, ::testing::ValuesIn(third_of_specs(0)));
INSTANTIATE_TEST_SUITE_P(Second, EveryBundledManager, ::testing::ValuesIn(third_of_specs(1)));
INSTANTIATE_TEST_SUITE_P(Third, EveryBundledManager, ::testing::ValuesIn(third_of_specs(2)));

/// The clauses that comments of tests/emm name: `// CTX-1 to CTX-6, IPC-7`.
std::vector<std::string> clauses_of_own_tests() {
  std::vector<std::string> ids;
  for (const auto& file : std::filesystem::directory_iterator(EMM_SOURCE_DIR "/tests/emm")) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("TEST")) continue;
      static const std::regex kIds("([A-Z]+)-([0-9]+)(?: to [A-Z]+-([0-9]+))?");
      const auto comment = line.substr(std::min(line.find("//"), line.size()));
      for (auto at = std::sregex_iterator(comment.begin(), comment.end(), kIds);
           at != std::sregex_iterator(); ++at) {
        const auto last = std::stoi((*at)[3].matched ? (*at)[3].str() : (*at)[2].str());
        for (int i = std::stoi((*at)[2].str()); i <= last; ++i)
          ids.push_back((*at)[1].str() + "-" + std::to_string(i));
      }
    }
  }
  return ids;
}

TEST(Catalogue, HoldsEveryClauseOfTheContractOnce) {
  const std::map<std::string, int> kSections{
      {"SEL", 17}, {"BASE", 10}, {"CTX", 15}, {"INI", 6}, {"DEV", 12}, {"HST", 11},
      {"PIN", 10}, {"MAN", 6},   {"PD", 18},  {"DFR", 9}, {"RST", 13}, {"INF", 7},
      {"PTR", 23}, {"IPC", 21},  {"OBJ", 6},  {"ARR", 8}, {"ERR", 8}};
  std::map<std::string, std::set<std::string>> listed;
  std::size_t count = 0;
  const auto list = [&](std::string_view id) {
    const auto dash = id.find('-');
    if (dash == std::string_view::npos) return;  // beyond the catalogue
    listed[std::string(id.substr(0, dash))].insert(std::string(id));
    ++count;
  };

  for (const auto* group : clause_groups()) {
    for (const auto& clause : group->clauses) list(clause.id);
  }
  for (const auto& clause : unjudged_clauses()) list(clause.id);
  // What emmctl's own context, pointers, IPC and selection promise, no manager is asked: a test of
  // theirs names the clause.
  for (const auto& id : clauses_of_own_tests()) {
    const auto dash = id.find('-');
    if (listed[id.substr(0, dash)].count(id) == 0) list(id);
  }

  EXPECT_EQ(count, 200u);
  for (const auto& [section, size] : kSections) {
    ASSERT_EQ(listed[section].size(), static_cast<std::size_t>(size)) << section;
    for (int i = 1; i <= size; ++i)
      EXPECT_EQ(listed[section].count(section + "-" + std::to_string(i)), 1u) << section << i;
  }
}

TEST(Verdict, GoesThroughBytesAndComesBackTheSame) {
  const Verdict verdict{
      .kind = Verdict::Kind::fail, .words = "a:b", .seen = "", .expected = "3:", .calls = "x\ny\n"};

  const auto back = Verdict::from_bytes(verdict.to_bytes());

  ASSERT_TRUE(back);
  EXPECT_EQ(*back, verdict);
}

TEST(Verdict, RefusesBytesThatAreTornAnywhere) {
  const auto bytes =
      Verdict{.kind = Verdict::Kind::inconclusive, .words = "why", .trace = "{}"}.to_bytes();

  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(Verdict::from_bytes(bytes.substr(0, size))) << size;
  EXPECT_FALSE(Verdict::from_bytes(bytes + "x"));
}

TEST(Glob, NamesClauses) {
  EXPECT_TRUE(matches("PD-*", "PD-11"));
  EXPECT_TRUE(matches("*/overlap_*", "live/overlap_content"));
  EXPECT_TRUE(matches("PD-?", "PD-3"));
  EXPECT_FALSE(matches("PD-?", "PD-11"));
  EXPECT_FALSE(matches("PD", "PD-1"));
  EXPECT_TRUE(matches("*", ""));
}

TEST(Suite, JudgesTheSameWithTheSameSeed) {
  auto subject = subject_of("pool");
  subject.seed = 7;

  const auto once = to_json(run_suite(subject, {.globs = {"suite/random", "live/*", "PD-*"}}));

  EXPECT_EQ(to_json(run_suite(subject, {.globs = {"suite/random", "live/*", "PD-*"}})), once);
}

}  // namespace
}  // namespace emm::conformance
