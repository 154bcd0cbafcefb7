// Every bundled manager through libemm.so, which stands on the host's device by the driver table,
// does to every trace what it does without.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "exchange/importer.hpp"
#include "log/writer.hpp"
#include "replay/device_stack.hpp"

namespace emm::plugin {
namespace {

/// The summary and the log of a replay. Pins are of this process's own memory, whose addresses are
/// nobody's business.
struct Outcome {
  std::string summary, log;
};

void without_pins(std::string& log) {
  std::string kept;
  for (std::size_t at = 0; at < log.size();) {
    const auto end = log.find('\n', at) + 1;
    const auto line = std::string_view(log).substr(at, end - at);
    if (line.find(",mempin,") == line.npos) kept += line;
    at = end;
  }
  log = kept;
}

Outcome replay(const trace::Trace& trace, const std::string& manager, Profile profile) {
  auto found = find_manager(manager);
  EXPECT_TRUE(found) << describe(found.error());
  found->name = "the manager";
  StackOptions options;
  options.device = "sim";
  options.trace = &trace;
  options.manager = *std::move(found);
  options.profile = profile;
  options.peer_program = EMMCTL;
  std::vector<std::string> said;
  auto stack = DeviceStack::create(std::move(options), &said);
  EXPECT_TRUE(stack) << describe(stack.error());

  Outcome outcome;
  const auto* entry = *std::find_if(log::bundled_logs().begin(), log::bundled_logs().end(),
                                    [](const auto* one) { return one->name == "emm"; });
  auto writer = entry->make(format::ByteSink::to_string(outcome.log), trace, -1, {});
  EXPECT_TRUE(writer) << describe(writer.error());
  auto summary = replay::Engine(trace, **stack, {.verify = true}, writer->get()).run();
  EXPECT_TRUE(summary) << describe(summary.error());
  EXPECT_TRUE((*writer)->finish());
  outcome.summary = log::to_json(*summary) + summary->reports;
  without_pins(outcome.log);
  return outcome;
}

/// libemm adds the state of its manager to the words of a request that found no memory.
std::string without_state(std::string summary) {
  return std::regex_replace(summary, std::regex("; live [^\"]*, active [^\"]*\""), "\"");
}

class RoundTrip : public testing::TestWithParam<const ManagerEntry*> {};

const auto every_manager = testing::ValuesIn(bundled_managers().begin(), bundled_managers().end());
std::string name_of(const testing::TestParamInfo<const ManagerEntry*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Bundled, RoundTrip, every_manager, name_of);

TEST_P(RoundTrip, DoesToEveryBasicTraceWhatTheManagerDoes) {
  const std::string name(GetParam()->name);
  std::size_t replayed = 0;
  for (const auto& file : std::filesystem::directory_iterator(EMM_SOURCE_DIR "/traces/basics")) {
    SCOPED_TRACE(file.path());
    trace::Trace trace;
    trace.set_source(file.path());
    auto source = format::ByteSource::open(file.path());
    ASSERT_TRUE(source) << describe(source.error());
    ASSERT_TRUE((*trace::detect(**source))->read(**source, trace, {}));

    const auto direct = replay(trace, name, Profile::standard);
    const auto through = replay(trace, LIBEMM ":name=" + name, Profile::standard);

    EXPECT_EQ(without_state(through.summary), direct.summary);
    EXPECT_EQ(through.log, direct.log);
    ++replayed;
  }
  EXPECT_GT(replayed, 20u);
}

#if EMM_LONG
class Promises : public RoundTrip {};
INSTANTIATE_TEST_SUITE_P(Bundled, Promises, every_manager, name_of);

TEST_P(Promises, AreKept) {
  for (auto spec : judged_specs(*GetParam())) {
    if (spec.find("profile=") != std::string::npos) continue;  // through the C ABI all are standard
    std::replace(spec.begin(), spec.end(), ':', ',');
    const auto command = text::format("{} conformance --manager {}:name={} --as {} --device sim",
                                      EMMCTL, LIBEMM, spec, name(GetParam()->promise));
    auto* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string printed;
    for (int letter = 0; (letter = std::fgetc(pipe)) != EOF;) printed += static_cast<char>(letter);
    pclose(pipe);

    EXPECT_NE(printed.find(" passed, 0 failed"), std::string::npos) << spec << ": " << printed;
  }
}
#endif

}  // namespace
}  // namespace emm::plugin
