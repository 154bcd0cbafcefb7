#include "commands/program_values.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"

namespace emm::cli {
namespace {

constexpr std::size_t kShown = 10;  // places on the terminal; --json has all

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (c == '\t') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::uint64_t number(std::string_view word) {
  std::uint64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

/// What the program may have got on a card.
std::string on_a_card(const AskedPlace& place) {
  if (place.level == "drawn") return "about as many";
  if (place.most == "?") return text::format("at least {}", place.least);
  return text::format("{} to {}", place.least, place.most);
}

void say_sizes(Console& console, std::vector<AskedPlace> places, std::string_view assumed) {
  std::erase_if(places, [](const AskedPlace& place) { return place.kind != "size"; });
  if (places.empty()) return;
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.times > b.times; });
  console.say(text::format(
      "{} {} a size from values that are not known here, and got one of --unknown-sizes {}:",
      places.size(), places.size() == 1 ? "line takes" : "lines take", assumed));
  std::vector<std::vector<std::string>> rows{{"line", "operation", "times", "got", "on a card"}};
  for (const auto& place : places) {
    if (rows.size() > kShown) break;
    rows.push_back(
        {place.where, place.what, text::grouped(place.times), place.taken, on_a_card(place)});
  }
  console.aside(format::columns("llrrr", rows));
  if (places.size() > kShown)
    console.say(text::format("and {} lines more", places.size() - kShown));
  const bool has_masks = std::any_of(
      places.begin(), places.end(), [](const AskedPlace& place) { return place.level != "drawn"; });
  if (has_masks && assumed != "all")
    console.say("the most that they may take: the same with --unknown-sizes all");
}

/// The lines in a sentence: "a.py:3, b.py:9 and 4 more".
std::string lines_of(const std::vector<AskedPlace>& places) {
  constexpr std::size_t kNamed = 3;  // lines that a sentence still reads well with
  std::string words;
  for (std::size_t i = 0; i < places.size() && i < kNamed; ++i)
    words += (i == 0 ? "" : ", ") + places[i].where;
  if (places.size() > kNamed) words += text::format(" and {} more", places.size() - kNamed);
  return words;
}

void say_reads(Console& console, const std::vector<AskedPlace>& places) {
  std::vector<AskedPlace> steering, floats;
  for (const auto& place : places) {
    if (place.kind == "float") floats.push_back(place);
    if (place.kind == "value" || place.kind == "copy") steering.push_back(place);
  }
  if (!steering.empty())
    console.say(text::format(
        "integers or booleans that are not known were read, and what follows from them may differ "
        "on a card: {}",
        lines_of(steering)));
  if (!floats.empty())
    console.say(text::format("numbers such as a loss are not known, and were read as 1: {}",
                             lines_of(floats)));
}

}  // namespace

ProgramValues values_in(const std::string& folder) {
  ProgramValues found;
  for (const auto& name : files_in(folder)) {
    if (!name.starts_with("values.") || name.ends_with(".part")) continue;
    const auto process = number(std::string_view(name).substr(name.find('.') + 1));
    std::ifstream file(folder + "/" + name);
    for (std::string line; std::getline(file, line);) {
      const auto words = words_of(line);
      if (words.size() == 8 && words[0] == "place") {
        const auto dot = words[1].find('.');
        AskedPlace place{.kind = words[1].substr(0, dot),
                         .level = dot == std::string::npos ? "" : words[1].substr(dot + 1),
                         .times = number(words[2]),
                         .where = words[3],
                         .what = words[4],
                         .taken = words[5],
                         .least = words[6],
                         .most = words[7]};
        found.places.push_back(std::move(place));
      } else if (words.size() == 3 && words[0] == "fact") {
        if (words[1] == "endless") found.endless = words[2];
        if (words[1] == "stopped") found.stopped = words[2];
        if (words[1] == "cudnn") found.without_cudnn = true;
        if (words[1] == "benchmark") found.times_plans = true;
        if (words[1] == "native") found.native.push_back(words[2]);
        if (words[1] == "compile") found.compiles = true;
        if (words[1] == "compile" && words[2] == "as written") found.compiles_as_written = true;
      } else if (words.size() == 4 && words[0] == "peak") {
        found.peaks.push_back({process, number(words[1]), number(words[2]), number(words[3])});
      }
    }
  }
  return found;
}

void say_peaks(Console& console, const ProgramValues& values) {
  for (const auto& peak : values.peaks) {
    console.say(text::format(
        "PyTorch on device {}: at most {} ({} bytes) reserved, of which {} ({} bytes) allocated at "
        "most",
        peak.device, units::bytes(peak.reserved), text::grouped(peak.reserved),
        units::bytes(peak.allocated), text::grouped(peak.allocated)));
  }
}

bool say_values(Console& console, const ProgramValues& values, std::string_view assumed) {
  if (!values.endless.empty())
    console.say(text::format(
        "the loop at {} waits for a value that is not known here, and was ended: the answer is "
        "that of the run so far; --unknown-sizes all, none or a share may let it end",
        values.endless));
  say_sizes(console, values.places, assumed);
  say_reads(console, values.places);
  if (values.without_cudnn)
    console.say("cuDNN was switched off: convolutions are PyTorch's own, whose workspaces differ");
  if (!values.native.empty())
    console.say(text::format(
        "PyTorch's own {} took the place of cuDNN's, which is not stood in for and takes other "
        "memory",
        text::join(values.native)));
  if (values.compiles_as_written)
    console.say(
        "torch.compile was called: under this PyTorch a compiled function runs as it is written, "
        "which takes other memory");
  else if (values.compiles)
    console.say(
        "torch.compile was called: its kernels are compiled for the card; where Inductor times "
        "several to choose one, the times are not the card's");
  if (!values.stopped.empty())
    console.say(text::format(
        "an operation of PyTorch could not be followed, so that values after it may be wrong: {}",
        values.stopped));
  return !values.endless.empty();
}

}  // namespace emm::cli
