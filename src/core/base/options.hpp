#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace emm {

/// Options such as "initial=1GiB,max=8GiB". A getter makes its key known. finish() then refuses
/// every unknown key, and lists the known ones.
///
///   auto options = Options::parse("max=8GiB");
///   const auto max = options->bytes("max", 0);
///   if (auto done = options->finish("manager pool"); !done) return done.error();
///
/// finish() also returns the error of a value that does not parse, so getters return plain values.
class Options {
 public:
  Options() = default;
  /// Empty text means no options. A key without '=' is a flag: "verbose" is "verbose=true".
  static Result<Options> parse(std::string_view text);

  std::uint64_t bytes(std::string_view key, std::uint64_t otherwise);
  /// Reads "80GiB" or "80GiB/40GiB": one size, or several separated by slashes. Empty if the key is
  /// not given.
  std::vector<std::uint64_t> bytes_of_each(std::string_view key);
  std::uint64_t count(std::string_view key, std::uint64_t otherwise);
  double number(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  /// One of `choices`; for any other value finish() returns an error that lists them.
  std::string choice(std::string_view key, std::string_view otherwise,
                     std::initializer_list<std::string_view> choices);
  bool has(std::string_view key) const;

  /// `owner` names the owner of the options in the message: "manager pool", "device sim".
  Status finish(std::string_view owner) const;

 private:
  const std::string* find(std::string_view key);
  void refuse(std::string_view key, std::string_view value, std::string_view expected);

  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::string> known_;
  std::string refused_;
};

}  // namespace emm
