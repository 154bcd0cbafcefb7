#include "fleet/sites.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::fleet {
namespace {

constexpr std::size_t kFrames = 4;     // frames that tell one site from another
constexpr std::size_t kNameMost = 90;  // columns of a site's name

/// Shortens "lib/torch/adam.py:178 step" to "adam.py:178 step".
std::string_view without_folders(std::string_view frame) {
  auto place = frame.find(".py:");
  if (place == std::string_view::npos) place = std::min(frame.find(':'), frame.size());
  const auto slash = frame.substr(0, place).rfind('/');
  return slash == std::string_view::npos ? frame : frame.substr(slash + 1);
}

/// Shortens "adam.py:178 step" to "adam.py step".
std::string without_line(std::string_view frame) {
  const auto colon = frame.find(':');
  if (colon == std::string_view::npos) return std::string(frame);
  auto end = colon + 1;
  while (end < frame.size() && frame[end] >= '0' && frame[end] <= '9') ++end;
  if (end == colon + 1) return std::string(frame);  // no line number follows, as in C++
  return std::string(frame.substr(0, colon)) + std::string(frame.substr(end));
}

}  // namespace

std::uint32_t Sites::number(const std::string& identity, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [found, added] =
      numbers_.try_emplace(identity, static_cast<std::uint32_t>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

std::string Sites::name(std::uint32_t site) const {
  const std::lock_guard lock(mutex_);
  return names_[site];
}

std::uint32_t SiteNumbers::of(SiteId site) {
  const auto [known, added] = known_.try_emplace(site, 0);
  if (!added) return known->second;
  const auto frames = trace_.site_frames(site);
  if (frames.empty()) return 0;
  const std::vector<std::string_view> views(frames.begin(), frames.end());
  const auto shown = call_sites_.of(views);
  std::string identity;
  const auto add = [&](std::string_view frame) {
    const auto base = without_folders(frame);
    identity += sites_.same() == SameSite::line ? std::string(base) : without_line(base);
    identity += '\n';
  };
  add(shown.called);
  for (std::size_t i = 0; i < std::min(shown.frames.size(), kFrames); ++i) add(shown.frames[i]);
  auto name = std::string(without_folders(shown.frames.front()));
  if (!shown.called.empty()) name += ", in " + std::string(without_folders(shown.called));
  known->second = sites_.number(identity, text::printable(name, kNameMost));
  return known->second;
}

}  // namespace emm::fleet
