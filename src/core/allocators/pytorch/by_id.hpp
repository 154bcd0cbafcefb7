#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "trace/id.hpp"

namespace emm::allocators::pytorch {

/// One `Value` for each id of a trace that is live. Ids are numbers or text. A pointer is valid
/// until its id is erased. One thread at a time.
template <class Value>
class ById {
 public:
  /// Null if there is none.
  Value* find(const trace::Id& id) {
    if (id.is_number()) {
      const auto found = numbered_.find(id.number);
      return found == numbered_.end() ? nullptr : &found->second;
    }
    const auto found = named_.find(std::string(id.text));
    return found == named_.end() ? nullptr : &found->second;
  }
  /// Makes it if there is none.
  Value& operator[](const trace::Id& id) {
    return id.is_number() ? numbered_[id.number] : named_[std::string(id.text)];
  }
  void erase(const trace::Id& id) {
    if (id.is_number()) {
      numbered_.erase(id.number);
    } else {
      named_.erase(std::string(id.text));
    }
  }
  /// Erases each value of which `ends` says so, in any order.
  template <class Ends>
  void erase_if(const Ends& ends) {
    const auto of_entry = [&](const auto& entry) { return ends(entry.second); };
    std::erase_if(numbered_, of_entry);
    std::erase_if(named_, of_entry);
  }
  void clear() {
    numbered_.clear();
    named_.clear();
  }

 private:
  std::unordered_map<std::uint64_t, Value> numbered_;
  std::unordered_map<std::string, Value> named_;
};

}  // namespace emm::allocators::pytorch
