// Snapshots of torch.cuda.memory._dump_snapshot(): a pickle of plain data.
#include <string_view>
#include <utility>

#include "format/pickle.hpp"
#include "trace/importer.hpp"
#include "trace/importers/import_run.hpp"
#include "trace/importers/torch_pickle_import.hpp"

namespace emm {
namespace {

using namespace trace;

int sniff_torch_pickle(std::string_view prefix) {
  if (prefix.size() < 3 || prefix[0] != '\x80' || prefix[1] < 2 || prefix[1] > 5) return 0;
  const auto says = [&](std::string_view word) {
    return prefix.find(word) != std::string_view::npos;
  };
  return says("device_traces") || says("segment_type") || says("segments") ? 95 : 60;
}

Result<ImportCounts> read_snapshot(format::ByteSource& source, OperationSink& sink,
                                   const ImportOptions& options) {
  auto pickle = format::read_pickle(source, {.partial = options.partial});
  if (!pickle) return std::move(pickle).error();
  ImportRun run(source, sink, options);
  return TorchPickleImport(*pickle, run).read();
}

}  // namespace

extern constinit const Importer torch_pickle_importer{
    .name = "torch-pickle",
    .summary = "PyTorch snapshots, as torch.cuda.memory._dump_snapshot writes them since 2.0",
    .from_documentation = false,
    .sniff = sniff_torch_pickle,
    .read = read_snapshot,
};

}  // namespace emm
