#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "conformance/suite.hpp"

namespace emm::cli {

/// Does `manager`, as --manager takes it, come from a shared object?
bool is_foreign(std::string_view manager) noexcept;

/// Judges each clause in a child process: a crash, an exit, a damaged heap and a clause that takes
/// longer than `deadline` are failures of the clause that say so, with what the child last wrote.
conformance::Judge judge_apart(std::chrono::milliseconds deadline);

/// Can `device`, as --device takes it, be opened? Asked in a child, because a driver that was
/// started here would not work in one.
Status device_opens_apart(const std::string& device);

}  // namespace emm::cli
