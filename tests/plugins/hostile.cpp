// A plugin that passes everything to the driver but for the one thing that its option says:
// "memalloc=throws" is how its memalloc goes wrong, from the second on.
#include <plugin/emm_plugin.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

struct emm_manager {
  const emm_driver_v1* driver = nullptr;
  std::string slot, does;
  int calls = 0;
  emm_device_ptr first = 0;

  /// What the option says of `name`, from its second call on.
  std::string in(const char* name) {
    if (slot != name) return "";
    return ++calls > 1 || slot != "memalloc" ? does : "";
  }
};

namespace {

/// Does what ends or harms the process; false where `does` is none of that.
void do_harm(const std::string& does) {
  if (does == "crashes") std::raise(SIGSEGV);
  if (does == "aborts") std::abort();
  if (does == "exits") std::exit(0);
  if (does == "leaves") _exit(0);
  if (does == "hangs") {
    while (true) pause();
  }
  if (does == "deaf") {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    while (true) pause();
  }
  if (does == "dies") std::raise(SIGKILL);
  if (does == "later") std::atexit(std::abort);
  if (does == "stays") {
    std::atexit([] {
      while (true) pause();
    });
  }
  if (does == "closes") {
    for (int file = 0; file < 256; ++file) close(file);
  }
  if (does == "prints") {  // and goes elsewhere
    for (int i = 0; i < 3; ++i) std::puts("a plugin's own words");
    if (chdir("/") != 0) std::abort();
  }
  if (does == "forks" && fork() == 0) {
    setsid();
    while (true) pause();
  }
  if (does == "throws") throw std::runtime_error("thrown by a plugin");
  if (does == "damages") {
    auto* block = static_cast<char*>(std::malloc(24));
    auto* volatile behind = block;  // so that nobody sees it coming
    std::free(block);
    std::free(behind);
  }
}

emm_status create(const emm_create_v1* create, emm_manager** self) {
  const std::string options = create->options;
  const auto equals = options.find('=');
  auto* made = new emm_manager;
  made->driver = create->driver;
  if (equals != std::string::npos) {
    made->slot = options.substr(0, equals);
    made->does = options.substr(equals + 1);
  }
  const auto does = made->in("create");
  do_harm(does);
  if (does == "null" || does == "fails" || does == "refuses") delete made, made = nullptr;
  *self = made;
  if (does == "fails") return EMM_OUT_OF_MEMORY;
  return does == "refuses" ? EMM_INVALID_VALUE : EMM_SUCCESS;
}

emm_status memalloc(emm_manager* self, uint64_t size, emm_stream, emm_memory* memory) {
  const auto does = self->in("memalloc");
  do_harm(does);
  if (does == "status") return 12345;
  if (does == "minus") return -1;
  if (does == "nothing") return EMM_SUCCESS;
  if (does == "beyond") std::memset(memory, 0, sizeof *memory + 16);
  if (does == "resizes") memory->struct_size = 4;
  const auto status =
      self->driver->mem_alloc(self->driver->user, size + 512, &memory->device_pointer);
  memory->token = memory->device_pointer;
  if (self->first == 0) self->first = memory->device_pointer;
  if (does == "misaligned") memory->device_pointer += 8;
  if (does == "same" || does == "same_crashes") memory->device_pointer = self->first;
  if (does == "same_crashes" && self->calls > 3) std::raise(SIGSEGV);
  return status;
}

emm_status free_memory(emm_manager* self, emm_token token, emm_stream) {
  const auto does = self->in("free");
  do_harm(does);
  if (does == "refuses") return EMM_INVALID_VALUE;
  return self->driver->mem_free(self->driver->user, token);
}

}  // namespace

extern "C" const emm_plugin_table_v1* emm_plugin_v1() {
  static const emm_plugin_table_v1 table = [] {
    emm_plugin_table_v1 slots{};
    slots.struct_size = sizeof slots;
    slots.abi_version = EMM_PLUGIN_ABI_VERSION;
    slots.name = "hostile";
    slots.create = create;
    slots.destroy = [](emm_manager* self) {
      const auto does = self->in("destroy");
      delete self;
      do_harm(does);
    };
    slots.memalloc = memalloc;
    slots.free = free_memory;
    slots.memhostalloc = [](emm_manager*, uint64_t, uint32_t, emm_memory*) -> emm_status {
      return EMM_SUCCESS;
    };
    slots.mempin = [](emm_manager*, void*, uint64_t, uint32_t, emm_memory*) -> emm_status {
      return EMM_SUCCESS;
    };
    slots.memallocmanaged = [](emm_manager*, uint64_t, uint32_t, emm_memory*) -> emm_status {
      return EMM_SUCCESS;
    };
    slots.defer_cleanup = [](emm_manager* self) { do_harm(self->in("defer_cleanup")); };
    slots.end_defer_cleanup = [](emm_manager* self) { do_harm(self->in("end_defer_cleanup")); };
    slots.interface_version = [](emm_manager* self) -> int32_t {
      do_harm(self->in("interface_version"));
      return 1;
    };
    slots.state = [](emm_manager* self, emm_state* state) {
      if (self->in("state") == "beyond") std::memset(state, 0, sizeof *state + 16);
    };
    slots.report = [](emm_manager* self, char* buffer, size_t size) {
      const auto does = self->in("report");
      do_harm(does);
      constexpr std::string_view kWords = "hostile: done\n";
      if (size == 0) return kWords.size();
      const auto fits = std::min(kWords.size(), size - 1);
      std::memcpy(buffer, kWords.data(), fits);
      buffer[fits] = does == "unended" ? '.' : '\0';
      return kWords.size();
    };
    slots.statistics = [](emm_manager* self, emm_statistic* statistics, size_t count) -> size_t {
      const auto does = self->in("statistics");
      do_harm(does);
      const emm_statistic all[] = {
          {"num_ooms", 3}, {does == "twice" ? "num_ooms" : "of its own", 7}, {nullptr, 1}};
      const size_t there_are = does == "nameless" ? 3 : 2;
      for (size_t i = 0; i < there_are && i < count; ++i) statistics[i] = all[i];
      if (does == "beyond") statistics[count] = {"num_ooms", 4};
      return does == "many" ? SIZE_MAX : does == "few" && count < 2 ? count : there_are;
    };
    return slots;
  }();
  return &table;
}
