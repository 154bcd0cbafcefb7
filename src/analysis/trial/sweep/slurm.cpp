#include "trial/sweep/slurm.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/text.hpp"
#include "trial/sweep/run_cells.hpp"

namespace emm::sweep {
namespace {

constexpr std::uint64_t kArrayMost = 1000;  // tasks; Slurm's default limit is 1,001
constexpr double kTaskSeconds = 180;        // a task takes seconds to begin, a cell less to run
// The estimate, in seconds and seconds per MiB, for a trace without finished cells.
constexpr double kGuessLeast = 0.05, kGuessOfMiB = 1;

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

Result<std::string> said_by(const std::vector<std::string>& command) {
  auto said = ask(command);
  if (!said) return said.error();
  if (said->status != 0) {
    return fail(Errc::io_error, "{} failed with {}: {}", command.front(), said->status,
                text::printable(text::trim(said->err), 300));
  }
  return std::move(said->out);
}

/// Returns the tasks that Slurm has of each of our jobs, by job: "0", "1", ...
Result<std::map<std::string, std::set<std::string>>> tasks_of(const std::vector<Batch>& batches) {
  std::map<std::string, std::set<std::string>> out;
  if (std::all_of(batches.begin(), batches.end(),
                  [](const Batch& batch) { return batch.job.empty(); }))
    return out;
  const auto listed = said_by({"squeue", "--noheader", "--array", "--format=%F %K %T"});
  if (!listed) return listed.error();
  for (std::string_view rest = *listed; !rest.empty();) {
    const auto end = rest.find('\n');
    const auto line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const auto job = line.find(' ');
    if (job == std::string_view::npos) continue;
    const auto task = line.find(' ', job + 1);
    const auto state = task == std::string_view::npos ? "" : line.substr(task + 1);
    // A task that ends runs no more cells; it may be queued again under the same number.
    if (state.starts_with("CANCEL") || state.starts_with("FAIL") || state.starts_with("COMPLETED"))
      continue;
    out[std::string(line.substr(0, job))].insert(std::string(line.substr(job + 1, task - job - 1)));
  }
  return out;
}

}  // namespace

std::vector<double> estimates(const std::vector<Cell>& cells, const std::vector<Cell>& plan,
                              const std::map<std::string, double>& times) {
  struct Mean {
    double sum = 0;
    std::size_t count = 0;
    double value() const { return sum / static_cast<double>(count); }
  };
  Mean all;
  std::map<std::string, Mean> by_trace;
  for (const auto& cell : plan) {
    const auto found = times.find(cell.id);
    if (found == times.end()) continue;
    for (auto* mean : {&all, &by_trace[cell.trace]}) {
      mean->sum += found->second;
      ++mean->count;
    }
  }
  std::vector<double> out;
  for (const auto& cell : cells) {
    const auto found = by_trace.find(cell.trace);
    if (found != by_trace.end()) {
      out.push_back(found->second.value());
    } else if (all.count > 0) {
      out.push_back(all.value());
    } else {
      std::error_code error;
      const auto size = std::filesystem::file_size(cell.command[1], error);
      const auto mib = error ? 0 : static_cast<double>(size) / (1 << 20);
      out.push_back(kGuessLeast + kGuessOfMiB * mib);
    }
  }
  return out;
}

std::vector<std::vector<std::string>> parts_by_time(const std::vector<Cell>& cells,
                                                    const std::vector<double>& estimates,
                                                    double seconds) {
  std::vector<std::vector<std::string>> parts;
  double sum = seconds;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (sum >= seconds) {
      parts.emplace_back();
      sum = 0;
    }
    parts.back().push_back(cells[i].id);
    sum += estimates[i];
  }
  return parts;
}

