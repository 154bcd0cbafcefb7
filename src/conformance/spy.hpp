#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conformance/bench.hpp"
#include "conformance/own.hpp"

namespace emm::conformance {

/// What a context asked of its manager, in order: "memalloc(10, 7)".
struct SpyLog {
  std::vector<std::string> asked;
  std::size_t made = 0;             ///< Managers made, probes among them.
  std::size_t probes = 0;           ///< Of these, without a driver.
  int version = kInterfaceVersion;  ///< What they answer.
  Errc fails_with{};                ///< What requests and initialize() answer; where `fails`.
  bool fails = false;
  std::function<void(std::string_view)> during;  ///< Called inside each.

  std::size_t count(std::string_view begin) const;
  std::string text() const;  ///< "initialize(), memalloc(10, 7)"
};

/// A manager that serves from nowhere and writes down what it was asked. The log must outlive it.
ManagerFactory spy_factory(SpyLog& log, std::string name = "spy");

/// A context over the bench's device, with a spy or a manager of a name.
class ContextFixture {
 public:
  ContextFixture(Bench& bench, const ManagerFactory& factory, int ordinal = 0);
  ContextFixture(Bench& bench, SpyLog& log) : ContextFixture(bench, spy_factory(log)) {}
  /// False where it could not be made; then the clause is inconclusive.
  explicit operator bool() const noexcept { return context_ != nullptr; }
  Context& operator*() noexcept { return *context_; }
  Context* operator->() noexcept { return context_.get(); }
  void end() { context_.reset(); }

 private:
  std::unique_ptr<OpenedDevice> device_;
  std::unique_ptr<Context> context_;
};

/// The check of a clause about a context whose manager is a spy: `check(bench, log, context)`.
template <class Check>
constexpr auto over_spied_context(Check) {
  return [](Bench& bench) {
    SpyLog log;
    ContextFixture context(bench, log);
    if (context) Check()(bench, log, context);
  };
}

/// emmctl's own parts, or the wrong ones that are judged.
const Own& own_of(const Bench& bench) noexcept;

}  // namespace emm::conformance
