#include "format/byte_source.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/prng.hpp"
#include "format/byte_sink.hpp"
#include "format/whole_file.hpp"

namespace emm::format {
namespace {

/// A folder that goes with the test.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("emm_format_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, std::string_view bytes) {
  auto sink = ByteSink::open(path);
  ASSERT_TRUE(sink);
  ASSERT_TRUE((*sink)->write(bytes));
  ASSERT_TRUE((*sink)->close());
}

std::string read_all(ByteSource& source) {
  std::string all;
  for (;;) {
    auto chunk = source.next();
    EXPECT_TRUE(chunk) << describe(chunk.error());
    if (!chunk || chunk->empty()) return all;
    all.append(*chunk);
  }
}

/// Several chunks long, and not too easy to pack.
std::string long_text() {
  std::string text;
  Prng random(7);
  while (text.size() < (std::size_t{3} << 20)) {
    text += "line " + std::to_string(random.next()) + "\n";
  }
  return text;
}

class Packed : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Packings, Packed, testing::Values("plain.txt", "packed.txt.gz", "packed.txt.zst"),
    [](const auto& packing) {
      return std::string(packing.param).substr(0, 5) +
             std::filesystem::path(packing.param).extension().string().substr(1);
    });

TEST_P(Packed, FilesReadBackAsTheyWereWritten) {
  const Folder folder;
  const auto path = folder.file(GetParam());
  const auto text = long_text();
  write_file(path, text);

  auto source = ByteSource::open(path);
  ASSERT_TRUE(source);

  EXPECT_EQ(read_all(**source), text);
  EXPECT_EQ((*source)->consumed(), std::filesystem::file_size(path));
  EXPECT_EQ((*source)->total(), std::filesystem::file_size(path));
  EXPECT_FALSE((*source)->truncated());
}

TEST_P(Packed, MemoryReadsAsFilesDo) {
  const Folder folder;
  const auto path = folder.file(GetParam());
  write_file(path, "a few\nlines\n");
  const auto bytes = contents(path);

  const auto source = ByteSource::memory(bytes);

  EXPECT_EQ(read_all(*source), "a few\nlines\n");
}

TEST_P(Packed, PeekingConsumesNothing) {
  const Folder folder;
  const auto path = folder.file(GetParam());
  const auto text = long_text();
  write_file(path, text);
  auto source = ByteSource::open(path);
  ASSERT_TRUE(source);

  const auto first = (*source)->peek(10);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, text.substr(0, 10));
  const auto more = (*source)->peek(65536);
  ASSERT_TRUE(more);

  EXPECT_EQ(*more, text.substr(0, 65536));
  EXPECT_EQ(read_all(**source), text);
}

TEST_P(Packed, ASourceThatIsLeftHalfReadEnds) {
  const Folder folder;
  const auto path = folder.file(GetParam());
  write_file(path, long_text());
  auto source = ByteSource::open(path);
  ASSERT_TRUE(source);

  EXPECT_TRUE((*source)->next());
}

