#include <unistd.h>

#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/run_files.hpp"
#include "base/text_format.hpp"
#include "format/byte_sink.hpp"
#include "format/rmm_csv.hpp"
#include "managers/adaptors/adaptor.hpp"

namespace emm {
namespace {

namespace rmm = format::rmm;

constexpr std::string_view kWho = "--adaptor logging";

/// A log file. The contexts of one device share it, as they would share RMM's resource of the
/// device. With a simulated clock, times count from 00:00:00, and threads are numbered in order of
/// appearance. Else, as in RMM, times are the local time of day, and threads have the system's
/// numbers. Any thread may call.
class RowFile {
 public:
  RowFile(const Clock* clock, std::unique_ptr<format::ByteSink> sink)
      : clock_(clock), sink_(std::move(sink)) {
    auto header = std::string(rmm::kHeader);
    header.push_back('\n');
    note(sink_->write(header));
  }

  /// Returns the file that is already open at `path`, else a new one.
  static Result<std::shared_ptr<RowFile>> open(const std::string& path, const Clock* clock) {
    static std::mutex opening;
    static std::map<std::string, std::weak_ptr<RowFile>> known;
    const std::lock_guard lock(opening);
    if (auto open = known[path].lock(); open != nullptr && open->clock_ == clock) return open;
    auto sink = format::ByteSink::open(path, kWho);
    if (!sink) return std::move(sink).error();
    auto made = std::make_shared<RowFile>(clock, *std::move(sink));
    known[path] = made;
    return made;
  }

  void flush() {
    const std::lock_guard lock(mutex_);
    note(sink_->flush());
  }
  std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

  void add(rmm::Action action, std::uint64_t pointer, std::uint64_t size, StreamHandle stream) {
    const std::lock_guard lock(mutex_);
    line_.clear();
    rmm::append(line_, {.thread = thread_number(),
                        .time_ns = time_of_day_ns(),
                        .action = action,
                        .pointer = pointer,
                        .size = size,
                        .stream = stream.value});
    note(sink_->write(line_));
  }

 private:
  bool simulated() const noexcept { return clock_->kind() == "simulated"; }

  std::uint64_t thread_number() {
    if (!simulated()) return static_cast<std::uint64_t>(gettid());
    return threads_.emplace(std::this_thread::get_id(), threads_.size()).first->second;
  }

  std::uint64_t time_of_day_ns() const noexcept {
    if (simulated()) return clock_->now_ns() % rmm::kDayNs;
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    std::tm local{};
    localtime_r(&now.tv_sec, &local);
    const auto seconds = (local.tm_hour * 60 + local.tm_min) * 60 + local.tm_sec;
    return static_cast<std::uint64_t>(seconds) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
  }

  void note(const Status& done) {
    if (!done && !error_) error_ = done.error();
  }

  const Clock* clock_;
  std::unique_ptr<format::ByteSink> sink_;
  mutable std::mutex mutex_;
  std::string line_;
  std::map<std::thread::id, std::uint64_t> threads_;
  std::optional<Error> error_;
};

/// Writes what RMM's logging_resource_adaptor writes: a row for each allocation, failure and free
/// of device and managed memory.
class LoggingAdaptor final : public Adaptor {
 public:
  LoggingAdaptor(std::unique_ptr<MemoryManager> upstream, std::shared_ptr<RowFile> rows)
      : Adaptor(std::move(upstream)), rows_(std::move(rows)) {}
  /// For a probe, which has no device: holds the output path and writes nothing.
  LoggingAdaptor(std::unique_ptr<MemoryManager> upstream, run_files::Output output)
      : Adaptor(std::move(upstream)), output_(std::move(output)) {}

  Status flush() override {
    rows_->flush();
    return Adaptor::flush();
  }

  std::string report() const override {
    auto lines = Adaptor::report();
    if (const auto error = rows_->error()) lines += text::format("logging: {}\n", describe(*error));
    return lines;
  }

 protected:
  void failed(const Request& request, const Error&) override {
    write(rmm::Action::allocate_failure, request, 0, request.stream);
  }
  void handed_out(const Allocation& allocation) override {
    write(rmm::Action::allocate, allocation.request, allocation.address, allocation.request.stream);
  }
  void ending(const Allocation& allocation, StreamHandle stream) noexcept override {
    write(rmm::Action::free, allocation.request, allocation.address, stream);
  }

 private:
  void write(rmm::Action action, const Request& request, std::uint64_t pointer,
             StreamHandle stream) {
    if (is_on_device(request.kind)) rows_->add(action, pointer, request.size, stream);
  }

  std::shared_ptr<RowFile> rows_;  ///< Null in a probe.
  run_files::Output output_;
};

// "run.csv" for device 0, "run.dev1.csv" for device 1.
std::string file_of(const std::string& path, int device) {
  if (device == 0) return path;
  const auto slash = path.rfind('/');
  const auto name = slash == std::string::npos ? 0 : slash + 1;
  const auto dot = path.find('.', name);
  const auto at = dot == std::string::npos ? path.size() : dot;
  return path.substr(0, at) + text::format(".dev{}", device) + path.substr(at);
}

Result<std::unique_ptr<MemoryManager>> make_logging(const ManagerContext& context,
                                                    std::unique_ptr<MemoryManager> upstream,
                                                    Options options) {
  constexpr std::string_view kOwner = "adaptor logging";
  const auto path = options.text("file", "");
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (path.empty())
    return fail(Errc::usage, "{}: option 'file' is missing: expected the path of the log", kOwner);
  if (context.driver == nullptr) {
    auto output = run_files::writes(file_of(path, context.shown_ordinal), kWho);
    if (!output) return std::move(output).error();
    return std::make_unique<LoggingAdaptor>(std::move(upstream), *std::move(output));
  }
  auto rows = RowFile::open(file_of(path, context.shown_ordinal), context.clock);
  if (!rows) return std::move(rows).error();
  return std::make_unique<LoggingAdaptor>(std::move(upstream), *std::move(rows));
}

}  // namespace

extern constinit const AdaptorEntry adaptors_logging_adaptor{
    .name = "logging",
    .summary = "Writes what it sees as RMM's logging adaptor does",
    .options = "file=PATH",
    .make = make_logging,
};

}  // namespace emm
