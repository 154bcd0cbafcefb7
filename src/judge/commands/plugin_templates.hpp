#pragma once

#include <span>
#include <string_view>

namespace emm::cli {

/// A file of tools/plugin, which `emmctl plugin new` writes. NAME in it is replaced by the plugin's
/// name.
struct PluginTemplate {
  std::string_view file;
  std::string_view text;
};
std::span<const PluginTemplate> plugin_templates();

}  // namespace emm::cli
