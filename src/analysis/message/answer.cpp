#include "message/answer.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"

namespace emm::message {
namespace {

using inspect::Cause;
using text::format;

// A CUDA context with the libraries that a framework loads takes some 0.3 to 1 GiB.
constexpr std::uint64_t kContextMost = 1_GiB;
// One without libraries takes more than this; what is less is the driver's own.
constexpr std::uint64_t kContextLeast = 64_MiB;

std::string_view allocator_of(Speaker speaker) {
  switch (speaker) {
    case Speaker::torch:
    case Speaker::torch_mps:
      return "PyTorch";
    case Speaker::cupy:
      return "CuPy's pool";
    case Speaker::xla:
    case Speaker::tensorflow:
      return "the BFC allocator";
    case Speaker::onnxruntime:
      return "ONNX Runtime's arena";
    case Speaker::rmm:
      return "RMM";
    case Speaker::paddle:
      return "Paddle";
    case Speaker::vllm:
      return "vLLM";
    case Speaker::sglang:
      return "SGLang";
    case Speaker::julia:
      return "CUDA.jl's pool";
    default:
      return "the program";
  }
}

/// What raises the limit that a framework has for itself.
std::string_view limit_setting(Speaker speaker) {
  switch (speaker) {
    case Speaker::torch:
      return "torch.cuda.set_per_process_memory_fraction()";
    case Speaker::torch_mps:
      return "PYTORCH_MPS_HIGH_WATERMARK_RATIO";
    case Speaker::cupy:
      return "CUPY_GPU_MEMORY_LIMIT or MemoryPool.set_limit()";
    case Speaker::xla:
    case Speaker::tensorflow:
      return "XLA_PYTHON_CLIENT_MEM_FRACTION (JAX), memory_limit (TensorFlow)";
    case Speaker::onnxruntime:
      return "the provider option gpu_mem_limit";
    case Speaker::rmm:
      return "maximum_pool_size";
    case Speaker::vllm:
      return "gpu_memory_utilization";
    case Speaker::sglang:
      return "--mem-fraction-static";
    case Speaker::julia:
      return "JULIA_CUDA_HARD_MEMORY_LIMIT";
    default:
      return "its own option";
  }
}

/// What makes the allocator leave fewer holes.
std::string holes_setting(const Message& message) {
  switch (message.wording->speaker) {
    case Speaker::torch: {
      const auto says = [&](std::string_view word) {
        return message.text.find(word) != std::string::npos;
      };
      return format("Try PYTORCH_{}ALLOC_CONF=expandable_segments:True, or allocate largest first.",
                    says("NPU out of memory")   ? "NPU_"
                    : says("HIP out of memory") ? "HIP_"
                    : says("XPU out of memory") ? ""
                                                : "CUDA_");
    }
    case Speaker::xla:
    case Speaker::tensorflow:
      return "Try TF_GPU_ALLOCATOR=cuda_malloc_async, or XLA_PYTHON_CLIENT_ALLOCATOR=platform.";
    case Speaker::onnxruntime:
      return "Try arena_extend_strategy=kSameAsRequested, or shrink the arena between runs.";
    case Speaker::cupy:
    case Speaker::rmm:
      return "Try the driver's own pool: CUDA's stream-ordered allocator has no such holes.";
    default:
      return "Try an allocator that maps pages, or allocate the largest first.";
  }
}

class Judge {
 public:
  explicit Judge(const Message& message) : message_(message), speaker_(message.wording->speaker) {}

  Answer judge() {
    derive();
    if (speaker_ == Speaker::host) {
      host();
    } else if (speaker_ == Speaker::triton) {
      on_chip();
    } else if (speaker_ == Speaker::metal || message_.wording->trigger == "Invalidbuffersize:") {
      of_metal();
    } else if (message_.beyond_any || (asked_ && total_ && reaches(*total_, *asked_) == false)) {
      larger_than_device();
    } else if (!asked_) {
      bare();
    } else if (speaker_ == Speaker::vllm && free_ && total_) {
      starts_up();
    } else if (allowed_ && reaches(*allowed_, *asked_) == false) {
      larger_than_limit();
    } else if (out_.available) {
      compare();
    } else {
      only_asked();
    }
    more();
    return std::move(out_);
  }

