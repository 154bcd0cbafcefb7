#include "libemm/exported_manager.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "plugin/abi.hpp"

namespace emm::libemm {
namespace {

constexpr std::string_view kOwner = "libemm";

Result<const ManagerEntry*> entry_named(const std::string& name) {
  if (const auto* entry = find_entry(name)) return entry;
  std::vector<std::string_view> names;
  for (const auto* entry : bundled_managers()) names.push_back(entry->name);
  return fail(Errc::usage, "{}: option 'name' is '{}': expected one of {}", kOwner, name,
              text::join(names));
}

/// Turns "sim;capacity=8GiB;devices=2" into "sim:capacity=8GiB,devices=2". Inside a plugin's
/// options a device must not have a comma.
std::string device_spec(std::string given) {
  const auto first = given.find(';');
  if (first == std::string::npos) return given;
  std::replace(given.begin(), given.end(), ';', ',');
  given[first] = ':';
  return given;
}

}  // namespace

Result<std::unique_ptr<ExportedManager>> ExportedManager::create(const emm_create_v1& given) {
  const auto create = plugin::as_known_here(given);
  auto options = Options::parse(create.options != nullptr ? create.options : "");
  if (!options) return fail(Errc::usage, "{}: {}", kOwner, describe(options.error()));
  const auto entry = entry_named(options->text("name", ""));
  if (!entry) return entry.error();
  const auto device = device_spec(options->text("open", "cuda"));

  std::unique_ptr<ExportedManager> made(new ExportedManager);
  ManagerContext context{.profile = (create.flags & EMM_CREATE_PROFILE_NUMBA) != 0
                                        ? Profile::numba
                                        : Profile::standard,
                         .shown_ordinal = create.device};
  if (create.host != nullptr) {
    const auto host = plugin::as_known_here(*create.host);
    context.clock = &made->clock_.emplace(host);
    context.observer = &made->observer_.emplace(host);
  }
  if (create.driver != nullptr) {
    context.driver = &made->driver_.emplace(*create.driver);
    if (auto& runtime = made->runtime_.emplace(*create.driver); runtime.is_there())
      context.runtime = &runtime;
  } else if ((create.flags & EMM_CREATE_PROBE) == 0) {
    if (auto opened = made->open(device, create.device); !opened) return opened.error();
    context.driver = made->opened_.driver.get();
    context.runtime = made->opened_.runtime.get();
    context.clock = &made->platform_->clock();
  }
  auto manager = (*entry)->make(context, *std::move(options));
  if (!manager) return std::move(manager).error();
  made->manager_ = *std::move(manager);
  return made;
}

Status ExportedManager::open(const std::string& device, int ordinal) {
  auto platform = open_platform(device, {.capacity = 0, .devices = ordinal + 1});
  if (!platform) return std::move(platform).error();
  platform_ = *std::move(platform);
  auto opened = platform_->open(ordinal);
  if (!opened) return std::move(opened).error();
  opened_ = *std::move(opened);
  return {};
}

ExportedManager::~ExportedManager() {
  guard_ = {};
  manager_.reset();  // lifetimes in held_ that end after this do nothing
}

Status ExportedManager::not_alive(emm_token token) {
  wrong_frees_.add(WrongFrees::Kind::not_alive);
  return Error{
      .code = Errc::dead_pointer,
      .message = text::format("token {} {}", text::hex(token),
                              held_.was_held(token) ? "was freed before" : "was never handed out")};
}

bool ExportedManager::is_idle() {
  const std::lock_guard lock(mutex_);
  return deferred_ == 0 && held_.is_empty();
}

void ExportedManager::defer_cleanup() {
  auto guard = manager_->defer_cleanup();
  const std::lock_guard lock(mutex_);
  if (deferred_++ == 0) guard_ = std::move(guard);
}

void ExportedManager::end_defer_cleanup() {
  DeferCleanup last;
  const std::lock_guard lock(mutex_);
  if (deferred_ == 0) return;
  if (--deferred_ == 0) last = std::move(guard_);
}

}  // namespace emm::libemm
