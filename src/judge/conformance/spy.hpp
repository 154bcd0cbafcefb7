#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/bench.hpp"
#include "conformance/own.hpp"

namespace emm::conformance {

/// What a context asked of its manager, in order, as "memalloc(10, 7)".
struct SpyLog {
  std::vector<std::string> asked;
  std::size_t made = 0;        ///< Managers that were made, probes included.
  std::size_t probes = 0;      ///< Managers that were made without a driver.
  std::optional<int> version;  ///< What managers report; empty: NBEP-7's version.
  Errc fails_with{};           ///< What requests and initialize() answer when `fails` is set.
  bool fails = false;
  std::function<void(std::string_view)> during;  ///< Called inside each request.

  std::size_t count(std::string_view begin) const;
  std::string text() const;  ///< "initialize(), memalloc(10, 7)"
};

/// Makes managers that allocate nothing and write what they were asked to the log. The log must
/// outlive them.
ManagerFactory spy_factory(SpyLog& log, std::string name = "spy");

/// A context over the bench's device, with a spy or a named manager.
class ContextFixture {
 public:
  ContextFixture(Bench& bench, const ManagerFactory& factory, int ordinal = 0);
  ContextFixture(Bench& bench, SpyLog& log) : ContextFixture(bench, spy_factory(log)) {}
  /// False if the context could not be made. The clause is then inconclusive.
  explicit operator bool() const noexcept { return context_ != nullptr; }
  Context& operator*() noexcept { return *context_; }
  Context* operator->() noexcept { return context_.get(); }
  void end() { context_.reset(); }

 private:
  std::unique_ptr<OpenedDevice> device_;
  std::unique_ptr<Context> context_;
};

/// Makes the check of a clause about a context with a spy: `check(bench, log, context)`.
template <class Check>
constexpr auto over_spied_context(Check) {
  return [](Bench& bench) {
    SpyLog log;
    ContextFixture context(bench, log);
    if (context) Check()(bench, log, context);
  };
}

/// Returns emmctl's own functions, or the mutant's that are judged.
const Own& own_of(const Bench& bench) noexcept;

}  // namespace emm::conformance
