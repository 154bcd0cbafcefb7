#include "cli/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"

namespace emm::cli {

Result<std::string> make_temporary_folder(std::string_view purpose) {
  const char* const named = std::getenv("TMPDIR");
  auto folder = text::format(
      "{}/emmctl-{}-XXXXXX",
      named != nullptr && *named == '/' && std::strpbrk(named, ":;") == nullptr ? named : "/tmp",
      purpose);
  if (mkdtemp(folder.data()) == nullptr)
    return fail(Errc::io_error, "{}: {}", folder, std::strerror(errno));
  return folder;
}

}  // namespace emm::cli
