#include "cli/file_kind.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"

namespace emm::cli {
namespace {

using text::format;

struct Recipe {
  std::string_view framework;
  std::vector<std::string> lines;
};

/// What to record in each framework. `program` stands where a program is run.
std::vector<Recipe> recipes(std::string_view program) {
  const auto run = std::string(program);
  return {
      {"PyTorch",
       {"import torch; torch.cuda.memory._record_memory_history(max_entries=1000000)",
        "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")", "emmctl explain snapshot.pickle"}},
      {"TensorFlow, JAX",
       {format("TF_CPP_MIN_LOG_LEVEL=0 python {} 2> train.log", run), "emmctl explain train.log"}},
      {"CuPy, Numba", {format("emmctl record --level request -o run.emmb -- python {}", run)}},
      {"RMM, cuDF",
       {"import rmm; rmm.enable_logging(log_file_name=\"rmm.csv\")",
        "emmctl inspect rmm.dev0.csv"}},
      {"ONNX Runtime", {"session_options.log_severity_level = 0", "emmctl explain run.log"}},
      {"any CUDA program",
       {format("emmctl record -o run.emmb -- {}",
               run == "train.py" ? "./program" : "python " + run),
        "emmctl inspect run.emmb"}},
  };
}

std::string shown(const std::vector<Recipe>& all) {
  std::string out = "What emmctl can read, and how to record it:\n";
  for (const auto& [framework, lines] : all) {
    out += format("  {}\n", framework);
    for (const auto& line : lines) out += "    " + line + '\n';
  }
  return out + "docs/inputs.md has every format, and what each can tell.\n";
}

struct Magic {
  std::string_view bytes;
  std::string_view what;
  std::string_view instead;   ///< Lines in place of all recipes; empty: the recipes.
  std::string_view unpack{};  ///< What writes the file's inside to stdout, before its name.
};

using namespace std::string_view_literals;

constexpr std::string_view kUnpack =
    "emmctl reads gzip and zstd as they are. Unpack this, and give it what is inside.\n";
constexpr std::string_view kWeights =
    "Weights do not tell how memory was used. Record the program that loads them:\n"
    "  emmctl record -o run.emmb -- python program.py\n";

constexpr std::string_view kOfKernels =
    "It has the metrics of kernels, and no allocation. Record those:\n"
    "  emmctl record -o run.emmb -- ./program\n"
    "  nsys profile --cuda-memory-usage=true -o run ./program\n";

constexpr std::string_view kOfLoad =
    "It is not read. Write who holds memory, as CSV:\n"
    "  nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory "
    "--format=csv -lms 100 > smi.csv\n"
    "  emmctl explain smi.csv\n";
constexpr std::string_view kOfHost =
    "It has memory of the host, and none of a device. Record that:\n"
    "  emmctl record -o run.emmb -- ./program\n"
    "  emmctl inspect run.emmb\n";

// The longest magic of those that begin alike comes first.
constexpr std::array kMagics{
    Magic{"\x89PNG\r\n"sv, "a picture (PNG)", ""},
    Magic{"\xff\xd8\xff"sv, "a picture (JPEG)", ""},
    Magic{"GIF8"sv, "a picture (GIF)", ""},
    Magic{"BM\0\0"sv, "a picture (BMP)", ""},
    Magic{"RIFF"sv, "a picture or a sound (RIFF)", ""},
    Magic{"%PDF-"sv, "a document (PDF)", ""},
    Magic{"PK\x03\x04"sv, "a ZIP archive, as torch.save(), .npz and office programs write it", "",
          "unzip -p"},
    Magic{"PK\x05\x06"sv, "an empty ZIP archive", kUnpack},
    Magic{"\xfd"
          "7zXZ"sv,
          "packed by xz", "", "xz -dc"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", kUnpack},
    Magic{"Rar!"sv, "a RAR archive", kUnpack},
    Magic{"BZh"sv, "packed by bzip2", "", "bzip2 -dc"},
    Magic{"\x89HDF\r\n"sv, "an HDF5 file", kWeights},
    Magic{"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv,
          "weights, as torch.save() wrote them before 1.6", kWeights},
    Magic{"memray\0"sv, "a recording of memray", kOfHost},
    Magic{"# gpu "sv, "what nvidia-smi dmon or pmon prints", kOfLoad},
    Magic{"#Date "sv, "what nvidia-smi dmon or pmon prints", kOfLoad},
    Magic{"#Date,"sv, "what nvidia-smi dmon or pmon prints", kOfLoad},
    Magic{"#gpu,"sv, "what nvidia-smi dmon or pmon prints", kOfLoad},
    Magic{"<svg"sv, "a picture (SVG)", ""},
    Magic{"\x93NUMPY"sv, "an array of NumPy", ""},
    Magic{"GGUF"sv, "weights (GGUF)", kWeights},
    Magic{"PAR1"sv, "a table (Parquet)", ""},
    Magic{"NVR\0"sv, "a report of Nsight Compute", kOfKernels},
    Magic{"SQLite format 3\0"sv, "an SQLite database without the tables of Nsight Systems",
          "Export a report that has CUDA's memory:\n"
          "  nsys profile --cuda-memory-usage=true -o run ./program\n"
          "  nsys export --type sqlite -o run.sqlite run.nsys-rep\n"
          "  emmctl inspect run.sqlite\n"},
    Magic{"MZ"sv, "a program for Windows", ""},
    Magic{"HloModule "sv, "a program of XLA (HLO text)",
          "It says what is computed, and not what memory was held. Where that is:\n"
          "  XLA_FLAGS=--xla_dump_to=dump python train.py\n"
          "      writes *buffer-assignment.txt beside it: what XLA allocates for it\n"
          "  TF_CPP_MIN_LOG_LEVEL=0 python train.py 2> train.log; emmctl explain train.log\n"
          "  emmctl record -o run.emmb -- python train.py; emmctl inspect run.emmb\n"},
    Magic{"<!DOCTYPE"sv, "a page (HTML)", ""},
    Magic{"<html"sv, "a page (HTML)", ""},
    Magic{"<?xml"sv, "an XML document", ""},
};

std::string unpack_lines(std::string_view program) {
  return format(
      "emmctl reads gzip and zstd as they are. Unpack this, and give it what is inside; a log so:\n"
      "  {} FILE | emmctl explain -\n",
      program);
}

std::string_view nsys_lines() {
  return "Export it as SQLite, which emmctl reads:\n"
         "  nsys export --type sqlite -o run.sqlite FILE\n"
         "  emmctl inspect run.sqlite\n"
         "It tells of memory if it was recorded so:\n"
         "  nsys profile --cuda-memory-usage=true -o run ./program\n";
}

bool ends_with_one_of(std::string_view path, std::initializer_list<std::string_view> ends) {
  const auto lower = text::lower(path);
  return std::any_of(ends.begin(), ends.end(), [&](auto end) { return lower.ends_with(end); });
}

/// Is there a line, among the first, that begins with one of these?
bool has_line(std::string_view begin, std::initializer_list<std::string_view> starts) {
  for (std::size_t lines = 0; lines < 200 && !begin.empty(); ++lines) {
    const auto end = std::min(begin.find('\n'), begin.size());
    const auto line = begin.substr(0, end);
    if (std::any_of(starts.begin(), starts.end(),
                    [&](auto start) { return line.starts_with(start); }))
      return true;
    begin.remove_prefix(std::min(end + 1, begin.size()));
  }
  return false;
}

bool is_python(std::string_view begin, std::string_view path) {
  if (ends_with_one_of(path, {".py"})) return true;
  if (begin.starts_with("#!"))
    return begin.substr(0, begin.find('\n')).find("python") != std::string_view::npos;
  return has_line(begin, {"import torch", "import jax", "import cupy", "import numpy",
                          "import tensorflow", "from numba", "import rmm", "import cudf"}) &&
         !has_line(begin, {"Traceback (most recent call last)"});
}

/// The recipes for the frameworks that a Python program imports, and for any program.
std::vector<Recipe> recipes_of(std::string_view begin, std::string_view program) {
  struct Import {
    std::string_view module;
    std::string_view framework;
  };
  constexpr std::array kImports{Import{"torch", "PyTorch"},
                                Import{"jax", "TensorFlow, JAX"},
                                Import{"tensorflow", "TensorFlow, JAX"},
                                Import{"cupy", "CuPy, Numba"},
                                Import{"numba", "CuPy, Numba"},
                                Import{"rmm", "RMM, cuDF"},
                                Import{"cudf", "RMM, cuDF"},
                                Import{"onnxruntime", "ONNX Runtime"}};
  auto all = recipes(program);
  const auto is_imported = [&](std::string_view framework) {
    return std::any_of(kImports.begin(), kImports.end(), [&](const auto& each) {
      return each.framework == framework &&
             (begin.find(format("import {}", each.module)) != std::string_view::npos ||
              begin.find(format("from {}", each.module)) != std::string_view::npos);
    });
  };
  const auto known = std::any_of(all.begin(), all.end(),
                                 [&](const auto& each) { return is_imported(each.framework); });
  if (known) {
    const auto last = all.back();
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const auto& each) { return !is_imported(each.framework); }),
              all.end());
    all.push_back(last);
  }
  return all;
}

/// Text has no control characters, apart from those of terminals.
bool is_text(std::string_view begin) {
  std::size_t strange = 0;
  for (const auto c : begin) {
    const auto code = static_cast<unsigned char>(c);
    if (code == 0) return false;
    strange += code < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\x1b' && c != '\b' &&
                       c != '\a' && c != '\f'
                   ? 1
                   : 0;
  }
  return strange * 100 <= begin.size();
}

}  // namespace

