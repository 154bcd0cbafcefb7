#include "plugin/standin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>

#include "base/host_memory.hpp"

namespace emm::plugin {
namespace {

// Beside the program: in a build folder, and as installed.
constexpr std::array kPlaces{"../standin/", "../lib/emmctl/standin/"};

}  // namespace

std::string folder_of_program() {
  std::array<char, 4096> path;
  const auto length = readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1);
}

std::string StandIns::folder() {
  for (const auto* place : kPlaces) {
    auto folder = folder_of_program() + place;
    if (access((folder + "libcuda.so.1").c_str(), F_OK) == 0) return folder;
  }
  return {};
}

std::optional<StandIns> StandIns::load() {
  for (const auto* place : kPlaces) {
    const auto folder = folder_of_program() + place;
    // A library that needs libcuda.so.1 then gets this one, because the loader matches sonames.
    void* libcuda =
        open_shared_object((folder + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL).handle;
    if (libcuda == nullptr) continue;
    const auto cudart = folder + "libcudart.so.13";
    if (open_shared_object(cudart.c_str(), RTLD_NOW | RTLD_LOCAL).handle == nullptr) continue;
    auto* tap = reinterpret_cast<void (*)(CallHook*)>(dlsym(libcuda, "emm_standin_tap"));
    auto* asked =
        reinterpret_cast<std::uint64_t (*)()>(dlsym(libcuda, "emm_standin_asked_for_tables"));
    auto* strays = reinterpret_cast<std::uint64_t (*)()>(dlsym(libcuda, "emm_standin_strays"));
    if (tap != nullptr && asked != nullptr && strays != nullptr)
      return StandIns(tap, asked, strays);
  }
  return std::nullopt;
}

}  // namespace emm::plugin
