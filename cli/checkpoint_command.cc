// weft checkpoint: look at checkpoints, check, compare, cut anew and export them.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/checkpoint_reader.h"
#include "weft/checkpoint/diff.h"
#include "weft/checkpoint/export.h"
#include "weft/checkpoint/inspect.h"
#include "weft/checkpoint/reshard.h"

namespace weft::cli {
namespace {

using checkpoint::CheckpointReader;

struct CheckpointArguments {
  std::string path, other, out;
  std::int64_t files = 1;
  std::int64_t shard_bytes = std::int64_t{4} << 30;
  bool json = false;
  bool all = false;
  bool weights_only = false;
};

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

// How much has been read, on standard error: the last row of a terminal, a line every ten seconds
// elsewhere.
class ReadProgress {
 public:
  explicit ReadProgress(std::string what) : what_(std::move(what)) {}

  ~ReadProgress() {
    if (is_shown_) {
      show_status("");
    }
  }

  ReadProgress(const ReadProgress&) = delete;
  ReadProgress& operator=(const ReadProgress&) = delete;

  // So much will be read, besides what was announced before.
  void expect(std::int64_t bytes) { total_ += bytes; }

  void add(std::int64_t bytes) {
    done_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (std::chrono::duration<double>(now - last_).count() < (is_terminal_ ? 0.2 : 10.0)) {
      return;
    }
    last_ = now;
    const std::string line =
        fmt::format("{}: {} of {}", what_, bytes_text(done_), bytes_text(total_));
    if (is_terminal_) {
      show_status(line);
      is_shown_ = true;
    } else {
      write_error("weft: " + line + "\n");
    }
  }