 private:
  std::string printed(Meaning what) const {
    const auto& figure = message_[what];
    if (!figure) return {};
    // A count of bytes is read more easily in larger units.
    const bool is_count = figure->printed.ends_with(" bytes") || figure->printed.ends_with(" B");
    return is_count && figure->bytes.is_exact() ? units::bytes(figure->bytes.least)
                                                : figure->printed;
  }
  std::string asked_words() const {
    return message_[Meaning::asked] ? printed(Meaning::asked) : words_of(*asked_);
  }

  /// Works out what the figures say together.
  void derive() {
    asked_ = message_.bytes(message_[Meaning::rounded] ? Meaning::rounded : Meaning::asked);
    total_ = message_.bytes(Meaning::total);
    free_ = message_.bytes(Meaning::free);
    allowed_ = message_.bytes(Meaning::allowed);
    reserved_ = message_.bytes(Meaning::reserved);
    allocated_ = message_.bytes(Meaning::allocated);
    out_.idle = message_.bytes(Meaning::idle);
    if (message_.chunks) {
      const auto& chunks = *message_.chunks;
      const auto exact = [](std::uint64_t bytes) { return Range{bytes, bytes}; };
      allocated_ = exact(chunks.in_use_bytes);
      reserved_ = exact(chunks.in_use_bytes + chunks.free_bytes);
      out_.idle = exact(chunks.free_bytes);
    }
    if (!out_.idle && reserved_ && allocated_) out_.idle = *reserved_ - *allocated_;
    if (!reserved_ && out_.idle && allocated_) reserved_ = *allocated_ + *out_.idle;
    room_ = message_.bytes(Meaning::room);
    const auto elsewhere = message_.bytes(Meaning::elsewhere);
    if (!room_ && allowed_ && (reserved_ || allocated_)) {
      room_ = *allowed_ - (reserved_ ? *reserved_ : *allocated_);
      if (elsewhere) room_ = *room_ - *elsewhere;
    }
    // What the allocator could still get from the device.
    auto growth = free_;
    if (room_) growth = growth ? least_of(*growth, *room_) : *room_;
    if (growth) {
      out_.available = out_.idle ? *growth + *out_.idle : *growth;
    } else if (out_.idle && message_.chunks) {
      out_.available = out_.idle;
    }
    growth_ = growth;
    if (asked_ && out_.available) {
      out_.lacking = *asked_ - *out_.available;
      out_.spare = *out_.available - *asked_;
    }
    if (total_ && free_ && reserved_) {
      out_.outside = *total_ - *free_ - *reserved_;
      find_others();
    }
  }

  void find_others() {
    const auto process = message_.bytes(Meaning::process);
    if (process) {
      out_.others = *total_ - *free_ - *process;
      return;
    }
    // In a container this process has another number, and is in the list with the others.
    std::vector<const Process*> may_be_this;
    for (const auto& each : message_.processes) {
      if (each.held.bytes.most >= reserved_->least) may_be_this.push_back(&each);
    }
    if (message_.processes.empty() || may_be_this.size() > 1) return;
    Range others;
    for (const auto& each : message_.processes) {
      if (may_be_this.empty() || &each != may_be_this.front()) others = others + each.held.bytes;
    }
    out_.others = others;
    if (!may_be_this.empty() && reserved_->most > 0) {
      out_.notes.push_back(
          format("Process {} holds at least what {} does here: it is probably this one, as seen "
                 "from outside of its container.",
                 may_be_this.front()->pid, allocator_of(speaker_)));
    }
  }

