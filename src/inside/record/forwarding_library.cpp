#include "record/forwarding_library.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.hpp"

namespace emm::record {
namespace {

constexpr std::size_t kPage = 4096;

/// A file that is mapped read-only while this object lives.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) return;
    struct stat about {};
    if (fstat(opened, &about) == 0 && about.st_size > 0) {
      size_ = static_cast<std::size_t>(about.st_size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened, 0);
    }
    ::close(opened);
  }
  ~Mapped() {
    if (data_ != MAP_FAILED) munmap(data_, size_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  bool ok() const noexcept { return data_ != MAP_FAILED; }
  /// Returns the bytes [at, at + size), or nothing when the file does not have all of them.
  std::string_view part(std::uint64_t at, std::uint64_t size) const noexcept {
    if (at > size_ || size > size_ - at) return {};
    return {static_cast<const char*>(data_) + at, static_cast<std::size_t>(size)};
  }
  template <class T>
  bool read(std::uint64_t at, T& to) const noexcept {
    const auto bytes = part(at, sizeof(T));
    if (bytes.empty()) return false;
    std::memcpy(&to, bytes.data(), sizeof(T));
    return true;
  }

 private:
  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

std::uint32_t sysv_hash(std::string_view name) noexcept {
  std::uint32_t hash = 0;
  for (const auto c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    const auto high = hash & 0xf0000000u;
    hash ^= high >> 24;
    hash &= ~high;
  }
  return hash;
}

/// The library as it is built up. The offset of a byte in the file is also its offset in memory.
class Image {
 public:
  std::size_t size() const noexcept { return bytes_.size(); }
  void align(std::size_t to) { bytes_.resize((bytes_.size() + to - 1) / to * to, '\0'); }
  std::size_t add(std::string_view bytes) {
    const auto at = bytes_.size();
    bytes_ += bytes;
    return at;
  }
  template <class T>
  std::size_t add_value(const T& value) {
    return add({reinterpret_cast<const char*>(&value), sizeof value});
  }
  std::size_t add_zeros(std::size_t count) {
    const auto at = bytes_.size();
    bytes_.resize(at + count, '\0');
    return at;
  }
  template <class T>
  void put(std::size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  /// Writes the distance from the end of the four bytes at `at` to `target`.
  void put_relative(std::size_t at, std::size_t target) {
    put(at, static_cast<std::int32_t>(static_cast<std::int64_t>(target) -
                                      static_cast<std::int64_t>(at + 4)));
  }
  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

namespace {

std::string string_at(std::string_view strings, std::uint64_t at) {
  if (at >= strings.size()) return {};
  const auto rest = strings.substr(static_cast<std::size_t>(at));
  return std::string(rest.substr(0, rest.find('\0')));
}

/// The names of the versions that a library defines, by their numbers.
std::map<std::uint16_t, std::string> versions_in(const Mapped& file, const Elf64_Shdr& section,
                                                 std::string_view strings) {
  std::map<std::uint16_t, std::string> found;
  std::uint64_t at = section.sh_offset;
  for (std::uint32_t i = 0; i < section.sh_info; ++i) {
    Elf64_Verdef defined{};
    Elf64_Verdaux name{};
    if (!file.read(at, defined) || !file.read(at + defined.vd_aux, name)) break;
    if ((defined.vd_flags & VER_FLG_BASE) == 0)
      found[defined.vd_ndx] = string_at(strings, name.vda_name);
    if (defined.vd_next == 0) break;
    at += defined.vd_next;
  }
  return found;
}

}  // namespace

Result<LibraryExports> exports_of(const std::string& path) {
  const Mapped file(path);
  if (!file.ok()) return fail(Errc::io_error, "{}: the library cannot be read", path);
  Elf64_Ehdr header{};
  const auto damaged = [&] {
    return fail(Errc::parse_error, "{}: expected a shared library for this machine", path);
  };
  if (!file.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
    return damaged();
  const auto section_at = [&](std::uint64_t i, Elf64_Shdr& section) {
    return i < header.e_shnum && file.read(header.e_shoff + i * sizeof section, section);
  };
  Elf64_Shdr symbols{}, numbers{}, definitions{}, dynamic{};
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section{};
    if (!section_at(i, section)) return damaged();
    if (section.sh_type == SHT_DYNSYM) symbols = section;
    if (section.sh_type == SHT_GNU_versym) numbers = section;
    if (section.sh_type == SHT_GNU_verdef) definitions = section;
    if (section.sh_type == SHT_DYNAMIC) dynamic = section;
  }
  Elf64_Shdr names{};
  if (symbols.sh_type == 0 || !section_at(symbols.sh_link, names)) return damaged();
  const auto text = file.part(names.sh_offset, names.sh_size);
  const auto versions = versions_in(file, definitions, text);

  LibraryExports found;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.sh_size; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry{};
    if (!file.read(dynamic.sh_offset + at, entry)) return damaged();
    if (entry.d_tag == DT_SONAME) found.soname = string_at(text, entry.d_un.d_val);
  }
  for (std::uint64_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= symbols.sh_size; ++i) {
    Elf64_Sym symbol{};
    if (!file.read(symbols.sh_offset + i * sizeof symbol, symbol)) return damaged();
    const auto type = ELF64_ST_TYPE(symbol.st_info), bind = ELF64_ST_BIND(symbol.st_info);
    const bool offered = symbol.st_shndx != SHN_UNDEF &&
                         (type == STT_FUNC || type == STT_GNU_IFUNC) &&
                         (bind == STB_GLOBAL || bind == STB_WEAK);
    if (!offered) continue;
    ExportedFunction function{.name = string_at(text, symbol.st_name)};
    if (function.name.empty() || function.name == "_init" || function.name == "_fini") continue;
    constexpr std::uint16_t kHidden = 0x8000;  // an older version of a function
    std::uint16_t number = 0;
    if (numbers.sh_type != 0 && file.read(numbers.sh_offset + i * sizeof number, number)) {
      if ((number & kHidden) != 0) continue;
      if (const auto version = versions.find(number); version != versions.end())
        function.version = version->second;
    }
    found.functions.push_back(std::move(function));
  }
  if (found.functions.empty()) return damaged();
  return found;
}

Result<std::vector<std::string>> functions_of(const std::string& path) {
  auto exports = exports_of(path);
  if (!exports) return std::move(exports).error();
  std::vector<std::string> found;
  for (auto& function : exports->functions) {
    if (function.name[0] != '_') found.push_back(std::move(function.name));  // C++'s own
  }
  if (found.empty())
    return fail(Errc::parse_error, "{}: expected a shared library for this machine", path);
  return found;
}

std::string forwarding_library(const std::string& soname, const std::string& recorder,
                               const std::vector<std::string>& functions,
                               const std::vector<std::pair<std::string, std::string>>& settings) {
  ForwardingLibrary library{.soname = soname,
                            .opener = recorder,
                            .open = "emm_record_open",
                            .functions = {},
                            .settings = settings};
  for (const auto& name : functions) library.functions.push_back({.name = name});
  return build(library);
}

std::string build(const ForwardingLibrary& library) {
#if !defined(__x86_64__)
  (void)library;
  return {};
#else
  // Those that are forwarded come first.
  auto functions = library.functions;
  const auto forwarded_end =
      std::stable_partition(functions.begin(), functions.end(),
                            [](const ExportedFunction& function) { return !function.counted; });
  const auto forwarded = static_cast<std::size_t>(forwarded_end - functions.begin());
  const auto counted = functions.size() - forwarded;
  std::vector<std::string> versions;
  for (const auto& function : functions) {
    if (!function.version.empty() &&
        std::find(versions.begin(), versions.end(), function.version) == versions.end())
      versions.push_back(function.version);
  }
  constexpr std::size_t kStub = 32, kHeaders = 4;
  const auto count = functions.size();
  Image image;
  image.add_zeros(sizeof(Elf64_Ehdr) + kHeaders * sizeof(Elf64_Phdr));

  // The names come first. Symbol 0 is the null symbol, symbol 1 is the recorder's, and the
  // library's functions follow.
  std::string strings(1, '\0');
  const auto add_string = [&](std::string_view text) {
    const auto at = strings.size();
    strings.append(text);
    strings.push_back('\0');
    return static_cast<Elf64_Word>(at);
  };
  for (const auto& [name, value] : library.settings) add_string(text::format("{}={}", name, value));
  add_string({});
  const auto soname_at = add_string(library.soname), opener_at = add_string(library.opener);
  const auto open_at = add_string(library.open);
  std::vector<Elf64_Word> names;
  names.reserve(count);
  for (const auto& function : functions) names.push_back(add_string(function.name));
  std::vector<Elf64_Word> version_names;
  for (const auto& version : versions) version_names.push_back(add_string(version));
  image.align(8);
  const auto strings_at = image.add(strings);
  image.align(8);
  const auto symbols_at = image.add_zeros((count + 2) * sizeof(Elf64_Sym));
  const auto first_at = symbols_at + 2 * sizeof(Elf64_Sym);

  image.align(8);
  const auto buckets = static_cast<std::uint32_t>(count / 2 + 1);
  const auto symbol_count = static_cast<std::uint32_t>(count + 2);
  std::vector<std::uint32_t> bucket(buckets), chain(symbol_count);
  const auto put_in_hash = [&](std::string_view name, std::uint32_t symbol) {
    auto& head = bucket[sysv_hash(name) % buckets];
    chain[symbol] = head;
    head = symbol;
  };
  for (std::uint32_t i = 0; i < count; ++i) put_in_hash(functions[i].name, i + 2);
  const auto hash_at = image.add_value(buckets);
  image.add_value(symbol_count);
  for (const auto value : bucket) image.add_value(value);
  for (const auto value : chain) image.add_value(value);

  // The versions: of each symbol, and their names. The first is the library's own.
  image.align(8);
  const auto numbers_at = image.size();
  if (!versions.empty()) {
    image.add_value(std::uint16_t{0});  // the null symbol, and the opener's
    image.add_value(std::uint16_t{0});
    for (const auto& function : functions) {
      const auto found = std::find(versions.begin(), versions.end(), function.version);
      image.add_value(
          static_cast<std::uint16_t>(found == versions.end() ? 1 : 2 + (found - versions.begin())));
    }
  }
  image.align(8);
  const auto definitions_at = image.size();
  for (std::size_t i = 0; !versions.empty() && i <= versions.size(); ++i) {
    Elf64_Verdef defined{};
    defined.vd_version = VER_DEF_CURRENT;
    defined.vd_flags = i == 0 ? VER_FLG_BASE : 0;
    defined.vd_ndx = static_cast<Elf64_Half>(i + 1);
    defined.vd_cnt = 1;
    defined.vd_hash = sysv_hash(i == 0 ? library.soname : versions[i - 1]);
    defined.vd_aux = sizeof defined;
    defined.vd_next = i == versions.size() ? 0 : sizeof defined + sizeof(Elf64_Verdaux);
    image.add_value(defined);
    Elf64_Verdaux name{};
    name.vda_name = i == 0 ? soname_at : version_names[i - 1];
    image.add_value(name);
  }

  image.align(8);
  const auto relocation_at = image.add_zeros(sizeof(Elf64_Rela));

  image.align(16);
  const auto init_at = image.add_zeros(64);
  image.align(kStub);
  const auto stubs_at = image.add_zeros(count * kStub);

  image.align(kPage);
  const auto data_at = image.size();
  const auto dynamic_at = image.size();
  std::vector<std::pair<Elf64_Sxword, Elf64_Xword>> dynamic = {
      {DT_NEEDED, opener_at},
      {DT_SONAME, soname_at},
      {DT_HASH, hash_at},
      {DT_STRTAB, strings_at},
      {DT_SYMTAB, symbols_at},
      {DT_STRSZ, strings.size()},
      {DT_SYMENT, sizeof(Elf64_Sym)},
      {DT_RELA, relocation_at},
      {DT_RELASZ, sizeof(Elf64_Rela)},
      {DT_RELAENT, sizeof(Elf64_Rela)},
      {DT_INIT, init_at},
      {DT_FLAGS, DF_BIND_NOW},
      // The recorder keeps the real driver loaded. After dlclose and dlopen, a program would reach
      // that one past this library, so this library stays loaded too.
      {DT_FLAGS_1, DF_1_NODELETE},
  };
  if (!versions.empty()) {
    dynamic.emplace_back(DT_VERSYM, numbers_at);
    dynamic.emplace_back(DT_VERDEF, definitions_at);
    dynamic.emplace_back(DT_VERDEFNUM, versions.size() + 1);
  }
  dynamic.emplace_back(DT_NULL, 0);
  for (const auto& [tag, value] : dynamic) {
    Elf64_Dyn entry{};
    entry.d_tag = tag;
    entry.d_un.d_val = value;
    image.add_value(entry);
  }
  const auto got_at = image.add_zeros(8);
  const auto slots_at = image.add_zeros(forwarded * 8);
  if (counted != 0) image.align(kPage);
  const auto counters_at = image.add_zeros(counted * 8);
  if (counted != 0) image.align(kPage);

  Elf64_Rela relocation{};
  relocation.r_offset = got_at;
  relocation.r_info = ELF64_R_INFO(1, R_X86_64_GLOB_DAT);
  image.put(relocation_at, relocation);
  Elf64_Sym symbol{};
  symbol.st_name = open_at;
  symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  image.put(symbols_at + sizeof symbol, symbol);

  // endbr64; lea rdi, slots; lea rsi, symbols; lea rdx, strings; mov ecx, forwarded;
  // lea r8, counters; mov r9d, counted; jmp [got]
  constexpr char kInit[] =
      "\xf3\x0f\x1e\xfa"
      "\x48\x8d\x3d\0\0\0\0"
      "\x48\x8d\x35\0\0\0\0"
      "\x48\x8d\x15\0\0\0\0"
      "\xb9\0\0\0\0"
      "\x4c\x8d\x05\0\0\0\0"
      "\x41\xb9\0\0\0\0"
      "\xff\x25\0\0\0\0";
  for (std::size_t i = 0; i + 1 < sizeof kInit; ++i) image.put(init_at + i, kInit[i]);
  image.put_relative(init_at + 7, slots_at);
  image.put_relative(init_at + 14, first_at);
  image.put_relative(init_at + 21, strings_at);
  image.put(init_at + 26, static_cast<std::uint32_t>(forwarded));
  image.put_relative(init_at + 33, counters_at);
  image.put(init_at + 39, static_cast<std::uint32_t>(counted));
  image.put_relative(init_at + 45, got_at);

  for (std::size_t i = 0; i < count; ++i) {
    const auto stub = stubs_at + i * kStub;
    if (i < forwarded) {
      constexpr char kJump[] = "\xf3\x0f\x1e\xfa\xff\x25\0\0\0\0";  // endbr64; jmp [slot]
      for (std::size_t b = 0; b + 1 < sizeof kJump; ++b) image.put(stub + b, kJump[b]);
      image.put_relative(stub + 6, slots_at + i * 8);
    } else {
      // endbr64; lock inc qword [counter]; mov eax, answer; ret
      constexpr char kCount[] = "\xf3\x0f\x1e\xfa\xf0\x48\xff\x05\0\0\0\0\xb8\0\0\0\0\xc3";
      for (std::size_t b = 0; b + 1 < sizeof kCount; ++b) image.put(stub + b, kCount[b]);
      image.put_relative(stub + 8, counters_at + (i - forwarded) * 8);
      image.put(stub + 13, functions[i].answer);
    }
    Elf64_Sym offered{};
    offered.st_name = names[i];
    offered.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    offered.st_shndx = 1;  // any index but 0 will do: there are no sections
    offered.st_value = stub;
    offered.st_size = kStub;
    image.put(first_at + i * sizeof offered, offered);
  }

  const auto size = image.size();
  const auto segment = [](Elf64_Word type, Elf64_Word flags, std::size_t at, std::size_t bytes,
                          std::size_t alignment) {
    Elf64_Phdr made{};
    made.p_type = type;
    made.p_flags = flags;
    made.p_offset = made.p_vaddr = made.p_paddr = at;
    made.p_filesz = made.p_memsz = bytes;
    made.p_align = alignment;
    return made;
  };
  const Elf64_Phdr segments[kHeaders] = {
      segment(PT_LOAD, PF_R | PF_X, 0, data_at, kPage),
      segment(PT_LOAD, PF_R | PF_W, data_at, size - data_at, kPage),
      segment(PT_DYNAMIC, PF_R | PF_W, dynamic_at, sizeof(Elf64_Dyn) * dynamic.size(), 8),
      segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 16),
  };
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = kHeaders;
  image.put(0, header);
  for (std::size_t i = 0; i < kHeaders; ++i) {
    image.put(sizeof header + i * sizeof(Elf64_Phdr), segments[i]);
  }
  return std::move(image).take();
#endif
}

}  // namespace emm::record