Result<std::vector<std::string>> submit(const Folder& folder, const std::vector<Cell>& plan,
                                        const std::vector<Cell>& cells,
                                        const SlurmOptions& options) {
  const auto parts = options.chunk != 0
                         ? parts_by_time(cells, std::vector<double>(cells.size(), 1),
                                         static_cast<double>(options.chunk))
                         : parts_by_time(cells, estimates(cells, plan, folder.times()),
                                         kTaskSeconds * static_cast<double>(options.jobs));
  std::error_code error;
  const auto whole = std::filesystem::absolute(folder.path(), error).lexically_normal().string();
  std::vector<std::string> jobs;
  for (std::size_t from = 0; from < parts.size(); from += kArrayMost) {
    const auto to = std::min<std::size_t>(parts.size(), from + kArrayMost);
    const auto batch = folder.add_batch({parts.begin() + static_cast<std::ptrdiff_t>(from),
                                         parts.begin() + static_cast<std::ptrdiff_t>(to)});
    if (!batch) return batch.error();
    const auto script = folder.batch_path(*batch) + ".sh";
    {
      std::ofstream file(script);
      file << "#!/bin/sh\nexec " << options.container << (options.container.empty() ? "" : " ")
           << quoted(options.program) << " sweep -o " << quoted(whole) << " --part " << *batch
           << ":\"$SLURM_ARRAY_TASK_ID\" --tries " << options.tries << " --jobs " << options.jobs
           << '\n';
      if (!file.flush()) return fail(Errc::io_error, "cannot write {}", script);
    }
    std::vector<std::string> command{"sbatch",
                                     "--parsable",
                                     "--requeue",
                                     "--job-name=emmctl",
                                     "--output=" + whole + "/logs/%A_%a.txt",
                                     text::format("--array=0-{}", to - from - 1)};
    command.insert(command.end(), options.sbatch.begin(), options.sbatch.end());
    command.push_back(script);
    const auto said = said_by(command);
    if (!said) return said.error();
    // "12" or "12;cluster"
    const auto job = std::string(text::trim(std::string_view(*said).substr(0, said->find(';'))));
    if (auto kept = folder.set_job(*batch, job); !kept) return kept.error();
    jobs.push_back(job);
  }
  return jobs;
}

Result<std::vector<std::string>> running(const Folder& folder) {
  const auto batches = folder.batches();
  const auto tasks = tasks_of(batches);
  if (!tasks) return tasks.error();
  std::vector<std::string> out;
  for (const auto& batch : batches) {
    const auto found = tasks->find(batch.job);
    if (batch.job.empty() || found == tasks->end()) continue;
    for (const auto& task : found->second) {
      const auto number = text::to_u64(task);
      if (!number || *number >= batch.parts.size()) continue;
      const auto& part = batch.parts[static_cast<std::size_t>(*number)];
      out.insert(out.end(), part.begin(), part.end());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::uint64_t> cancel(const Folder& folder) {
  const auto batches = folder.batches();
  const auto tasks = tasks_of(batches);
  if (!tasks) return tasks.error();
  std::uint64_t count = 0;
  for (const auto& batch : batches) {
    if (batch.job.empty() || tasks->find(batch.job) == tasks->end()) continue;
    if (const auto said = said_by({"scancel", batch.job}); !said) return said.error();
    ++count;
  }
  return count;
}

Result<std::vector<Cell>> part_of(const Folder& folder, const std::vector<Cell>& cells,
                                  const std::string& part) {
  const auto colon = part.find(':');
  const auto number = colon == std::string::npos
                          ? std::nullopt
                          : text::to_u64(std::string_view(part).substr(colon + 1));
  for (const auto& batch : folder.batches()) {
    if (!number || batch.name != part.substr(0, colon) || *number >= batch.parts.size()) continue;
    std::map<std::string, const Cell*> known;
    for (const auto& cell : cells) known[cell.id] = &cell;
    std::vector<Cell> out;
    // Cells that the matrix no longer has are left out.
    for (const auto& id : batch.parts[static_cast<std::size_t>(*number)]) {
      if (const auto found = known.find(id); found != known.end()) out.push_back(*found->second);
    }
    return out;
  }
  return fail(Errc::usage, "--part {}: expected BATCH:TASK of {}/batches", part, folder.path());
}

}  // namespace emm::sweep