  /// By how much what was asked for exceeds what there is, as the figures are printed.
  std::string lacking_words() const {
    const auto& lacking = *out_.lacking;
    if (lacking.least > 0 || lacking.is_exact()) return words_of(lacking);
    return middle_lack() > 0 ? units::bytes(middle_lack()) : words_of(lacking);
  }
  std::uint64_t middle_lack() const {
    return asked_->middle() - std::min(asked_->middle(), out_.available->middle());
  }

  void host() {
    out_.is_certain = true;
    out_.lead = {"This is memory of the host: no setting of a device's allocator can help.",
                 asked_ ? format("{} of host memory were asked for{}.", asked_words(),
                                 free_ ? format(", {} were there", printed(Meaning::free)) : "")
                        : "The machine, or the job's limit of memory, had no more.",
                 "See the job's limit (cgroup, ulimit) and pinned or cached data of the program."};
  }

  /// What a kernel needs beside what one multiprocessor has.
  void on_chip() {
    out_.cause = Cause::need;
    out_.is_certain = true;
    out_.lead = {
        "This is memory of a multiprocessor, which one kernel asks for: no allocator has a part.",
        asked_ && total_ ? format("The kernel needs {}, and the device has {} there.",
                                  asked_words(), printed(Meaning::total))
                         : std::string("How much the kernel needs is not told."),
        "Use smaller blocks, or fewer num_stages or num_warps, in its configurations."};
  }

  void of_metal() {
    if (asked_) {
      out_.cause = Cause::need;
      out_.is_certain = true;
      out_.lead = {"The request is larger than a buffer of Metal may be: no setting can serve it.",
                   allowed_ ? format("{} were asked for, and one buffer may have {}.",
                                     asked_words(), printed(Meaning::allowed))
                            : format("{} were asked for in one buffer.", asked_words()),
                   "Look for the shape of this one tensor; split it, or use a smaller batch."};
      return;
    }
    out_.lead = {"Metal had no memory for the work it was given; how much, it does not tell.",
                 "The machine's memory serves the CPU and the GPU: other programs count, too.",
                 "Hold less, or end other programs."};
    out_.not_told = {"what was asked for", "what the device has and had free",
                     "what the program holds"};
  }

  void larger_than_device() {
    out_.cause = Cause::need;
    out_.is_certain = true;
    out_.lead = {"The request is larger than the device: no setting can serve it.",
                 message_.beyond_any
                     ? "More than 1 EB was asked for: a size went wrong before it came here."
                     : format("{} were asked for, and the device has {}.", asked_words(),
                              printed(Meaning::total)),
                 "Look for the shape of this one tensor; split it, or use a smaller batch."};
  }

  void larger_than_limit() {
    out_.cause = Cause::limit;
    out_.is_certain = true;
    out_.lead = {"The request is larger than the limit that the program set for itself.",
                 format("{} were asked for, and {} may hold {} in all.", asked_words(),
                        allocator_of(speaker_), printed(Meaning::allowed)),
                 format("The limit is {}.", limit_setting(speaker_))};
  }

  void starts_up() {
    out_.cause = Cause::others;
    out_.lead = {"Others hold the memory that vLLM is to have: no setting of an allocator helps.",
                 format("{} of {} are free, and {} asked for: short by {}.", printed(Meaning::free),
                        printed(Meaning::total), asked_words(), lacking_words()),
                 "End the others (`nvidia-smi` shows them), or lower gpu_memory_utilization."};
    out_.is_certain = true;
  }