 private:
  std::string what_;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool is_shown_ = false;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::unique_ptr<CheckpointReader> open_checkpoint(const std::string& path, ReadProgress& progress) {
  auto reader = std::make_unique<CheckpointReader>(
      path, checkpoint::ReaderOptions{
                .on_read = [&progress](std::int64_t bytes) { progress.add(bytes); }});
  progress.expect(reader->stored_bytes());
  return reader;
}

int inspect(const CheckpointArguments& arguments) {
  const CheckpointReader reader(arguments.path);
  fmt::print("{}", arguments.json ? inspect_json(reader) : inspect_text(reader));
  return kDone;
}

// One line about a checkpoint all of whose bytes are as they were written, or an Error.
std::string verify_one(const std::string& path) {
  ReadProgress progress("verifying");
  const auto reader = open_checkpoint(path, progress);
  const checkpoint::Verified verified = reader->verify();
  std::string line =
      fmt::format("{}: good: manifest ({}), {} ({}, {}), {} ({})", reader->directory(),
                  bytes_text(verified.manifest_bytes), counted(verified.files, "data file"),
                  counted(verified.chunks, "chunk"), bytes_text(verified.bytes),
                  counted(verified.blobs, "blob"), bytes_text(verified.blob_bytes));
  if (verified.segments > 0) {
    line += fmt::format(", {} ({}, {})", counted(verified.segments, "segment"),
                        counted(verified.segment_rows, "row"), bytes_text(verified.segment_bytes));
  }
  for (const std::string& name : verified.strangers) {
    line += fmt::format("\n  not of this checkpoint, and not looked at: {}", name);
  }
  return line;
}

int verify_all(const std::string& folder) {
  std::vector<std::string> paths = checkpoint::list_checkpoints(folder);
  if (paths.empty()) {
    paths.push_back(checkpoint::find_checkpoint(folder));
  }
  std::int64_t damaged = 0;
  std::string first;
  for (const std::string& path : paths) {
    try {
      fmt::print("{}\n", verify_one(path));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) {
        throw;
      }
      fmt::print("{}: DAMAGED: {}\n", path, error.what());
      first = damaged++ == 0 ? error.what() : first;
    }
  }
  if (damaged > 0) {
    flush_output();
    fail(ErrorCode::kCheckpoint, "{} of {} in '{}' {} damaged, the first: {}", damaged,
         counted(std::ssize(paths), "checkpoint"), folder, damaged == 1 ? "is" : "are", first);
  }
  return kDone;
}

int verify(const CheckpointArguments& arguments) {
  if (arguments.all) {
    return verify_all(arguments.path);
  }
  fmt::print("{}\n", verify_one(arguments.path));
  return kDone;
}

int diff_checkpoints(const CheckpointArguments& arguments) {
  ReadProgress progress("comparing");
  const auto a = open_checkpoint(arguments.path, progress);
  const auto b = open_checkpoint(arguments.other, progress);
  const checkpoint::Difference difference = compare(*a, *b);
  fmt::print("{}", to_text(difference, a->directory(), b->directory()));
  return difference.is_equal() ? kDone : kFailed;
}

int reshard_checkpoint(const CheckpointArguments& arguments) {
  ReadProgress progress("cutting");
  const auto from = open_checkpoint(arguments.path, progress);
  const std::string directory = reshard(
      *from, {.directory = arguments.out, .files = arguments.files, .weft_version = WEFT_VERSION});
  fmt::print("{}: step {} of {} in {}, {}\n", directory, from->manifest().metadata.step,
             from->directory(), counted(arguments.files, "data file"),
             bytes_text(from->stored_bytes()));
  return kDone;
}

int export_checkpoint(const CheckpointArguments& arguments) {
  ReadProgress progress("exporting");
  const auto from = open_checkpoint(arguments.path, progress);
  const checkpoint::Exported exported = export_safetensors(
      *from, {.directory = arguments.out,
              .items = arguments.weights_only ? checkpoint::ExportItems::kWeights
                                              : checkpoint::ExportItems::kAll,
              .shard_bytes = arguments.shard_bytes,
              .metadata = {{"weft", WEFT_VERSION},
                           {"checkpoint", fmt::format("{:016x}", from->id())},
                           {"step", std::to_string(from->manifest().metadata.step)}}});
  fmt::print("{}: {} of step {} in {}, {}\n", arguments.out, counted(exported.tensors, "tensor"),
             from->manifest().metadata.step, counted(exported.files, "file"),
             bytes_text(exported.bytes));
  return kDone;
}

// Adds one of the commands; returns it for the options it has alone.
CLI::App* add_one(CLI::App& parent,
                  Action& chosen,
                  const std::string& name,
                  const std::string& description,
                  int (*run)(const CheckpointArguments&),
                  const std::shared_ptr<CheckpointArguments>& arguments) {
  CLI::App* const command = parent.add_subcommand(name, description);
  command
      ->add_option(name == "diff" ? "A" : "PATH", arguments->path,
                   "A checkpoint, or a folder of some: its newest")
      ->required()
      ->check(not_empty());
  command->callback(
      [arguments, &chosen, run] { chosen = [arguments, run] { return run(*arguments); }; });
  return command;
}

void add_out_folder(CLI::App& command, CheckpointArguments& arguments) {
  command.add_option("--out", arguments.out, "The new folder; it must be empty if it exists")
      ->type_name("DIR")
      ->required()
      ->check(not_empty());
}

}  // namespace

void add_checkpoint_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "checkpoint", "Look at checkpoints, check, compare, cut anew and export them");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<CheckpointArguments>();
  add_one(*command, chosen, "inspect", "Print step, job, hashes, items, files and sizes", inspect,
          arguments)
      ->add_flag("--json", arguments->json, "JSON instead of tables (docs/cli.md)");
  add_one(*command, chosen, "verify", "Check every byte against its checksum", verify, arguments)
      ->add_flag("--all", arguments->all, "All checkpoints of a folder, not only its newest");
  add_one(*command, chosen, "diff", "Name what differs between two, to the row and column",
          diff_checkpoints, arguments)
      ->add_option("B", arguments->other, "Another")
      ->required()
      ->check(not_empty());
  CLI::App* const cut =
      add_one(*command, chosen, "reshard", "Write the same checkpoint in another number of files",
              reshard_checkpoint, arguments);
  add_out_folder(*cut, *arguments);
  cut->add_option("--files", arguments->files,
                  "Data files, and segments: every matrix is cut by rows into so many")
      ->type_name("N")
      ->required()
      ->check(CLI::Range(1, 65536));
  CLI::App* const out =
      add_one(*command, chosen, "export", "Write weights and optimizer state as safetensors files",
              export_checkpoint, arguments);
  add_out_folder(*out, *arguments);
  out->add_flag("--weights-only", arguments->weights_only, "No optimizer state");
  out->add_option("--shard-bytes", arguments->shard_bytes,
                  "A file has no more bytes of tensors, unless one tensor does; default: 4 GiB")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 62));
}

}  // namespace weft::cli
