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

#include "base/text_format.hpp"

namespace emm::record {
namespace {

constexpr std::size_t kPage = 4096;  // bytes, of x86-64: code and data have pages of their own

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

#if defined(__x86_64__)
namespace {

constexpr std::size_t kStub = 32;    // bytes: the longer of the two stubs has 18
constexpr std::size_t kInit = 64;    // bytes: the code of DT_INIT has 49
constexpr std::size_t kHeaders = 4;  // code, data, PT_DYNAMIC and PT_GNU_STACK
// Bytes of an address that the opener fills in, and of a counter.
constexpr std::size_t kSlot = sizeof(Elf64_Addr);

/// The library in the order in which its bytes stand: headers, names, symbols, hash table,
/// versions, the one relocation, code, and from the next page on all that is written to at run
/// time.
///
/// The steps of make() run in this order. Those that reserve room note where it is, and those that
/// fill it in come after everything has its place.
class LibraryMaker {
 public:
  explicit LibraryMaker(const ForwardingLibrary& library)
      : library_(library), functions_(library.functions) {
    // Those that are forwarded come first.
    const auto end =
        std::stable_partition(functions_.begin(), functions_.end(),
                              [](const ExportedFunction& function) { return !function.counted; });
    forwarded_ = static_cast<std::size_t>(end - functions_.begin());
    for (const auto& function : functions_) {
      if (!function.version.empty() &&
          std::find(versions_.begin(), versions_.end(), function.version) == versions_.end())
        versions_.push_back(function.version);
    }
  }

  std::string make() && {
    image_.add_zeros(sizeof(Elf64_Ehdr) + kHeaders * sizeof(Elf64_Phdr));
    add_names();
    add_symbols();
    add_hash_table();
    add_versions();
    image_.align(8);
    relocation_at_ = image_.add_zeros(sizeof(Elf64_Rela));
    image_.align(16);
    init_at_ = image_.add_zeros(kInit);
    image_.align(kStub);
    stubs_at_ = image_.add_zeros(functions_.size() * kStub);
    image_.align(kPage);
    data_at_ = image_.size();
    add_dynamic_section();
    add_data();
    put_opener();
    put_init();
    for (std::size_t i = 0; i < functions_.size(); ++i) put_function(i);
    put_headers();
    return std::move(image_).take();
  }

 private:
  std::size_t counted() const noexcept { return functions_.size() - forwarded_; }

  Elf64_Word add_string(std::string_view text) {
    const auto at = strings_.size();
    strings_.append(text);
    strings_.push_back('\0');
    return static_cast<Elf64_Word>(at);
  }

  /// The settings stand at the front, where the opener finds them without an index.
  void add_names() {
    strings_.assign(1, '\0');
    for (const auto& [name, value] : library_.settings)
      add_string(text::format("{}={}", name, value));
    add_string({});
    soname_ = add_string(library_.soname);
    opener_ = add_string(library_.opener);
    open_ = add_string(library_.open);
    names_.reserve(functions_.size());
    for (const auto& function : functions_) names_.push_back(add_string(function.name));
    for (const auto& version : versions_) version_names_.push_back(add_string(version));
    image_.align(8);
    strings_at_ = image_.add(strings_);
  }

  /// Symbol 0 is the null symbol, symbol 1 is the recorder's, and the library's functions follow.
  void add_symbols() {
    image_.align(8);
    symbols_at_ = image_.add_zeros((functions_.size() + 2) * sizeof(Elf64_Sym));
    first_at_ = symbols_at_ + 2 * sizeof(Elf64_Sym);
  }

  /// DT_HASH has a chain of symbols for each bucket; two symbols share one on average.
  void add_hash_table() {
    image_.align(8);
    const auto count = functions_.size();
    const auto buckets = static_cast<std::uint32_t>(count / 2 + 1);
    const auto symbols = static_cast<std::uint32_t>(count + 2);
    std::vector<std::uint32_t> bucket(buckets), chain(symbols);
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& head = bucket[sysv_hash(functions_[i].name) % buckets];
      chain[i + 2] = head;
      head = i + 2;
    }
    hash_at_ = image_.add_value(buckets);
    image_.add_value(symbols);
    for (const auto value : bucket) image_.add_value(value);
    for (const auto value : chain) image_.add_value(value);
  }

