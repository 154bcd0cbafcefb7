#include "format/whole_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/run_files.hpp"
#include "base/text_format.hpp"
#include "base/unfinished.hpp"

namespace emm::format {
namespace {

/// The regular file that the path names, if a new file may replace it; nothing otherwise.
std::optional<std::string> replaceable(const std::string& path, struct stat& old) {
  struct stat link {};
  if (path == "-" || path.starts_with("/dev/") || run_files::descriptor_named(path))
    return std::nullopt;
  if (lstat(path.c_str(), &link) != 0) return path;  // no such file, or no such folder
  if (stat(path.c_str(), &old) != 0 || !S_ISREG(old.st_mode) || old.st_nlink != 1 ||
      old.st_uid != geteuid() || access(path.c_str(), W_OK) != 0) {
    return std::nullopt;
  }
  std::error_code none;
  const auto file = std::filesystem::canonical(path, none);
  return none ? std::nullopt : std::optional(file.string());
}

class WholeFile final : public ByteSink {
 public:
  WholeFile(std::unique_ptr<ByteSink> to, std::unique_ptr<Unfinished> beside, std::string file,
            run_files::Output output)
      : output_(std::move(output)),
        beside_(std::move(beside)),
        to_(std::move(to)),
        file_(std::move(file)) {}

  const std::string& name() const noexcept override { return to_->name(); }
  Status write(std::string_view record) override { return to_->write(record); }
  Status flush() override { return to_->flush(); }
  Status close() override {
    if (beside_->is_whole()) return {};
    if (auto done = to_->close(); !done) return done;
    if (std::rename(beside_->path().c_str(), file_.c_str()) != 0) {
      auto refused = fail(Errc::io_error, "cannot write {}: {}", name(),
                          std::generic_category().message(errno));
      run_files::note_write_error(refused);
      return refused;
    }
    beside_->set_whole();
    return {};
  }

 private:
  run_files::Output output_;
  std::unique_ptr<Unfinished> beside_;
  std::unique_ptr<ByteSink> to_;  // after beside_, so that the file is closed before it is unlinked
  const std::string file_;
};

}  // namespace

Result<std::unique_ptr<ByteSink>> open_whole(const std::string& path, std::string_view who) {
  static std::atomic<unsigned> count{0};
  struct stat old {};
  const auto file = replaceable(path, old);
  if (!file) return ByteSink::open(path, who);
  auto output = run_files::writes(path, who);
  if (!output) return std::move(output).error();
  const auto folder = file->substr(0, file->rfind('/') + 1);  // without a slash npos + 1 is 0
  auto beside =
      std::make_unique<Unfinished>(text::format("{}.emmctl-{}-{}", folder, getpid(), count++));
  auto to = ByteSink::open_as(beside->path(), path);
  if (!to) {
    *output = {};
    return ByteSink::open(path, who);
  }
  if (old.st_nlink != 0) chmod(beside->path().c_str(), old.st_mode & 07777);
  return std::make_unique<WholeFile>(*std::move(to), std::move(beside), *file, *std::move(output));
}

Status write_whole(const std::string& path, std::string_view text, std::string_view who) {
  auto sink = open_whole(path, who);
  if (!sink) return std::move(sink).error();
  if (auto written = (*sink)->write(text); !written) return written;
  return (*sink)->close();
}

}  // namespace emm::format
