#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace emm::log {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace emm::log
