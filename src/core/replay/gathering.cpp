#include "replay/gathering.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/file_bytes.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"
#include "format/whole_file.hpp"

namespace emm {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(10);  // how late another rank's file is seen
constexpr std::size_t kNamed = 8;                      // absent ranks that a message names

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// "sim", without its options; "cuda:2".
std::string device_words(const std::string& device) {
  return device.starts_with("sim") ? std::string("sim") : text::printable(device, 24);
}

}  // namespace

Gathering::Gathering(std::string folder, const Launched& launched)
    : parent_(std::move(folder)),
      folder_(parent_ + "/launch" + launched.launch),
      rank_(launched.rank),
      world_(launched.world) {}

std::string Gathering::path_of(std::uint64_t rank, std::string_view what) const {
  return text::format("{}/rank{}.{}", folder_, rank, what);
}

Status Gathering::wait(std::uint64_t nanoseconds, const std::atomic<bool>& interrupted) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (is_there(path_of(rank_, "json"))) {
    return fail(Errc::usage, "{}: has answers of an earlier launch: expected another folder",
                folder_);
  }
  std::ofstream file(path_of(rank_, "here"));
  if (error || !file) return fail(Errc::io_error, "cannot write {}", path_of(rank_, "here"));
  file.close();
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  std::uint64_t come = 0;
  while (true) {
    while (come < world_ && is_there(path_of(come, "here"))) ++come;
    if (come == world_) return {};
    if (interrupted) return fail(Errc::interrupted, "interrupted while {}", "waiting for ranks");
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(kPoll);
  }
  std::vector<std::string> absent;
  for (auto rank = come; rank < world_ && absent.size() < kNamed; ++rank) {
    if (!is_there(path_of(rank, "here"))) absent.push_back(text::format("{}", rank));
  }
  return fail(Errc::io_error, "{}: rank {} of {} has not come in {}", folder_, text::join(absent),
              world_, units::ns(static_cast<double>(nanoseconds)));
}

Result<std::optional<std::string>> Gathering::leave(const std::string& json,
                                                    const std::string& failure) const {
  std::string text = json;
  if (json.empty()) {
    format::JsonWriter(text).begin_object().member("failure", failure).end_object();
  }
  if (auto written = format::write_whole(path_of(rank_, "json"), text, "--ranks"); !written)
    return written.error();
  for (std::uint64_t rank = 0; rank < world_; ++rank) {
    if (!is_there(path_of(rank, "json"))) return std::optional<std::string>();
  }
  // Several processes may see that all are there. O_EXCL lets one of them return the table.
  const int file = open((folder_ + "/told").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return std::optional<std::string>();
  close(file);
  return std::optional(table());
}

std::string Gathering::table() const {
  std::vector<std::vector<std::string>> rows{{"rank", "trace", "manager", "device", "peak live",
                                              "reserved", "failures", "ns an event", ""}};
  std::uint64_t served = 0;
  for (std::uint64_t rank = 0; rank < world_; ++rank) {
    const auto path = path_of(rank, "json");
    const auto text = format::file_bytes(path, nullptr);
    const auto json =
        text ? format::parse_json(*text, path) : Result<format::JsonValue>(text.error());
    const auto number = text::format("{}", rank);
    const auto failure = json ? text_of(*json, "failure") : describe(json.error());
    if (!failure.empty()) {
      rows.push_back({number, "-", "-", "-", "-", "-", "-", "-", text::printable(failure, 200)});
      continue;
    }
    const auto failures = count_of(*json, "failures");
    const auto* time = json->find("ns_per_event");
    served += failures == 0 ? 1 : 0;
    const auto trace = text_of(*json, "trace");
    rows.push_back({number, text::printable(trace.substr(trace.rfind('/') + 1), 60),
                    text::printable(text_of(*json, "manager"), 60),
                    device_words(text_of(*json, "device")),
                    units::bytes(count_of(*json, "peak_live_bytes")),
                    units::bytes(count_of(*json, "peak_reserved_bytes")), text::grouped(failures),
                    time != nullptr ? text::fixed(time->as_double().value_or(0), 1) : "-",
                    failures == 0 ? "served" : "not served"});
  }
  return text::format("{} of {} ranks served\n", served, world_) +
         format::columns("rlllrrrrl", rows);
}

void Gathering::remove() const {
  std::error_code error;
  fs::remove_all(folder_, error);
  fs::remove(parent_, error);  // if it is empty
}

}  // namespace emm