  void bare() {
    switch (speaker_) {
      case Speaker::nccl:
      case Speaker::cublas:
      case Speaker::tensorrt:
        out_.lead = {
            format("{} asked the device itself for memory, not the framework's allocator.",
                   speaker_ == Speaker::nccl       ? "NCCL"
                   : speaker_ == Speaker::tensorrt ? "TensorRT"
                                                   : "cuBLAS or a like library"),
            "That allocator is not to blame, but its idle memory is what is missing here.",
            "Leave room for it: a memory fraction, or empty_cache() before its first use."};
        break;
      case Speaker::sglang:
        out_.cause = Cause::limit;
        out_.lead = {"The limit is SGLang's own: the share of the device that it may use.",
                     "Weights leave nothing of that share for the KV cache.",
                     "Raise --mem-fraction-static, or use a smaller model or more devices."};
        break;
      case Speaker::tgi:
        out_.cause = Cause::limit;
        out_.lead = {"The limit is the server's own: the share of the device that it may use.",
                     "Weights leave too little of that share for the tokens of one prefill.",
                     "Lower --max-batch-prefill-tokens, or use a smaller model or more devices."};
        break;
      case Speaker::vllm:
        if (message_.wording->trigger.ends_with("warmingup")) {
          out_.cause = Cause::need;
          out_.is_certain = false;
          out_.lead = {"vLLM's cache left too little of the device for its largest batch.",
                       "How much that batch needs is not told.",
                       "Lower max_num_seqs, or gpu_memory_utilization."};
          break;
        }
        out_.cause = Cause::limit;
        out_.lead = {"The limit is vLLM's own: the share of the device that it may use.",
                     message_.wording->trigger.starts_with("islarger")
                         ? "What weights and activations leave of that share holds fewer tokens "
                           "than asked for."
                         : "Weights and activations leave nothing of that share for the KV cache.",
                     "Raise gpu_memory_utilization, or use a smaller max_model_len or model."};
        break;
      case Speaker::rmm:
        if (message_.wording->trigger.ends_with("poolsizeexceeded")) {
          // RMM before 25.04 says so, too, of a device that refused.
          out_.lead = {
              "RMM's pool could not grow: its maximum size is reached, or the device is full.",
              "The message tells neither which, nor what was asked for, nor what is idle.",
              "See `nvidia-smi`: if the device has room, raise maximum_pool_size."};
          break;
        }
        [[fallthrough]];
      case Speaker::xla:
        if (const auto& excess = message_[Meaning::excess]) {
          out_.cause = Cause::need;
          out_.lead = {"The compiled program needs more than the device has: no setting helps.",
                       format("It is {} too large.", excess->printed),
                       "Shard it, rematerialize, or use a smaller batch."};
          break;
        }
        [[fallthrough]];
      default:
        if (speaker_ == Speaker::llama) {
          out_.lead = {
              "The program asked the device itself for memory, and the device refused.",
              "There is no pool in between, so no setting of one can help.",
              "Use fewer layers on this device, a smaller context, or free it for others."};
          break;
        }
        out_.lead = {
            "The message does not tell why: it has no figures, only that memory ran out.",
            speaker_ == Speaker::rmm || speaker_ == Speaker::numba || speaker_ == Speaker::cuda ||
                    speaker_ == Speaker::other_driver
                ? "It was the device that refused, not a pool of a framework, as far as it says."
                : "Neither what was asked for nor what the device had is told.",
            "A recording tells: see below. `nvidia-smi` says who holds the device now."};
    }
    out_.not_told = {"what was asked for", "what the device has and had free",
                     "what the program holds"};
  }