TEST(ByteSource, APackedStreamThatIsCutGivesWhatItHasAndSaysSo) {
  const Folder folder;
  const auto text = long_text();
  for (const char* name : {"cut.gz", "cut.zst"}) {
    write_file(folder.file(name), text);
    const auto bytes = contents(folder.file(name));
    for (const std::size_t kept : {std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
      const auto source = ByteSource::memory(std::string_view(bytes).substr(0, kept));

      const auto got = read_all(*source);

      EXPECT_EQ(got, text.substr(0, got.size())) << name << " " << kept;
      EXPECT_TRUE(source->truncated()) << name << " " << kept;
    }
  }
}

/// `text`, of letters below U+0100, as UTF-16.
std::string utf16(std::string_view mark, std::string_view text, bool little) {
  std::string out(mark);
  for (const char c : text) {
    if (!little) out += '\0';
    out += c;
    if (little) out += '\0';
  }
  return out;
}

TEST(ByteSource, TextOfAnyEncodingIsUtf8) {
  const Folder folder;
  const auto text = long_text();
  EXPECT_EQ(read_all(*ByteSource::memory(utf16("\xff\xfe", text, true))), text);
  EXPECT_EQ(read_all(*ByteSource::memory(utf16("\xfe\xff", text, false))), text);
  EXPECT_EQ(read_all(*ByteSource::memory(utf16("", "log\n" + text, true))), "log\n" + text);
  EXPECT_EQ(read_all(*ByteSource::memory("\xef\xbb\xbf" + text)), text);
  for (const char* name : {"text.gz", "text.zst", "text.txt"}) {
    write_file(folder.file(name), utf16("\xff\xfe", text, true));
    auto source = ByteSource::open(folder.file(name));
    ASSERT_TRUE(source);
    EXPECT_EQ((*source)->peek(10)->substr(0, 10), text.substr(0, 10)) << name;
    EXPECT_EQ(read_all(**source), text) << name;
  }
}

TEST(ByteSource, PairsOfUtf16AreOneLetterAndHalvesAreNone) {
  using namespace std::string_view_literals;
  EXPECT_EQ(read_all(*ByteSource::memory("\xff\xfe\x3d\xd8\x00\xde\xe9\x00\xac\x20"sv)),
            "\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(read_all(*ByteSource::memory("\xff\xfe\x3d\xd8\x41\x00\x00\xde\x42"sv)),
            "\xef\xbf\xbd\x41\xef\xbf\xbd");
}

TEST(ByteSource, BytesThatOnlyBeginLikeAMarkPassAsTheyAre) {
  using namespace std::string_view_literals;
  for (const auto bytes :
       {"\xff\xfe\0\0A\0\0\0"sv, "\xff\xfe"sv, "\xef\xbb"sv, "A\0"sv, "A\0\1\0"sv})
    EXPECT_EQ(read_all(*ByteSource::memory(bytes)), bytes);
}

TEST(ByteSource, PackedMembersInARowAreOneStream) {
  const Folder folder;
  for (const char* name : {"two.gz", "two.zst"}) {
    write_file(folder.file(name), "one ");
    const auto first = contents(folder.file(name));
    write_file(folder.file(name), "two");
    const auto both = first + contents(folder.file(name));

    EXPECT_EQ(read_all(*ByteSource::memory(both)), "one two") << name;
  }
}

TEST(ByteSource, ZerosAfterAGzipMemberArePadding) {
  const Folder folder;
  write_file(folder.file("padded.gz"), "text");
  const auto padded = contents(folder.file("padded.gz")) + std::string(512, '\0');

  const auto source = ByteSource::memory(padded);

  EXPECT_EQ(read_all(*source), "text");
  EXPECT_FALSE(source->truncated());
}

TEST(ByteSource, DamagedPackedDataIsAParseError) {
  const Folder folder;
  write_file(folder.file("bad.gz"), "some text that is long enough to be packed");
  auto bytes = contents(folder.file("bad.gz"));
  bytes[bytes.size() - 6] ^= 1;  // in the checksum

  const auto chunk = ByteSource::memory(bytes, "bad.gz")->next();

  ASSERT_FALSE(chunk);
  EXPECT_EQ(chunk.error().code, Errc::parse_error);
  EXPECT_EQ(chunk.error().message, "bad.gz: damaged gzip data: incorrect data check");

  write_file(folder.file("bad.zst"), "some text that is long enough to be packed");
  bytes = contents(folder.file("bad.zst"));
  bytes[bytes.size() - 1] ^= 1;

  const auto other = ByteSource::memory(bytes, "bad.zst")->next();

  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "bad.zst: damaged zstd data: Restored data doesn't match checksum");
}

TEST(ByteSource, DamageMeetsTheReaderOfAThreadToo) {
  const Folder folder;
  write_file(folder.file("bad.gz"), long_text());
  auto bytes = contents(folder.file("bad.gz"));
  bytes[bytes.size() - 6] ^= 1;
  const auto source = ByteSource::memory(bytes, "bad.gz");

  auto chunk = source->next();
  while (chunk && !chunk->empty()) chunk = source->next();

  ASSERT_FALSE(chunk);
  EXPECT_EQ(chunk.error().message, "bad.gz: damaged gzip data: incorrect data check");
}

TEST(ByteSource, WhatCannotBeReadIsNamedWithTheReason) {
  const auto missing = ByteSource::open("/nowhere/trace.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::usage);
  EXPECT_EQ(missing.error().message, "cannot open /nowhere/trace.json: No such file or directory");

  const auto folder = ByteSource::open("/tmp");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "cannot open /tmp: Is a directory");

  const auto unmapped = ByteSource::open("/proc/self/mem");  // nothing is at address 0
  ASSERT_TRUE(unmapped);
  const auto chunk = (*unmapped)->next();
  ASSERT_FALSE(chunk);
  EXPECT_EQ(chunk.error().code, Errc::io_error);
  EXPECT_EQ(chunk.error().message, "cannot read /proc/self/mem: Input/output error");
}

std::vector<std::string> lines_of(std::string_view text) {
  const auto source = ByteSource::memory(text);
  LineReader reader(*source);
  std::vector<std::string> lines;
  std::string_view line;
  for (auto more = reader.next(line); more && *more; more = reader.next(line))
    lines.emplace_back(line);
  return lines;
}

TEST(LineReader, GivesLinesWithoutTheirEnds) {
  EXPECT_EQ(lines_of("a\nb\r\n\nc"), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(lines_of(""), (std::vector<std::string>{}));
  EXPECT_EQ(lines_of("\n"), (std::vector<std::string>{""}));
}

TEST(LineReader, LinesMaySpanChunks) {
  const auto text = long_text();
  const auto source = ByteSource::memory(text);
  LineReader reader(*source);
  std::string joined;
  std::string_view line;

  for (auto more = reader.next(line); more && *more; more = reader.next(line)) {
    joined.append(line);
    joined.push_back('\n');
  }

  EXPECT_EQ(joined, text);
  EXPECT_FALSE(reader.unterminated());
}

TEST(LineReader, KnowsALastLineWithoutItsEnd) {
  const auto source = ByteSource::memory("a\nb");
  LineReader reader(*source);
  std::string_view line;

  ASSERT_TRUE(*reader.next(line));
  EXPECT_FALSE(reader.unterminated());
  ASSERT_TRUE(*reader.next(line));

  EXPECT_TRUE(reader.unterminated());
  EXPECT_EQ(reader.line_number(), 2u);
  EXPECT_FALSE(*reader.next(line));
}

TEST(LineReader, ALineOverTheLimitIsRefused) {
  const std::string text = "short\n" + std::string(1 << 20, 'x') + "\n";
  const auto source = ByteSource::memory(text, "long.txt");
  LineReader reader(*source, 1000);
  std::string_view line;
  ASSERT_TRUE(reader.next(line));

  const auto more = reader.next(line);

  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "long.txt:2: a line of more than 1000 bytes: expected one record a line");
}

