#include "cli/recorded_manager.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "driver/driver.hpp"
#include "managers/host_only.hpp"
#include "trace/extensions.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::cli {
namespace {

using trace::Op;

/// How memory was allocated, which decides how it is freed.
enum class How : std::uint8_t { plain, async, from_pool, physical };

struct Step {
  std::uint64_t seq = 0;
  Op op = Op::memalloc;
  How how = How::plain;
  bool freed_async = false;
  std::uint64_t size = 0, offset = 0, align = 0;
  PoolAttribute attribute{};  ///< What is set of a pool; `size` is its value.
  std::string id;             ///< The name of memory in the trace.
  std::string name;           ///< The name of a pool or a range.
};

/// The recorded driver calls of each device, in order.
struct Script {
  std::map<std::uint32_t, std::vector<Step>> steps;
};

std::string name_of(const trace::Id& id) {
  return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
}

constexpr std::string_view kDefaultPool = "default";

/// Reads a number, decimal or hex, from a member of an x- operation.
std::optional<std::uint64_t> number_in(std::string_view members, std::string_view name) {
  auto value = trace::extension(members, name);
  if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
  return text::to_u64(value);
}

/// Collects the script while the trace is read.
class ScriptReader final : public trace::OperationSink {
 public:
  explicit ScriptReader(Script& script) : script_(script) {}

  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const trace::Operation& operation) override {
    using trace::Member;
    if (operation.has(Member::layer) && operation.layer == trace::Layer::backing) return {};
    Step step{.op = operation.op, .id = {}, .name = {}};
    last_seq_ = operation.has(Member::seq) ? operation.seq : last_seq_;
    step.seq = last_seq_;
    auto device = operation.has(Member::device) ? operation.device : 0;
    switch (operation.op) {
      case Op::memalloc:
        step.id = name_of(operation.id);
        step.how = how(operation);
        step.size = operation.size;
        if (operation.has(Member::pool)) step.name = name_of(operation.pool);
        devices_[step.id] = device;
        break;
      case Op::free:
      case Op::mem_map:
      case Op::mem_unmap:
        step.id = name_of(operation.id);
        step.freed_async = operation.has(Member::api) && operation.api == "cuMemFreeAsync";
        step.size = operation.size;
        step.offset = operation.offset;
        if (operation.has(Member::range)) step.name = name_of(operation.range);
        if (const auto made = devices_.find(step.id); made != devices_.end()) {
          device = made->second;
        } else {
          return {};  // host memory
        }
        break;
      case Op::pool_create:
      case Op::pool_destroy:
      case Op::pool_trim:
        step.name = name_of(operation.pool);
        step.size = operation.op == Op::pool_trim ? operation.keep : operation.max_size;
        break;
      case Op::address_reserve:
      case Op::address_free:
        step.name = name_of(operation.range);
        step.size = operation.size;
        step.align = operation.align;
        break;
      case Op::extension:
        if (!put_pool_call(operation, step, device)) return {};
        break;
      default:
        return {};
    }
    script_.steps[device].push_back(std::move(step));
    return {};
  }
  Status finish() override {
    for (auto& [device, steps] : script_.steps) {
      std::stable_sort(steps.begin(), steps.end(),
                       [](const Step& a, const Step& b) { return a.seq < b.seq; });
    }
    return {};
  }

 private:
  /// Reads pool calls that have no operation in the format: a trim of a device's default pool, and
  /// a set attribute. False if it is neither.
  static bool put_pool_call(const trace::Operation& operation, Step& step, std::uint32_t& device) {
    if (!trace::extension(operation.text, "code").empty()) return false;  // the call failed
    const auto number = [&](std::string_view name) { return number_in(operation.text, name); };
    if (operation.extension == "x-default_pool_trim") {
      step.op = Op::pool_trim;
      step.name = kDefaultPool;
      step.size = number("keep").value_or(0);
    } else if (operation.extension == "x-pool_set_attribute") {
      auto pool = trace::extension(operation.text, "pool");
      if (pool.size() < 2) return false;
      step.name = pool.substr(1, pool.size() - 2);
      const auto attribute = number("attribute"), value = number("value");
      const auto most = static_cast<std::uint64_t>(PoolAttribute::release_threshold);
      if (!attribute || !value || *attribute == 0 || *attribute > most) return false;
      step.attribute = static_cast<PoolAttribute>(*attribute);
      step.size = *value;
    } else {
      return false;
    }
    device = static_cast<std::uint32_t>(number("on_device").value_or(number("device").value_or(0)));
    return true;
  }