  /// Only what was asked for is known, or not what there was for it.
  void only_asked() {
    if (out_.idle && total_ && reserved_) {
      free_is_unknown();
      return;
    }
    if (speaker_ == Speaker::nccl || speaker_ == Speaker::llama || speaker_ == Speaker::tensorrt) {
      out_.lead = {
          format("{} asked the device itself for {}, and the device refused.",
                 speaker_ == Speaker::llama ? "The program" : framework(speaker_), asked_words()),
          speaker_ != Speaker::llama
              ? "The framework's allocator is not to blame, but what it holds is missing here."
              : "There is no pool in between, so no setting of one can help.",
          speaker_ == Speaker::nccl
              ? "Leave room: a memory fraction, fewer channels, empty_cache() before."
          : speaker_ == Speaker::tensorrt
              ? "Leave room, or allow the engine less: IBuilderConfig.set_memory_pool_limit()."
              : "Use fewer layers on this device, a smaller context, or free it for others."};
    } else {
      out_.lead = {
          speaker_ == Speaker::cuda
              ? format("{} asked of the device itself, and the device refused.", asked_words())
              : format("{} asked for and refused; why, the message does not tell.", asked_words())};
      if (const auto& program = message_[Meaning::program]) {
        out_.lead.push_back(
            format("The compiled program needs {} in all: nothing with less can hold it.",
                   program->printed));
      } else if (reserved_) {
        out_.lead.push_back(format("{} held {}; what of that was idle is not told.",
                                   allocator_of(speaker_), words_of(*reserved_)));
      } else {
        out_.lead.emplace_back(
            "Without what was free and idle, need and fragmentation look the same.");
      }
      if (speaker_ == Speaker::xla || speaker_ == Speaker::tensorflow) {
        out_.lead.emplace_back(
            "JAX takes 75 % of the device at its start, TensorFlow nearly all: a limit of its "
            "own.");
      } else {
        out_.lead.emplace_back("A recording tells: see below.");
      }
    }
    if (!free_) out_.not_told.emplace_back("what the device had free");
    if (!total_) out_.not_told.emplace_back("what the device has");
    if (!out_.idle) out_.not_told.emplace_back("what is idle in the allocator");
  }

  /// The device had free what is between nothing and all that this allocator does not hold.
  void free_is_unknown() {
    const auto most = *out_.idle + Range{0, (*total_ - *reserved_).most};
    const auto verdict = reaches(most, *asked_);
    out_.available = most;
    out_.lacking = *asked_ - most;
    out_.spare = most - *asked_;
    out_.not_told.emplace_back("what the device had free");
    const auto line = format("{} idle, {} at most free; {} asked for.", words_of(*out_.idle),
                             units::bytes((*total_ - *reserved_).most), asked_words());
    if (verdict == true) {
      out_.cause = Cause::waste;
      out_.is_certain = true;
      out_.lead = {"Fragmentation is possible: a layout without holes would serve the request.",
                   line, holes_setting(message_)};
    } else if (verdict == false) {
      out_.cause = Cause::need;
      out_.is_certain = true;
      out_.lead = {"No setting can help: less is idle, and free at most, than was asked for.", line,
                   "Hold less (a smaller batch, offloading), or use a larger device."};
    } else {
      out_.lead = {"Need or fragmentation: it depends on what was free, which is not told.", line,
                   "Idle alone does not suffice; `nvidia-smi` or the like says what is free."};
      out_.is_certain = false;
    }
  }

  /// What was asked for beside what there was for it.
  void compare() {
    if (!out_.idle && !message_.chunks && free_ && idle_decides()) {
      idle_is_unknown();
      return;
    }
    auto verdict = reaches(*out_.available, *asked_);
    const bool may_be_less =
        verdict == false && reaches(*out_.available, {least_needed(), asked_->most}) != false;
    if (may_be_less) verdict = std::nullopt;
    const bool would_fit = verdict.value_or(out_.available->middle() >= asked_->middle());
    out_.is_certain = verdict.has_value();
    if (!verdict && !may_be_less) {
      out_.notes.push_back(
          format("The figures are rounded: by them it is between {} short and {} to "
                 "spare.",
                 units::bytes(out_.lacking->most), units::bytes(out_.spare->most)));
    }
    if (message_.chunks) {
      chunks(verdict.value_or(false));
    } else if (would_fit && (verdict || !allowed_)) {
      fits();
    } else if (message_[Meaning::room]) {
      own_limit();
    } else if (room_ && (!free_ || is_refused_by_limit())) {
      own_limit();
    } else {
      lacks();
    }
  }

