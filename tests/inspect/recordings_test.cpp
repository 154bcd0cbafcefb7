// What PyTorch's own counters say of its recordings.
#include <gtest/gtest.h>

#include <string>

#include "base/text.hpp"
#include "exchange/importer.hpp"
#include "inspect/description.hpp"
#include "trace/header.hpp"

namespace emm::inspect {
namespace {

class TorchRecordings : public testing::TestWithParam<const char*> {};

/// The number that the recording has under `name`.
std::uint64_t counter(const trace::Header& header, std::string_view name) {
  const auto key = text::format("\"{}\":", name);
  const auto at = header.source_options.find(key);
  if (at == std::string::npos) return 0;
  const auto digits =
      text::trim(std::string_view(header.source_options).substr(at + key.size(), 30));
  return text::to_u64(digits.substr(0, digits.find_first_not_of("0123456789"))).value_or(0);
}

TEST_P(TorchRecordings, PeakAsTheirCountersSay) {
  const auto path = text::format("{}/traces/torch/{}", EMM_SOURCE_DIR, GetParam());
  auto source = format::ByteSource::open(path);
  ASSERT_TRUE(source);
  Recording recording;
  const auto importer = trace::detect(**source);
  ASSERT_TRUE(importer);
  ASSERT_TRUE((*importer)->read(**source, recording, {}));
  const trace::Lifetimes lifetimes(recording.trace());

  const auto found = describe(recording, lifetimes).profile;

  const auto& header = recording.trace().header();
  ASSERT_NE(counter(header, "requested_bytes.all.peak"), 0u);
  EXPECT_EQ(found.live.bytes, counter(header, "requested_bytes.all.peak"));
  ASSERT_TRUE(found.backing);
  EXPECT_EQ(found.backing->reserved.bytes, counter(header, "reserved_bytes.all.peak"));
  EXPECT_EQ(found.backing->segments_made, counter(header, "num_device_alloc"));
}

INSTANTIATE_TEST_SUITE_P(OfTheRepository, TorchRecordings,
                         testing::Values("torch_gpt2_train_varlen.jsonl.gz",
                                         "torch_resnet50_train_multires.jsonl.gz"));

}  // namespace
}  // namespace emm::inspect
