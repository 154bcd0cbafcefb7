#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "trace/header.hpp"
#include "trace/live_ids.hpp"
#include "trace/operation.hpp"

namespace emm::trace::compact {

/// Tracks the operations that made the memory now live, and the call sites that they name. A look
/// at one moment of a trace needs nothing else of what came before. Leaves out memory that was
/// opened from other processes, and the members that such a look does not use. One thread at a
/// time.
class LiveOperations {
 public:
  void begin(const Header& header);
  void add(const Operation& operation);

  /// The number of events: all operations except definitions, `end` and extensions.
  std::uint64_t events() const noexcept { return events_; }
  std::size_t live() const noexcept { return ids_.live(); }
  /// False once the trace does not tell what is live.
  bool is_known() const noexcept { return known_; }
  /// Did a free complete later than it was asked for? Memory that waited for that is missing here.
  bool any_completed_later() const noexcept { return completed_later_; }

  /// Calls each(operation) for the call sites that were defined since forget_sites().
  template <class Each>
  void each_site(const Each& each) const {
    Operation define;
    define.op = Op::define;
    define.define_kind = DefineKind::site;
    std::vector<std::string_view> frames;
    for (const auto& site : sites_) {
      define.members = site.members;
      define.id = site.id;
      define.name = site.name;
      frames.assign(site.frames.begin(), site.frames.end());
      define.frames = frames;
      each(define);
    }
  }
  void forget_sites() { sites_.clear(); }
  /// Calls each(operation) for the operations that made what is live, in their order.
  template <class Each>
  void each_live(const Each& each) const {
    Operation operation;
    for (const auto* made : in_order()) {
      give(*made, operation);
      each(operation);
    }
  }

 private:
  /// An operation that made live memory.
  struct Kept {
    std::uint64_t born = 0;  ///< The event that made it, from 1; 0: the slot is empty.
    Members members;
    Op op{};
    Kind kind{};
    Layer layer{};
    bool preexisting = false;
    std::uint32_t device = 0;
    Id id, process, thread, context, stream, site;
    std::uint64_t size = 0, addr = 0, granted = 0;
    std::unique_ptr<std::string> id_text;
  };
  struct Site {
    Members members;
    Id id;
    std::string name;
    std::vector<std::string> frames;
  };

  void make(const Operation& operation);
  void end(const Operation& operation);
  void end_all();
  void define(const Operation& operation);
  void note_place(const Operation& operation);
  Id interned(const Id& id);
  std::string_view interned(std::string_view text);
  bool worked(const Operation& operation) const noexcept;
  static void give(const Kept& kept, Operation& to);
  std::vector<const Kept*> in_order() const;

  LiveIds ids_;
  std::vector<Kept> kept_{1};
  std::vector<std::uint32_t> free_;
  std::vector<Site> sites_;
  std::unordered_set<std::string> texts_;
  Outcome default_expect_ = Outcome::none;
  std::uint64_t events_ = 0;
  Members place_members_;
  Id context_, process_;
  std::uint32_t device_ = 0;
  bool any_place_ = false, several_places_ = false;
  bool known_ = true, completed_later_ = false;
};

}  // namespace emm::trace::compact
