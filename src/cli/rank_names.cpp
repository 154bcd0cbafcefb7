#include "cli/rank_names.hpp"

#include <optional>

#include "base/launcher.hpp"
#include "base/text_format.hpp"

namespace emm::cli {
namespace {

bool rank_named = false;

}  // namespace

Status name_rank(std::string& path) {
  for (const std::string_view hole : {"{rank}", "{local_rank}", "{world}"}) {
    for (auto at = path.find(hole); at != std::string::npos; at = path.find(hole)) {
      const auto found = launched();
      std::optional<std::uint64_t> number;
      if (found && hole == "{rank}") number = found->rank;
      if (found && hole == "{local_rank}") number = found->local_rank;
      if (found && hole == "{world}" && found->world != 0) number = found->world;
      if (!number) {
        return fail(Errc::usage,
                    "{}: no launcher told {}: expected the variables of srun, mpirun or torchrun",
                    path, hole.substr(1, hole.size() - 2));
      }
      path.replace(at, hole.size(), text::format("{}", *number));
      rank_named = true;
    }
  }
  return {};
}

bool rank_was_named() noexcept { return rank_named; }

}  // namespace emm::cli
