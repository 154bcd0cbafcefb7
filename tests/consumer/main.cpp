#include <cstdio>

#include "emm/context.hpp"
#include "emm/selection.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"

namespace {

struct Requests final : emm::trace::OperationSink {
  unsigned count = 0;
  emm::Status on_header(const emm::trace::Header&) override { return {}; }
  emm::Status on_operation(const emm::trace::Operation&) override {
    ++count;
    return {};
  }
};

}  // namespace

int main(int argc, char** argv) {
  auto platform = emm::open_platform("sim:capacity=64MiB", {});
  if (!platform) return 1;
  auto device = (*platform)->open(0);
  auto manager = emm::find_manager("pool");
  if (!device || !manager) return 1;
  auto context = emm::Context::create(*device, (*platform)->clock(), *manager);
  if (!context) return 1;
  auto memory = (*context)->memalloc(4096);
  if (!memory || argc < 2) return 1;
  auto file = emm::format::ByteSource::open(argv[1], {});
  Requests requests;
  if (!file || !emm::trace::read(**file, requests)) return 1;
  std::printf("%llu bytes, %u operations\n", static_cast<unsigned long long>(memory->size()),
              requests.count);
}
