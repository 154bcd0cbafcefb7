#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace emm::peers {

/// One JSON object on one line of stdout: what a peer says of one measurement.
class JsonLine {
 public:
  JsonLine& text(const char* key, const std::string& value) {
    begin(key) += '"';
    for (const char each : value) {
      if (each == '"' || each == '\\') line_ += '\\';
      if (static_cast<unsigned char>(each) >= ' ') line_ += each;
    }
    line_ += '"';
    return *this;
  }
  JsonLine& bytes(const char* key, std::uint64_t value) {
    begin(key) += std::to_string(value);
    return *this;
  }
  JsonLine& number(const char* key, double value) {
    begin(key) += digits(value);
    return *this;
  }
  JsonLine& numbers(const char* key, const std::vector<double>& values) {
    begin(key) += '[';
    for (std::size_t i = 0; i < values.size(); ++i)
      line_ += (i == 0 ? "" : ", ") + digits(values[i]);
    line_ += ']';
    return *this;
  }
  void print() {
    std::printf("%s}\n", line_.c_str());
    std::fflush(stdout);
  }

 private:
  std::string& begin(const char* key) {
    line_ += line_.empty() ? "{\"" : ", \"";
    return (line_ += key) += "\": ";
  }
  static std::string digits(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", value);
    return text;
  }

  std::string line_;
};

}  // namespace emm::peers
