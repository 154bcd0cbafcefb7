#include "cli/judge_apart.hpp"

#include <algorithm>

#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "plugin/child.hpp"

namespace emm::cli {

using conformance::Verdict;

bool is_foreign(std::string_view manager) noexcept {
  const auto known = bundled_managers();
  return std::none_of(known.begin(), known.end(), [&](const auto* entry) {
    return entry->name == manager.substr(0, manager.find(':'));
  });
}

conformance::Judge judge_apart(std::chrono::milliseconds deadline) {
  return [deadline](const conformance::Clause& clause,
                    const conformance::Subject& subject) -> Verdict {
    const auto end = plugin::run_in_child(
        deadline, [&] { return conformance::judge(clause, subject).to_bytes(); });
    if (!end) return {.kind = Verdict::Kind::inconclusive, .words = describe(end.error())};
    if (end->kind != plugin::ChildEnd::Kind::answered) {
      return {.kind = Verdict::Kind::fail,
              .words = "the clause was run in a process of its own",
              .seen = plugin::describe(*end, deadline),
              .expected = "an end without harm",
              .calls = end->said};
    }
    auto verdict = Verdict::from_bytes(end->bytes);
    if (!verdict) return {.kind = Verdict::Kind::inconclusive, .words = describe(verdict.error())};
    return *std::move(verdict);
  };
}

Status device_opens_apart(const std::string& device) {
  constexpr std::chrono::seconds kDeadline{60};
  const auto end = plugin::run_in_child(kDeadline, [&] {
    const auto opened = open_platform(device, {});
    return opened ? std::string()
                  : static_cast<char>(opened.error().code) + describe(opened.error());
  });
  if (!end) return end.error();
  if (end->kind != plugin::ChildEnd::Kind::answered) {
    const auto why = plugin::describe(*end, kDeadline);
    return Error{.code = Errc::no_device, .message = text::format("--device {}: {}", device, why)};
  }
  if (end->bytes.empty()) return {};
  return Error{.code = static_cast<Errc>(end->bytes[0]), .message = end->bytes.substr(1)};
}

}  // namespace emm::cli