  /// What the tensor itself needs at least. PyTorch names what it asks the device for: 2 MiB for up
  /// to 1 MiB, 20 MiB for up to 10 MiB, and for more the next 2 MiB.
  std::uint64_t least_needed() const {
    const bool is_segment = message_.wording->trigger == "outofmemory.Triedtoallocate";
    const auto is = [&](std::uint64_t bytes) {
      return asked_->least <= bytes && bytes <= asked_->most;
    };
    if (!is_segment || asked_->least < 2_MiB - 10_KiB) return asked_->least;
    if (is(2_MiB)) return 1;
    return is(20_MiB) ? 1_MiB + 1 : asked_->least - 2_MiB + 1;
  }

  /// What a pool has idle, at most. Nothing of it is known where neither what it holds nor what the
  /// device has is told.
  std::optional<Range> idle_at_most() const {
    if (reserved_) return Range{0, reserved_->most};
    if (total_ && free_ && allocated_) return Range{0, (*total_ - *free_ - *allocated_).most};
    return std::nullopt;
  }

  /// Is the pool one that keeps what is freed, and could that be what lacks?
  bool idle_decides() const {
    if (speaker_ == Speaker::xla || speaker_ == Speaker::vllm) return false;
    if (reaches(*out_.available, *asked_) == true) return false;
    const auto idle = idle_at_most();
    return !idle || reaches(*out_.available + *idle, *asked_) != false;
  }

  void idle_is_unknown() {
    const auto idle = idle_at_most();
    out_.is_certain = false;
    out_.lead = {
        format("Need or fragmentation: it depends on what is idle in {}.", allocator_of(speaker_)),
        format("{} asked for, {} free: {} would have to be idle{}.", asked_words(), free_words(),
               lacking_words(), idle ? format(", of {} at most", units::bytes(idle->most)) : ""),
        "A recording tells: see below. `nvidia-smi` says who holds the device now."};
    out_.not_told.push_back(format("what is idle in {}", allocator_of(speaker_)));
    out_.available.reset();
    out_.lacking.reset();
    out_.spare.reset();
  }

  /// The dump of an allocator tells each byte.
  void chunks(bool within_limit) {
    const auto& chunks = *message_.chunks;
    if (chunks.free_bytes >= asked_->most) {
      fits();
      return;
    }
    const auto pieces = format("{} in use, {} idle in {} pieces", units::bytes(chunks.in_use_bytes),
                               units::bytes(chunks.free_bytes), chunks.free);
    if (within_limit) {
      out_.cause = Cause::others;
      out_.is_certain = false;
      out_.lead = {
          "The allocator's limit left room, so the device itself had no more to give.",
          format("{}; {} asked for, and the limit is {}.", pieces, asked_words(),
                 printed(Meaning::allowed)),
          "Others hold the rest of the device: see `nvidia-smi`; or the limit is too high."};
      out_.not_told.emplace_back("what the device had free");
      return;
    }
    out_.cause = Cause::need;
    out_.lead = {"No layout can help: less is idle, and allowed besides, than was asked for.",
                 format("{}; {} asked for: short by {}{}.", pieces, asked_words(),
                        allowed_ ? "" : "at most ", lacking_words()),
                 allowed_
                     ? format("Hold less, or raise the limit of {}.", printed(Meaning::allowed))
                     : std::string("Hold less. The limit of the allocator is not told.")};
  }

  /// Would the device have had enough, had the program no limit of its own?
  bool is_refused_by_limit() const {
    const auto without = out_.idle ? *free_ + *out_.idle : *free_;
    return without.middle() >= asked_->middle();
  }