  /// Adds the version of each symbol, then the names of the versions. Version 1 is the library's
  /// own; that of versions_[i] is i + 2.
  void add_versions() {
    image_.align(8);
    numbers_at_ = image_.size();
    if (!versions_.empty()) {
      image_.add_value(std::uint16_t{0});  // the null symbol, and the opener's
      image_.add_value(std::uint16_t{0});
      for (const auto& function : functions_) {
        const auto found = std::find(versions_.begin(), versions_.end(), function.version);
        image_.add_value(static_cast<std::uint16_t>(
            found == versions_.end() ? 1 : 2 + (found - versions_.begin())));
      }
    }
    image_.align(8);
    definitions_at_ = image_.size();
    for (std::size_t i = 0; !versions_.empty() && i <= versions_.size(); ++i) {
      Elf64_Verdef defined{};
      defined.vd_version = VER_DEF_CURRENT;
      defined.vd_flags = i == 0 ? VER_FLG_BASE : 0;
      defined.vd_ndx = static_cast<Elf64_Half>(i + 1);
      defined.vd_cnt = 1;
      defined.vd_hash = sysv_hash(i == 0 ? library_.soname : versions_[i - 1]);
      defined.vd_aux = sizeof defined;
      defined.vd_next = i == versions_.size() ? 0 : sizeof defined + sizeof(Elf64_Verdaux);
      image_.add_value(defined);
      Elf64_Verdaux name{};
      name.vda_name = i == 0 ? soname_ : version_names_[i - 1];
      image_.add_value(name);
    }
  }

  /// What the loader reads: where everything above stands.
  void add_dynamic_section() {
    std::vector<std::pair<Elf64_Sxword, Elf64_Xword>> entries = {
        {DT_NEEDED, opener_},
        {DT_SONAME, soname_},
        {DT_HASH, hash_at_},
        {DT_STRTAB, strings_at_},
        {DT_SYMTAB, symbols_at_},
        {DT_STRSZ, strings_.size()},
        {DT_SYMENT, sizeof(Elf64_Sym)},
        {DT_RELA, relocation_at_},
        {DT_RELASZ, sizeof(Elf64_Rela)},
        {DT_RELAENT, sizeof(Elf64_Rela)},
        {DT_INIT, init_at_},
        {DT_FLAGS, DF_BIND_NOW},
        // The recorder keeps the real driver loaded. After dlclose and dlopen, a program would
        // reach that one past this library, so this library stays loaded too.
        {DT_FLAGS_1, DF_1_NODELETE},
    };
    if (!versions_.empty()) {
      entries.emplace_back(DT_VERSYM, numbers_at_);
      entries.emplace_back(DT_VERDEF, definitions_at_);
      entries.emplace_back(DT_VERDEFNUM, versions_.size() + 1);
    }
    entries.emplace_back(DT_NULL, 0);
    for (const auto& [tag, value] : entries) {
      Elf64_Dyn entry{};
      entry.d_tag = tag;
      entry.d_un.d_val = value;
      image_.add_value(entry);
    }
    dynamic_bytes_ = entries.size() * sizeof(Elf64_Dyn);
  }

  /// The counters have pages of their own, over which the opener may map a file.
  void add_data() {
    got_at_ = image_.add_zeros(kSlot);
    slots_at_ = image_.add_zeros(forwarded_ * kSlot);
    if (counted() != 0) image_.align(kPage);
    counters_at_ = image_.add_zeros(counted() * kSlot);
    if (counted() != 0) image_.align(kPage);
  }

  /// The one symbol that the loader resolves: the function that the code of DT_INIT jumps to.
  void put_opener() {
    Elf64_Rela relocation{};
    relocation.r_offset = got_at_;
    relocation.r_info = ELF64_R_INFO(1, R_X86_64_GLOB_DAT);
    image_.put(relocation_at_, relocation);
    Elf64_Sym symbol{};
    symbol.st_name = open_;
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    image_.put(symbols_at_ + sizeof symbol, symbol);
  }