FileAnswer file_kind(std::string_view begin, const std::string& path) {
  const auto name = path == "-" ? std::string("Standard input") : path;
  const auto program = std::string_view("train.py");
  const auto other = [&](std::string_view what, std::string_view instead) {
    FileAnswer answer{.what = format("{} is {}: no recording of memory, and no log", name, what),
                      .code = ExitCode::usage};
    answer.lines = instead.empty() ? shown(recipes(program)) : std::string(instead);
    for (std::size_t at = 0;
         path != "-" && (at = answer.lines.find("FILE", at)) != std::string::npos;) {
      const auto word = text::shell_word(path);
      answer.lines.replace(at, 4, word);
      at += word.size();
    }
    return answer;
  };
  if (begin.empty()) {
    return {.what = format("{}: the file is empty: nothing was recorded, or its writer was ended "
                           "before it wrote",
                           name),
            .lines = shown(recipes(program)),
            .code = ExitCode::damaged};
  }
  if (ends_with_one_of(path, {".nsys-rep", ".qdrep", ".nsys-rep.zip"}))
    return other("a report of Nsight Systems", nsys_lines());
  if (ends_with_one_of(path, {".ncu-rep"})) return other("a report of Nsight Compute", kOfKernels);
  for (const auto& magic : kMagics) {
    if (!begin.starts_with(magic.bytes)) continue;
    auto answer = magic.unpack.empty() ? other(magic.what, magic.instead)
                                       : other(magic.what, unpack_lines(magic.unpack));
    answer.may_have_messages = magic.bytes[0] == '<';  // A page may quote a log.
    return answer;
  }
  if (begin.size() > 20 && begin.starts_with("\x7f"
                                             "ELF")) {
    const auto machine = static_cast<unsigned char>(begin[18]);
    if (begin[16] == 4) {
      return other(machine == 190 ? "a core dump of a GPU" : "a core dump",
                   "It has the memory of a dead process, and not what it asked for. Record it:\n"
                   "  emmctl record -o run.emmb -- ./program\n"
                   "What was written before a crash stays readable.\n");
    }
    if (machine == 190) return other("code for a GPU (cubin)", "");
  }
  if (begin.size() > 262 && begin.substr(257, 5) == "ustar")
    return other("a tar archive", unpack_lines("tar -xOf"));
  if (begin.size() > 9 && begin[8] == '{' && begin[7] == 0 && begin[6] == 0)
    return other("weights (safetensors)", kWeights);
  if (begin.size() > 2 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5) {
    return other("a pickle that is no snapshot of PyTorch's memory",
                 "A snapshot is made so:\n"
                 "  import torch; torch.cuda.memory._record_memory_history(max_entries=1000000)\n"
                 "  torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")\n"
                 "  emmctl explain snapshot.pickle\n");
  }
  if (!is_text(begin)) {
    return {.what = format("{}: the format is not known: it is binary, and no format that emmctl "
                           "reads",
                           name),
            .lines = shown(recipes(program)),
            .code = ExitCode::damaged};
  }
  if (has_line(begin, {"time_unit: "}) && has_line(begin, {"snapshot=0"}))
    return other("a report of Massif", kOfHost);
  if (is_python(begin, path)) {
    const auto shown_path = path == "-" ? std::string("train.py") : text::shell_word(path);
    if (path != "-" && begin.find("CUDAMemoryManager)") != std::string_view::npos) {
      return {.what = format("{} is a Python program with a memory manager of NBEP 7.", name),
              .lines = format("\nAsk of it:\n  emmctl conformance --manager {}\n      Judges its "
                              "manager by the contract.\n",
                              shown_path)};
    }
    auto answer = other("a Python program", shown(recipes_of(begin, shown_path)));
    answer.may_have_messages = true;
    return answer;
  }
  if (ends_with_one_of(path, {".cu", ".cpp", ".cc", ".c", ".h", ".hpp", ".cuh", ".rs", ".jl"}) ||
      begin.starts_with("#!")) {
    auto answer = other("the text of a program",
                        "Record it as it runs:\n"
                        "  emmctl record -o run.emmb -- ./program\n"
                        "  emmctl inspect run.emmb\n");
    answer.may_have_messages = true;
    return answer;
  }
  if (begin.starts_with('{') && begin.find("\"nbformat\"") != std::string_view::npos) {
    auto answer = other("a notebook", "");
    answer.may_have_messages = true;
    return answer;
  }
  return {.what = format("{} is a text of no format that emmctl reads as a recording", name),
          .lines = shown(recipes(program)),
          .code = ExitCode::damaged,
          .is_text = true,
          .may_have_messages = true};
}

ExitCode say(Console& console, const FileAnswer& answer) {
  if (answer.code == ExitCode::fine) {
    console.result(answer.what + "\n" + answer.lines);
  } else {
    console.say(answer.what);
    console.aside(answer.lines);
  }
  return answer.code;
}

}  // namespace emm::cli