  void fits() {
    // Where the rounded figures leave it open, the device did refuse for want of room.
    const bool has_room = growth_ && reaches(*growth_, *asked_) == true;
    const bool had_room = growth_ && !out_.idle && growth_->middle() >= asked_->middle();
    if (!message_.chunks && (has_room || had_room)) {
      room_was_there();
      return;
    }
    out_.cause = Cause::waste;
    const auto name = allocator_of(speaker_);
    out_.lead.push_back(
        out_.is_certain
            ? "Fragmentation is possible: a layout without holes would serve the request."
            : "Fragmentation is possible, but the rounded figures do not prove it.");
    if (message_.chunks) {
      const auto& chunks = *message_.chunks;
      out_.lead.push_back(format("{} idle in {} pieces, the largest of {}; {} asked for.",
                                 units::bytes(chunks.free_bytes), chunks.free,
                                 units::bytes(chunks.largest_free), asked_words()));
    } else {
      const auto free_too =
          growth_ && growth_->most > 0 ? format(", {} free", words_of(*growth_)) : "";
      const auto& idle = message_[Meaning::idle];
      out_.lead.push_back(format("{} idle in {}{}; {} asked for.",
                                 idle ? idle->printed : words_of(*out_.idle), name, free_too,
                                 asked_words()));
    }
    out_.lead.push_back(holes_setting(message_));
    if (speaker_ == Speaker::torch) {
      out_.notes.emplace_back(
          "PyTorch gives wholly free segments back before it fails, so what is idle is stuck in "
          "partly used ones: by pool and stream, which the message does not tell.");
    }
  }

  void room_was_there() {
    // A limit of its own leaves as much, or none is told.
    out_.cause = Cause::limit;
    const bool of_limit = room_ && !free_;
    if (of_limit) {
      out_.cause = Cause::not_known;
      out_.is_certain = false;
      out_.lead = {
          format("It is not the limit of {}: that leaves {}, and {} were asked for.",
                 allocator_of(speaker_), words_of(*growth_), asked_words()),
          "So the device itself had no more: others hold the rest, or the limit is too high.",
          "`nvidia-smi` says who holds the device; a recording, what the program holds."};
      out_.not_told = {"what the device had free", "what is idle in the allocator"};
      return;
    }
    out_.lead = {
        "The device had room: neither need nor the allocator's holes are to blame.",
        format("{} free as the message was made, {} asked for.", printed(Meaning::free),
               asked_words()),
        "A limit from outside refused (MIG, cgroup), or another process has let go since."};
  }

  void own_limit() {
    out_.cause = Cause::limit;
    const auto name = allocator_of(speaker_);
    const auto setting = limit_setting(speaker_);
    if (message_[Meaning::room]) {
      out_.lead = {format("The limit is the program's own: {}.", setting),
                   format("It leaves {}, {} asked for: short by {}.", printed(Meaning::room),
                          asked_words(), lacking_words()),
                   "Raise it, if others leave the device to this program."};
      return;
    }
    out_.lead.push_back(
        format("The limit is the program's own: {} allowed{}.", printed(Meaning::allowed),
               free_ ? format(", while the device has {} free", printed(Meaning::free)) : ""));
    out_.lead.push_back(format("{} held, {} asked for: short by {}.",
                               words_of(*reserved_or_allocated()), asked_words(), lacking_words()));
    out_.lead.push_back(format("{}: {}.",
                               free_ ? format("{} is not to blame. Raise it", name)
                                     : std::string("Hold less, or raise it"),
                               setting));
    if (!out_.idle)
      out_.not_told.emplace_back("how much of that is idle: holes and need look the same");
    if (total_ && allowed_ && total_->least > 0) {
      out_.notes.push_back(format(
          "The limit is {} of the device: a memory fraction.",
          text::fixed(
              static_cast<double>(allowed_->middle()) / static_cast<double>(total_->middle()), 4)));
    }
  }
  std::optional<Range> reserved_or_allocated() const { return reserved_ ? reserved_ : allocated_; }