  /// The code that runs when the library is loaded. It tells the opener what it has to fill in.
  void put_init() {
    // endbr64; lea rdi, slots; lea rsi, symbols; lea rdx, strings; mov ecx, forwarded;
    // lea r8, counters; mov r9d, counted; jmp [got]
    constexpr char kCode[] =
        "\xf3\x0f\x1e\xfa"
        "\x48\x8d\x3d\0\0\0\0"
        "\x48\x8d\x35\0\0\0\0"
        "\x48\x8d\x15\0\0\0\0"
        "\xb9\0\0\0\0"
        "\x4c\x8d\x05\0\0\0\0"
        "\x41\xb9\0\0\0\0"
        "\xff\x25\0\0\0\0";
    static_assert(sizeof kCode - 1 <= kInit);
    put_code(init_at_, kCode);
    image_.put_relative(init_at_ + 7, slots_at_);
    image_.put_relative(init_at_ + 14, first_at_);
    image_.put_relative(init_at_ + 21, strings_at_);
    image_.put(init_at_ + 26, static_cast<std::uint32_t>(forwarded_));
    image_.put_relative(init_at_ + 33, counters_at_);
    image_.put(init_at_ + 39, static_cast<std::uint32_t>(counted()));
    image_.put_relative(init_at_ + 45, got_at_);
  }

  /// The code of function `i` and the symbol by which programs find it.
  void put_function(std::size_t i) {
    const auto stub = stubs_at_ + i * kStub;
    if (i < forwarded_) {
      constexpr char kJump[] = "\xf3\x0f\x1e\xfa\xff\x25\0\0\0\0";  // endbr64; jmp [slot]
      static_assert(sizeof kJump - 1 <= kStub);
      put_code(stub, kJump);
      image_.put_relative(stub + 6, slots_at_ + i * kSlot);
    } else {
      // endbr64; lock inc qword [counter]; mov eax, answer; ret
      constexpr char kCount[] = "\xf3\x0f\x1e\xfa\xf0\x48\xff\x05\0\0\0\0\xb8\0\0\0\0\xc3";
      static_assert(sizeof kCount - 1 <= kStub);
      put_code(stub, kCount);
      image_.put_relative(stub + 8, counters_at_ + (i - forwarded_) * kSlot);
      image_.put(stub + 13, functions_[i].answer);
    }
    Elf64_Sym offered{};
    offered.st_name = names_[i];
    offered.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    offered.st_shndx = 1;  // any index but 0 will do: there are no sections
    offered.st_value = stub;
    offered.st_size = kStub;
    image_.put(first_at_ + i * sizeof offered, offered);
  }

  /// Copies machine code, without the zero that ends the literal.
  template <std::size_t N>
  void put_code(std::size_t at, const char (&code)[N]) {
    for (std::size_t i = 0; i + 1 < N; ++i) image_.put(at + i, code[i]);
  }

  void put_headers() {
    const auto size = image_.size();
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
        segment(PT_LOAD, PF_R | PF_X, 0, data_at_, kPage),
        segment(PT_LOAD, PF_R | PF_W, data_at_, size - data_at_, kPage),
        segment(PT_DYNAMIC, PF_R | PF_W, data_at_, dynamic_bytes_, 8),
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
    image_.put(0, header);
    for (std::size_t i = 0; i < kHeaders; ++i)
      image_.put(sizeof header + i * sizeof(Elf64_Phdr), segments[i]);
  }

  const ForwardingLibrary& library_;
  std::vector<ExportedFunction> functions_;
  std::size_t forwarded_ = 0;
  std::vector<std::string> versions_;
  Image image_;
  std::string strings_;
  // Offsets in strings_.
  Elf64_Word soname_ = 0, opener_ = 0, open_ = 0;
  std::vector<Elf64_Word> names_, version_names_;
  // Offsets in the image.
  std::size_t strings_at_ = 0, symbols_at_ = 0, first_at_ = 0, hash_at_ = 0, numbers_at_ = 0,
              definitions_at_ = 0, relocation_at_ = 0, init_at_ = 0, stubs_at_ = 0;
  std::size_t data_at_ = 0;  ///< The dynamic section, with which the written pages begin.
  std::size_t dynamic_bytes_ = 0, got_at_ = 0, slots_at_ = 0, counters_at_ = 0;
};

}  // namespace
#endif

std::string build(const ForwardingLibrary& library) {
#if defined(__x86_64__)
  return LibraryMaker(library).make();
#else
  (void)library;
  return {};
#endif
}

}  // namespace emm::record
