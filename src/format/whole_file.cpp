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
#include "base/text.hpp"

namespace emm::format {
namespace {

/// The file that a path means, where another may take its place.
std::optional<std::string> replaceable(const std::string& path, struct stat& old) {
  struct stat link {};
  if (path == "-" || path.starts_with("/dev/") || run_files::descriptor_named(path)) return std::nullopt;
  if (lstat(path.c_str(), &link) != 0) return path;  // there is none, or no folder for it
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
  WholeFile(std::unique_ptr<ByteSink> to, std::string beside, std::string file,
            run_files::Output output)
      : output_(std::move(output)),
        to_(std::move(to)),
        beside_(std::move(beside)),
        file_(std::move(file)) {}
  ~WholeFile() override {
    to_.reset();
    if (!closed_) unlink(beside_.c_str());
  }

  const std::string& name() const noexcept override { return to_->name(); }
  Status write(std::string_view record) override { return to_->write(record); }
  Status flush() override { return to_->flush(); }
  Status close() override {
    if (closed_) return {};
    if (auto done = to_->close(); !done) return done;
    if (std::rename(beside_.c_str(), file_.c_str()) != 0) {
      auto refused = fail(Errc::io_error, "cannot write {}: {}", name(),
                          std::generic_category().message(errno));
      run_files::note_write_error(refused);
      return refused;
    }
    closed_ = true;
    return {};
  }

 private:
  run_files::Output output_;
  std::unique_ptr<ByteSink> to_;
  const std::string beside_, file_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSink>> open_whole(const std::string& path, std::string_view who) {
  static std::atomic<unsigned> count{0};
  struct stat old {};
  const auto file = replaceable(path, old);
  if (!file) return ByteSink::open(path, who);
  auto output = run_files::writes(path, who);
  if (!output) return std::move(output).error();
  const auto folder = file->substr(0, file->rfind('/') + 1);  // of no slash: npos + 1 is 0
  auto beside = text::format("{}.emmctl-{}-{}", folder, getpid(), count++);
  auto to = ByteSink::open_as(beside, path);
  if (!to) {
    *output = {};
    return ByteSink::open(path, who);
  }
  if (old.st_nlink != 0) chmod(beside.c_str(), old.st_mode & 07777);
  return std::make_unique<WholeFile>(*std::move(to), std::move(beside), *file, *std::move(output));
}

}  // namespace emm::format