  void lacks() {
    const auto name = allocator_of(speaker_);
    const auto held_by_others = out_.others && reaches(*out_.others, *out_.lacking) == true &&
                                out_.others->least >= kContextLeast;
    const auto not_a_context =
        out_.outside && out_.outside->least > kContextMost &&
        reaches(*out_.outside - Range{kContextMost, kContextMost}, *out_.lacking) == true;
    const bool own_fits = total_ && allocated_ && reaches(*total_, *allocated_ + *asked_) == true;
    out_.cause = own_fits && (held_by_others || (!out_.others && not_a_context)) ? Cause::others
                                                                                 : Cause::need;
    const auto there = out_.idle ? format("{} idle{}", idle_words(),
                                          growth_ ? format(", {} free", free_words()) : "")
                                 : format("{} free", free_words());
    if (out_.cause == Cause::others) {
      out_.lead.push_back(format("Others hold the memory: no setting of this allocator {} help.",
                                 out_.is_certain ? "can" : "is likely to"));
      out_.lead.push_back(
          format("{} asked for, {}: short by {}.", asked_words(), there, lacking_words()));
      out_.lead.push_back(
          held_by_others
              ? format("Other processes hold {} of {}: see `nvidia-smi`.", words_of(*out_.others),
                       printed(Meaning::total))
              : format("{} of {} lie outside of {}: other processes, as `nvidia-smi` shows.",
                       words_of(*out_.outside), printed(Meaning::total), name));
      return;
    }
    out_.lead.push_back(
        out_.is_certain
            ? "No setting can help: less is idle and free than was asked for."
            : "No setting is likely to help: probably less is idle than was asked for.");
    out_.lead.push_back(
        format("{} asked for, {}: short by {}.", asked_words(), there, lacking_words()));
    out_.lead.push_back(
        out_.outside && out_.outside->least > 0
            ? format("Hold less, or use a larger device; {} lie outside of {}.",
                     words_of(*out_.outside), name)
            : std::string("Hold less (a smaller batch, offloading), or use a larger device."));
  }
  std::string idle_words() const {
    const auto& idle = message_[Meaning::idle];
    return idle ? idle->printed : words_of(*out_.idle);
  }

  std::string free_words() const {
    const auto& figure = message_[Meaning::free];
    return figure && growth_ == free_ ? printed(Meaning::free) : words_of(*growth_);
  }

  /// What holds whatever the cause.
  void more() {
    if (allocated_ && total_ && reaches(*total_, *reserved_or_allocated()) == false) {
      out_.notes.push_back(
          format("{} hold more than the device has: the driver lends memory of the host to it, as "
                 "on Windows.",
                 allocator_of(speaker_)));
    }
    if (speaker_ == Speaker::torch && asked_ &&
        (printed(Meaning::asked) == "20.00 MiB" || printed(Meaning::asked) == "2.00 MiB")) {
      out_.notes.push_back(
          format("PyTorch asks the device for {} where a tensor of {} needs it: the tensor itself "
                 "may be as small.",
                 printed(Meaning::asked),
                 printed(Meaning::asked) == "2.00 MiB" ? "1 MiB or less" : "1 to 10 MiB"));
    }
    if (out_.outside && out_.cause != Cause::others) {
      out_.notes.push_back(format(
          "Outside of {} lie {} of the device: the context, libraries that allocate themselves, "
          "other processes.",
          allocator_of(speaker_), words_of(*out_.outside)));
    }
    if (const auto process = message_.bytes(Meaning::process); process && reserved_) {
      out_.notes.push_back(
          format("Of this process {} lie outside of {}: its context and libraries.",
                 words_of(*process - *reserved_), allocator_of(speaker_)));
    }
    if (const auto& pools = message_[Meaning::private_pools]) {
      out_.notes.push_back(
          format("{} lie in private pools, as of CUDA graphs. What is idle there serves no other "
                 "request; how much that is the message does not tell.",
                 pools->printed));
    }
    if (speaker_ == Speaker::torch && message_.has_figures() && !free_)
      out_.not_told.emplace_back("what the device had free");
    if (speaker_ == Speaker::torch && message_.has_figures()) {
      out_.not_told.emplace_back("what is returnable and what is stuck, by pool and stream");
      out_.not_told.emplace_back("which lines hold it");
    }
  }

  const Message& message_;
  Speaker speaker_;
  std::optional<Range> asked_, total_, free_, allowed_, reserved_, allocated_, room_, growth_;
  Answer out_;
};

}  // namespace

Answer answer(const Message& message) { return Judge(message).judge(); }

}  // namespace emm::message
