#pragma once

#include <span>
#include <string_view>

namespace emm::cli {

/// A file of tools/plugin: what `emmctl plugin new` writes. NAME stands for the plugin's name
/// there.
struct PluginTemplate {
  std::string_view file;
  std::string_view text;
};
std::span<const PluginTemplate> plugin_templates();

}  // namespace emm::cli
