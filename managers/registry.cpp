#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "plugin/imported_manager.hpp"
#include "unprobed_manager.hpp"

namespace emm {
namespace {

template <class Entry>
struct Chosen {
  const Entry* entry = nullptr;
  Options options;
};

/// What follows "no manager 'NAME'".
template <class Entry>
std::string known_or_meant(std::string_view name, std::span<const Entry* const> known) {
  std::vector<std::string_view> names;
  for (const auto* entry : known) names.push_back(entry->name);
  if (const auto meant = text::nearest(name, names.data(), names.size()))
    return text::format(", did you mean {}", *meant);
  return ": known are " + text::join(names);
}

// "NAME[:key=value,...]". `family` is "manager" or "adaptor".
template <class Entry>
Result<Chosen<Entry>> choose(std::string_view family, std::string_view spec,
                             std::span<const Entry* const> known) {
  const auto colon = spec.find(':');
  const auto name = spec.substr(0, colon);
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const Entry* entry) { return entry->name == name; });
  if (found == known.end()) {
    return fail(Errc::usage, "no {} '{}'{}", family, name, known_or_meant(name, known));
  }
  auto options =
      Options::parse(colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1));
  if (!options) return fail(Errc::usage, "{} {}: {}", family, name, describe(options.error()));
  return Chosen<Entry>{.entry = *found, .options = *std::move(options)};
}

// Finds a bundled manager, else one in a shared object.
Result<ManagerFactory> find_base(std::string_view spec) {
  if (find_entry(spec) != nullptr) {
    auto chosen = choose("manager", spec, bundled_managers());
    if (!chosen) return std::move(chosen).error();
    return ManagerFactory{.name = std::string(spec),
                          .make = [base = *std::move(chosen)](const ManagerContext& context) {
                            return base.entry->make(context, base.options);
                          }};
  }
  auto plugin = plugin::find_plugin(spec);
  if (plugin || plugin.error().code != Errc::not_found) return plugin;
  const auto& tried = plugin.error().message;
  const auto name = spec.substr(0, spec.find(':'));
  const bool by_name = !name.empty() && tried.starts_with(plugin::library_names(name).front()) &&
                       !plugin::is_path(name);
  return fail(
      Errc::usage, "no manager '{}'{}{}{}", spec,
      known_or_meant(by_name ? name : std::string_view(), bundled_managers()),
      tried.empty() ? "" : "; tried " + tried,
      by_name ? text::format("; a file is named with a slash, as ./{}, or ends in .so", name) : "");
}

}  // namespace

std::string_view name(Promise promise) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"any", "host-only", "default"};
  return kNames[static_cast<std::size_t>(promise)];
}

namespace {

/// Answers whether `spec` is "cupy:LIBRARY,MALLOC,FREE", two functions of a library, and not the
/// bundled model "cupy". It is if a path, not an option, follows the colon.
bool is_pair_of_functions(std::string_view spec) noexcept {
  if (!spec.starts_with("cupy:")) return false;
  const auto first = spec.substr(5, spec.find(',') - 5);
  return first.find('/') != std::string_view::npos || first.ends_with(".so") ||
         (!first.empty() && first.find('=') == std::string_view::npos);
}

}  // namespace

const ManagerEntry* find_entry(std::string_view spec) noexcept {
  if (is_pair_of_functions(spec)) return nullptr;
  for (const auto* entry : bundled_managers()) {
    if (entry->name == spec.substr(0, spec.find(':'))) return entry;
  }
  return nullptr;
}

std::string_view preallocated(std::string_view spec) noexcept {
  const auto* entry = find_entry(spec);
  if (entry == nullptr) return {};
  for (const auto option : entry->preallocation.unless) {
    if (!option.empty() && spec.find(option) != spec.npos) return {};
  }
  return entry->preallocation.what;
}

std::vector<std::string> judged_specs(const ManagerEntry& entry) {
  std::vector<std::string> specs{std::string(entry.name)};
  for (const auto variant : entry.variants) {
    if (!variant.empty()) specs.push_back(text::format("{}:{}", entry.name, variant));
  }
  return specs;
}

Result<ManagerFactory> unprobed_manager(std::string_view spec,
                                        std::span<const std::string> adaptors) {
  auto manager = find_base(spec);
  if (!manager) return std::move(manager).error();
  std::vector<Chosen<AdaptorEntry>> over;
  for (const auto& adaptor : adaptors) {
    auto chosen = choose("adaptor", adaptor, bundled_adaptors());
    if (!chosen) return std::move(chosen).error();
    over.push_back(*std::move(chosen));
  }
  return ManagerFactory{
      .name = std::string(spec),
      .make = [base = *std::move(manager), over = std::move(over)](const ManagerContext& context) {
        auto made = base.make(context);
        for (const auto& adaptor : over) {
          if (!made) break;
          made = adaptor.entry->make(context, *std::move(made), adaptor.options);
        }
        return made;
      }};
}

Result<ManagerFactory> find_manager(std::string_view spec, std::span<const std::string> adaptors) {
  auto factory = unprobed_manager(spec, adaptors);
  if (!factory) return factory;
  if (auto probe = factory->make({}); !probe) return std::move(probe).error();
  return factory;
}

}  // namespace emm
