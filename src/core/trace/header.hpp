#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/op.hpp"

namespace emm::trace {

struct DeviceInfo {
  std::uint32_t id = 0;
  std::string name, uuid;
  std::uint64_t capacity = 0, free_at_start = 0, granularity = 0, alignment = 0;  ///< 0: unknown.
  bool operator==(const DeviceInfo&) const = default;
};

/// The framework of torch.profiler's traces: PyTorch, whose settings they do not tell.
inline constexpr std::string_view kTorchProfiler = "PyTorch profiler";

/// The header of a trace. Empty strings and 0 mean "unknown", except for `complete`.
struct Header {
  int minor = 0;  ///< The version is "1.<minor>".
  std::vector<std::string> requires_;
  std::string name, description;
  Level level = Level::unknown;
  bool complete = true, has_complete = false;
  std::string clock_source, boot_id;
  std::uint64_t clock_start_ns = 0, clock_start_realtime_ns = 0;
  bool has_clock = false;
  std::string tool, tool_version, framework, command, host, os;
  std::string source_options;  ///< JSON text of source.options, an object, or empty.
  std::int64_t driver_version = -1, cupti_version = -1;  ///< -1: unknown.
  std::vector<DeviceInfo> devices;
  std::string default_context, default_thread,
      default_process;  ///< As text; a number is spelled in digits.
  std::int64_t default_device = -1;
  Outcome default_expect = Outcome::none;
  std::string extensions;  ///< JSON text of the "x-" members, without braces.
  bool operator==(const Header&) const = default;
};

}  // namespace emm::trace