TEST(ByteSink, WhatCannotBeWrittenIsNamedWithTheReason) {
  const auto nowhere = ByteSink::open("/nowhere/out.json");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, "cannot write /nowhere/out.json: No such file or directory");

  auto full = ByteSink::open("/dev/full");
  ASSERT_TRUE(full);
  EXPECT_TRUE((*full)->write("kept in the buffer"));
  const auto done = (*full)->flush();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::io_error);
  EXPECT_EQ(done.error().message, "cannot write /dev/full: No space left on device");
  EXPECT_FALSE((*full)->write("more")) << "after one error every call fails";
  EXPECT_FALSE((*full)->close());
}

TEST(ByteSink, WritesOnlyWholeRecords) {
  const Folder folder;
  const auto path = folder.file("records.txt");
  auto sink = ByteSink::open(path);
  ASSERT_TRUE(sink);
  const std::string record = std::string(99, 'r') + "\n";

  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE((*sink)->write(record));
    ASSERT_EQ(std::filesystem::file_size(path) % record.size(), 0u);
  }

  ASSERT_TRUE((*sink)->close());
  EXPECT_EQ(std::filesystem::file_size(path), 2000 * record.size());
}

TEST(ByteSink, AFlushedPackedFileIsReadableSoFar) {
  const Folder folder;
  for (const char* name : {"live.gz", "live.zst"}) {
    auto sink = ByteSink::open(folder.file(name));
    ASSERT_TRUE(sink);
    ASSERT_TRUE((*sink)->write("a line\n"));
    ASSERT_TRUE((*sink)->flush());

    const auto source = ByteSource::open(folder.file(name));

    EXPECT_EQ(read_all(**source), "a line\n") << name;
    EXPECT_TRUE((*source)->truncated()) << name;
  }
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(WholeFile, HasItsNameWhenItIsClosed) {
  const Folder folder;
  const auto path = folder.file("whole.txt");
  auto sink = open_whole(path);
  ASSERT_TRUE(sink);
  ASSERT_TRUE((*sink)->write("all"));
  ASSERT_TRUE((*sink)->flush());
  EXPECT_FALSE(std::filesystem::exists(path));

  ASSERT_TRUE((*sink)->close());
  sink->reset();

  EXPECT_EQ(contents(path), "all");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"whole.txt"});
}

TEST(WholeFile, LeavesWhatWasThereWhereItIsNot) {
  const Folder folder;
  for (const char* name : {"torn.txt", "torn.txt.gz", "torn.txt.zst"}) {
    const auto path = folder.file(name);
    std::ofstream(path) << "before";
    {
      auto sink = open_whole(path);
      ASSERT_TRUE(sink);
      ASSERT_TRUE((*sink)->write("a part"));
    }
    EXPECT_EQ(contents(path), "before") << name;
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"torn.txt", "torn.txt.gz", "torn.txt.zst"}));
}

TEST(WholeFile, KeepsTheModeAndTheLinkToIt) {
  const Folder folder;
  const auto path = folder.file("file.txt"), link = folder.file("link.txt");
  std::ofstream(path) << "before";
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  std::filesystem::create_symlink("file.txt", link);

  auto sink = open_whole(link);
  ASSERT_TRUE(sink && (*sink)->write("after") && (*sink)->close());

  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(contents(path), "after");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
}

TEST(WholeFile, AFileOfTwoNamesIsWrittenInPlace) {
  const Folder folder;
  const auto path = folder.file("one.txt"), other = folder.file("other.txt");
  std::ofstream(path) << "before";
  std::filesystem::create_hard_link(path, other);

  auto sink = open_whole(path);
  ASSERT_TRUE(sink && (*sink)->write("after") && (*sink)->close());

  EXPECT_EQ(contents(other), "after");
}

TEST(WholeFile, WhatCannotBeWrittenIsNamedAsItWasAskedFor) {
  const Folder folder;
  const auto nowhere = open_whole(folder.file("nowhere/out.json"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            "cannot write " + folder.file("nowhere/out.json") + ": No such file or directory");

  const auto path = folder.file("out.json");
  auto sink = open_whole(path);
  ASSERT_TRUE(sink);
  EXPECT_EQ((*sink)->name(), path);
  std::filesystem::create_directory(path);
  const auto closed = (*sink)->close();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().message, "cannot write " + path + ": Is a directory");
}

}  // namespace
}  // namespace emm::format