  static How how(const trace::Operation& operation) {
    if (operation.has(trace::Member::kind) && operation.kind == trace::Kind::physical)
      return How::physical;
    if (operation.has(trace::Member::pool)) return How::from_pool;
    return operation.has(trace::Member::api) && operation.api == "cuMemAllocAsync" ? How::async
                                                                                   : How::plain;
  }

  Script& script_;
  std::unordered_map<std::string, std::uint32_t> devices_;
  std::uint64_t last_seq_ = 0;
};

class RecordedManager final : public HostOnlyManager {
 public:
  RecordedManager(const ManagerContext& context, const Settings& settings,
                  std::shared_ptr<const Script> script)
      : HostOnlyManager(context, settings), script_(std::move(script)) {
    const auto found = script_->steps.find(static_cast<std::uint32_t>(context.shown_ordinal));
    if (found != script_->steps.end()) steps_ = &found->second;
  }
  ~RecordedManager() override {
    end_all();
    end_sides();
  }
  RecordedManager(const RecordedManager&) = delete;
  RecordedManager& operator=(const RecordedManager&) = delete;

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    const std::lock_guard lock(mutex_);
    const auto* step = next(Op::memalloc, {});
    Live live{.how = step != nullptr ? step->how : How::plain, .size = size, .stream = stream};
    if (step != nullptr) live.id = step->id;
    auto made = make(live, step);
    if (!made) return std::move(made).error();
    const auto cookie = ++last_cookie_;
    if (!live.id.empty()) by_id_[live.id] = cookie;
    live_bytes_ += size;
    live_.emplace(cookie, std::move(live));
    return MemoryPointer(
        *made, size, Lifetime({.run = finalize, .self = this, .cookie = cookie}, epoch_.mark()));
  }
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    return ipc_handle_from_address_range(driver(), memory);
  }
  void reset() noexcept override {
    end_all();
    HostOnlyManager::reset();
  }
  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const std::lock_guard lock(mutex_);
    *state.live_bytes += live_bytes_;
    return state;
  }

 private:
  struct Live {
    How how = How::plain;
    std::uint64_t size = 0;
    std::uint64_t address = 0;  ///< The handle, for physical memory.
    StreamHandle stream{};
    std::string id{};
  };

  Result<DevicePtr> make(Live& live, const Step* step) {
    if (live.how == How::physical) {
      auto handle = driver().mem_create(live.size);
      if (!handle) return std::move(handle).error();
      live.address = handle->value;
      // Physical memory has no address until it is mapped, so it gets one that nothing else has.
      constexpr std::uint64_t kStep = std::uint64_t{2} << 20;
      const auto at = unmapped_;
      unmapped_ += (live.size + kStep - 1) / kStep * kStep;
      return DevicePtr{at};
    }
    auto made = [&]() -> Result<DevicePtr> {
      if (live.how == How::async) return driver().mem_alloc_async(live.size, live.stream);
      if (live.how == How::from_pool) {
        if (const auto pool = pools_.find(step->name); pool != pools_.end())
          return driver().mem_alloc_from_pool_async(live.size, pool->second, live.stream);
        return driver().mem_alloc_async(live.size, live.stream);
      }
      return driver().mem_alloc(live.size);
    }();
    if (made) live.address = made->value;
    return made;
  }

  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& manager = *static_cast<RecordedManager*>(self);
    const std::lock_guard lock(manager.mutex_);
    const auto found = manager.live_.find(cookie);
    if (found == manager.live_.end()) return;
    const auto* step = manager.next(Op::free, found->second.id);
    const bool async = step != nullptr ? step->freed_async : found->second.how != How::plain;
    manager.end(found->second, async, stream);
    manager.by_id_.erase(found->second.id);
    manager.live_.erase(found);
  }

  void end(const Live& live, bool async, StreamHandle stream) noexcept {
    live_bytes_ -= live.size;
    auto done = live.how == How::physical ? driver().mem_release({live.address})
                : async                   ? driver().mem_free_async({live.address}, stream)
                                          : driver().mem_free({live.address});
    if (!done) tell(done.error());
  }

  /// Makes the recorded calls up to the next request or free, and returns that step if it matches.
  /// Returns null if the trace has another step there, as in a second pass.
  const Step* next(Op op, const std::string& id) noexcept {
    if (steps_ == nullptr) return nullptr;
    if (at_ == steps_->size()) at_ = 0;  // a further pass begins
    while (at_ < steps_->size()) {
      const auto& step = (*steps_)[at_];
      if (step.op != Op::memalloc && step.op != Op::free) {
        ++at_;
        do_side(step);
        continue;
      }
      // frees memory that was refused here
      if (step.op == Op::free && by_id_.count(step.id) == 0) {
        ++at_;
        continue;
      }
      const bool same = step.op == op && (op == Op::memalloc || step.id == id);
      if (!same) return nullptr;
      ++at_;
      return &step;
    }
    return nullptr;
  }

  void do_side(const Step& step) noexcept {
    Status done;
    switch (step.op) {
      case Op::pool_create: {
        if (pools_.count(step.name) != 0) break;  // made by the pass before
        const auto pool = driver().mem_pool_create(step.size);
        if (pool) {
          pools_[step.name] = *pool;
        } else {
          done = pool.error();
        }
        break;
      }
      case Op::pool_destroy:
      case Op::pool_trim: {
        if (step.op == Op::pool_trim && step.name == kDefaultPool) {
          const auto pool = driver().device_get_default_mem_pool();
          done = pool ? driver().mem_pool_trim_to(*pool, step.size) : Status(pool.error());
          break;
        }
        const auto pool = pools_.find(step.name);
        if (pool == pools_.end()) break;
        if (step.op == Op::pool_trim) {
          done = driver().mem_pool_trim_to(pool->second, step.size);
        } else {
          done = driver().mem_pool_destroy(pool->second);
          pools_.erase(pool);
        }
        break;
      }
      case Op::extension:
        done = set_attribute(step);
        break;
      case Op::address_reserve: {
        if (ranges_.count(step.name) != 0) break;
        const auto range = driver().mem_address_reserve(step.size, step.align);
        if (range) {
          ranges_[step.name] = {.at = *range, .size = step.size, .mapped = {}};
        } else {
          done = range.error();
        }
        break;
      }
      case Op::address_free: {
        const auto range = ranges_.find(step.name);
        if (range == ranges_.end()) break;
        done = driver().mem_address_free(range->second.at, range->second.size);
        ranges_.erase(range);
        break;
      }
      case Op::mem_map:
      case Op::mem_unmap: {
        const auto range = ranges_.find(step.name);
        const auto memory = by_id_.find(step.id);
        if (range == ranges_.end() || memory == by_id_.end()) break;
        const auto at = range->second.at + step.offset;
        if (step.op == Op::mem_map) {
          if (const auto before = range->second.mapped.find(step.offset);
              before != range->second.mapped.end()) {
            (void)driver().mem_unmap(at, before->second);
          }
          done = driver().mem_map(at, step.size, 0, {live_.at(memory->second).address});
          if (done) range->second.mapped[step.offset] = step.size;
        } else {
          done = driver().mem_unmap(at, step.size);
          range->second.mapped.erase(step.offset);
        }
        break;
      }
      default:
        break;
    }
    if (!done) tell(done.error());
  }

  /// Attributes of the default pool are restored in the end, since the next manager uses the same
  /// pool.
  Status set_attribute(const Step& step) noexcept {
    if (step.name != kDefaultPool) {
      const auto pool = pools_.find(step.name);
      if (pool == pools_.end()) return {};
      return driver().mem_pool_set_attribute(pool->second, step.attribute, step.size);
    }
    const auto pool = driver().device_get_default_mem_pool();
    if (!pool) return pool.error();
    if (defaults_.count(step.attribute) == 0) {
      const auto before = driver().mem_pool_get_attribute(*pool, step.attribute);
      if (!before) return before.error();
      defaults_[step.attribute] = *before;
    }
    return driver().mem_pool_set_attribute(*pool, step.attribute, step.size);
  }

  void end_all() noexcept {
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    for (const auto& [cookie, live] : live_) end(live, live.how != How::plain, {});
    live_.clear();
    by_id_.clear();
  }
  void end_sides() noexcept {
    const std::lock_guard lock(mutex_);
    // Makes the calls after the last request or free, then releases what the recorded program left
    // to its end.
    while (steps_ != nullptr && at_ < steps_->size()) {
      const auto& step = (*steps_)[at_++];
      if (step.op != Op::memalloc && step.op != Op::free) do_side(step);
    }
    for (const auto& [attribute, value] : defaults_) {
      const auto pool = driver().device_get_default_mem_pool();
      const auto done =
          pool ? driver().mem_pool_set_attribute(*pool, attribute, value) : Status(pool.error());
      if (!done) tell(done.error());
    }
    for (const auto& [name, pool] : pools_) {
      if (auto done = driver().mem_pool_destroy(pool); !done) tell(done.error());
    }
    for (const auto& [name, range] : ranges_) {
      for (const auto& [offset, size] : range.mapped) {
        if (auto done = driver().mem_unmap(range.at + offset, size); !done) tell(done.error());
      }
      if (auto done = driver().mem_address_free(range.at, range.size); !done) tell(done.error());
    }
  }

  struct Range {
    DevicePtr at{};
    std::uint64_t size = 0;
    std::map<std::uint64_t, std::uint64_t> mapped{};  ///< Sizes by offset.
  };
  std::shared_ptr<const Script> script_;
  const std::vector<Step>* steps_ = nullptr;
  std::size_t at_ = 0;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Live> live_;
  std::unordered_map<std::string, std::uint64_t> by_id_;
  std::map<std::string, PoolHandle> pools_;
  std::map<PoolAttribute, std::uint64_t> defaults_;  ///< The default pool's former attributes.
  std::map<std::string, Range> ranges_;
  std::uint64_t last_cookie_ = 0, live_bytes_ = 0;
  std::uint64_t unmapped_ = std::uint64_t{1} << 62;
  Epoch epoch_;
};

}  // namespace

Result<ManagerFactory> recorded_manager(const TraceArgument& argument) {
  if (argument.path == "-") {
    return fail(
        Errc::usage,
        "--manager recorded reads the trace twice: expected a file, and not standard input");
  }
  auto source = format::ByteSource::open(argument.path);
  if (!source) return std::move(source).error();
  auto importer = choose_importer(**source, argument.format);
  if (!importer) return std::move(importer).error();
  auto script = std::make_shared<Script>();
  ScriptReader reader(*script);
  auto read = (*importer)->read(**source, reader, {.partial = argument.partial});
  if (!read) return std::move(read).error();
  return ManagerFactory{
      .name = "recorded",
      .make = [script = std::shared_ptr<const Script>(std::move(script))](
                  const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
        HostOnlyManager::Settings settings{.profile = context.profile};
        settings.limits.count = 0;  // never defers: frees are made when the program made them
        return std::make_unique<RecordedManager>(context, settings, script);
      }};
}

}  // namespace emm::cli
