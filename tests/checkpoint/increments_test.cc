// Chains of checkpoints of which each has the rows that have changed since the one before.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_rows.h"
#include "weft/checkpoint/step_names.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {
namespace {

std::int64_t bytes_of_rows(const std::string& directory) {
  std::int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory + "/rows")) {
    bytes += static_cast<std::int64_t>(file.file_size());
  }
  return bytes;
}

std::size_t count_segments(const std::string& directory) {
  const std::filesystem::directory_iterator files(directory + "/rows");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// A job of several saves on some ranks, which keeps its tables from one to the next.
struct Job {
  std::vector<Table> tables = small_tables();
  std::uint32_t seed = 1;
  int ranks = 2;
  Holding holding = Holding::kDrawn;
  std::string resume = {};  ///< empty: from nothing
  std::int64_t keep = 0;
  double share = 1.0;
  std::int64_t count = 32;
};

/// What there was at each step.
using History = std::map<std::int64_t, Versions>;

/// Trains to each of the steps, from the state at `from`, and saves there. Every step changes a
/// tenth of the rows.
void run_job(const std::string& directory,
             const Job& job,
             const std::vector<std::int64_t>& steps,
             History& history) {
  std::optional<Folder> folder;
  folder.emplace(FolderOptions{.directory = directory});
  job.resume.empty() ? folder->start_job() : folder->resume_job(job.resume);
  std::atomic<std::int64_t> wrong = 0;
  History after = history;  // of rank 0
  comm::run_local(job.ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const RankTables own = make_tables(job.tables, job.seed, job.ranks, world.rank(), job.holding);
    Increments increments{.rows = rows_of(own)};
    Versions now;
    if (!job.resume.empty()) {
      const Manifest manifest =
          load(world, ctx, {.path = job.resume, .left_out = {}, .increments = &increments},
               sinks_of(own));
      now = history.at(manifest.metadata.step);
      wrong += differences(own, now);
    }
    const auto sources = sources_of(own);
    for (const std::int64_t step : steps) {
      Versions next = now;
      draw_updates(job.tables, static_cast<std::uint32_t>(step), 10, next);
      apply(own, now, next);
      now = next;
      SaveOptions options = save_options(directory, step);
      options.keep = job.keep;
      options.folder = &*folder;
      options.increments = &increments;
      options.increment_share = job.share;
      options.increment_count = job.count;
      save(world, ctx, options, sources);
      if (world.rank() == 0) {
        after[step] = now;
      }
    }
  });
  EXPECT_EQ(wrong, 0) << "loaded from " << job.resume;
  history = after;
}

std::string at_step(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/step-{:08}", directory, step);
}

std::size_t sets_at(const std::string& directory, std::int64_t step) {
  return read_manifest(at_step(directory, step)).segments.size();
}

/// Loads a checkpoint of a job on other ranks; returns how many rows differ.
std::int64_t differences_at(const std::string& path, const Versions& versions, const Job& job) {
  std::atomic<std::int64_t> sum = 0;
  comm::run_local(job.ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const RankTables own = make_tables(job.tables, job.seed, job.ranks, world.rank(), job.holding);
    load(world, ctx, {path}, sinks_of(own));
    sum += differences(own, versions);
  });
  return sum;
}

/// Every checkpoint of a chain is whole, and a job that goes on from it has its values, on whatever
/// ranks, and its saves go on with the chain.
TEST(RowIncrements, AChainIsLoadedAndGoneOnFromAtEachOfItsCheckpoints) {
  for (const Holding holding : {Holding::kDense, Holding::kSparse}) {
    const TemporaryDirectory directory;
    History history;
    // A sparse table begins small, so a large share keeps its chain whole.
    run_job(directory.path(), {.holding = holding, .share = 100.0}, {1, 2, 3, 4, 5}, history);
    std::uint32_t seed = 50;
    for (const std::int64_t step : {1, 2, 3, 4, 5}) {
      const std::string path = at_step(directory.path(), step);
      EXPECT_EQ(sets_at(directory.path(), step), static_cast<std::size_t>(step));
      for (const int ranks : {1, 3}) {
        EXPECT_EQ(differences_at(path, history[step], {.seed = ++seed, .ranks = ranks}), 0)
            << "step " << step << ", seed " << seed;
      }
      Job on{.seed = ++seed, .ranks = 1 + static_cast<int>(step) % 4, .resume = path};
      on.share = 100.0;
      run_job(directory.path(), on, {10 * step, 10 * step + 1}, history);
      for (const std::int64_t later : {10 * step, 10 * step + 1}) {
        EXPECT_GT(sets_at(directory.path(), later), static_cast<std::size_t>(step));
        EXPECT_EQ(differences_at(at_step(directory.path(), later), history[later],
                                 {.seed = ++seed, .ranks = 4}),
                  0)
            << "step " << later << ", seed " << seed;
      }
    }
  }
}

TEST(RowIncrements, AllRowsAgainWhereTheChainIsTooLongOrTooLarge) {
  const TemporaryDirectory directory;
  History history;
  const std::vector<Table> tables = {{"rows.a", 20'000, 4}};
  run_job(directory.path(), {.tables = tables, .holding = Holding::kDense, .share = 0.35},
          {1, 2, 3, 4, 5}, history);
  std::vector<std::size_t> sets;
  for (const std::int64_t step : {1, 2, 3, 4, 5}) {
    sets.push_back(sets_at(directory.path(), step));
  }
  EXPECT_EQ(sets, (std::vector<std::size_t>{1, 2, 3, 4, 1})) << "a tenth of the rows each";
  run_job(directory.path(),
          {.tables = tables,
           .holding = Holding::kDense,
           .resume = at_step(directory.path(), 5),
           .count = 2},
          {6, 7, 8}, history);
  EXPECT_EQ(sets_at(directory.path(), 7), 3U);
  EXPECT_EQ(sets_at(directory.path(), 8), 1U);
  EXPECT_EQ(differences_at(directory.path(), history[8], {.tables = tables}), 0);
}

TEST(RowIncrements, SegmentsStayAsLongAsAManifestNamesThem) {
  const TemporaryDirectory directory;
  History history;
  Job job{.ranks = 1, .holding = Holding::kDense, .keep = 2, .share = 100.0};
  run_job(directory.path(), job, {1, 2, 3, 4}, history);
  EXPECT_EQ(list_checkpoints(directory.path()).size(), 2U);
  EXPECT_EQ(count_segments(directory.path()), 4U) << "all are in the chain";
  // Another job's, and what is no segment, are never touched.
  const std::string foreign =
      directory.path() + "/rows/0123456789abcdef-1-0123456789abcdef-0-0.rows";
  std::ofstream(foreign) << "another job's";
  std::ofstream(directory.path() + "/rows/notes") << "a person's";
  job.resume = directory.path();
  job.share = 0.0;
  run_job(directory.path(), job, {5}, history);
  EXPECT_EQ(count_segments(directory.path()), 7U) << "step 4 names its chain";
  run_job(directory.path(), job, {6}, history);
  EXPECT_EQ(count_segments(directory.path()), 4U) << "two whole ones, and the two that stay";
  EXPECT_TRUE(std::filesystem::exists(foreign));
  EXPECT_EQ(differences_at(at_step(directory.path(), 5), history[5], {}), 0);
  EXPECT_EQ(differences_at(at_step(directory.path(), 6), history[6], {}), 0);
  // Nobody knows what a manifest names that cannot be read.
  std::ofstream(at_step(directory.path(), 5) + "/manifest.json") << "{";
  run_job(directory.path(), job, {7, 8}, history);
  EXPECT_EQ(count_segments(directory.path()), 6U);
  EXPECT_EQ(differences_at(directory.path(), history[8], {}), 0);
}

/// A checkpoint in another directory than its chain would be lost with that.
TEST(RowIncrements, AJobThatGoesOnElsewhereBeginsWithAllRows) {
  const TemporaryDirectory directory;
  const TemporaryDirectory elsewhere;
  History history;
  run_job(directory.path(), {.holding = Holding::kDense}, {1, 2}, history);
  run_job(elsewhere.path(), {.holding = Holding::kDense, .resume = directory.path()}, {3, 4},
          history);
  EXPECT_EQ(sets_at(elsewhere.path(), 3), 1U);
  EXPECT_EQ(sets_at(elsewhere.path(), 4), 2U);
  std::filesystem::remove_all(directory.path() + "/rows");
  EXPECT_EQ(differences_at(elsewhere.path(), history[4], {.seed = 9, .ranks = 3}), 0);
  EXPECT_TRUE(says(checkpoint_error([&] { differences_at(directory.path(), history[2], {}); }),
                   {"which must be moved and copied with it"}));
}

/// Another table, or another rule: nothing of the chain can be used.
TEST(RowIncrements, OtherTablesBeginWithAllRows) {
  const TemporaryDirectory directory;
  History history;
  std::vector<Table> tables = {{"rows.a", 40, 4}};
  run_job(directory.path(), {.tables = tables, .holding = Holding::kDense}, {1}, history);
  tables[0].initial.scale = 5;  // all rows are stored, so it may be loaded
  run_job(directory.path(),
          {.tables = tables, .holding = Holding::kDense, .resume = directory.path()}, {2, 3},
          history);
  EXPECT_EQ(sets_at(directory.path(), 2), 1U);
  EXPECT_EQ(sets_at(directory.path(), 3), 2U);
}

/// What is left out of a load is in the chain, and would come back with it.
TEST(RowIncrements, AfterALoadThatLeavesOutATableAllRowsAreSaved) {
  const TemporaryDirectory directory;
  History history;
  run_job(directory.path(), {.ranks = 1, .holding = Holding::kDense}, {1}, history);
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    auto tables = small_tables();
    tables.pop_back();
    const RankTables own = make_tables(tables, 1, 1, 0, Holding::kDense);
    Increments increments{.rows = rows_of(own)};
    LoadOptions options{.path = directory.path(), .left_out = {"rows.d"}};
    options.increments = &increments;
    load(world, ctx, options, sinks_of(own));
    EXPECT_EQ(increments.base, 0U);
    options.path = directory.path();
    options.left_out = {};
    EXPECT_TRUE(says(checkpoint_error([&] { load(world, ctx, options, sinks_of(own)); }),
                     {"also holds rows.d weight"}));
  });
}

/// A thousand million rows, of which few exist and fewer change: bytes and rows that are read
/// follow these.
TEST(RowIncrements, CostsFollowTheRowsThatHaveChanged) {
  const std::vector<Table> tables = {
      {"rows.a", 1'000'000'000, 16, DType::kFloat32, RowExtra::kOfRow}};
  const TemporaryDirectory directory;
  comm::run_local(2, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(
        tables[0],
        {.rows = piece(1'000'000'000, 2, world.rank()), .cols = {0, 16}, .sparse = true});
    Increments increments{.rows = {&rows}};
    SaveOptions options = save_options(directory.path(), 1);
    options.increments = &increments;
    Versions versions;
    std::int64_t before = 0;
    std::int64_t read = 0;
    for (const std::int64_t changed : {20'000, 1'000, 10}) {
      for (std::int64_t i = 0; i < changed; ++i) {
        versions[{"rows.a", i * 49'999}] += 1;
      }
      for (const auto& [key, version] : versions) {
        if (key.second < changed * 49'999) {
          rows.update(key.second, version);
        }
      }
      const StateSource* source = &rows;
      save(world, ctx, options, std::span(&source, 1));
      EXPECT_LE(rows.rows_read() - read, changed);
      read = rows.rows_read();
      if (world.rank() == 0) {
        const std::int64_t bytes = bytes_of_rows(directory.path()) - before;
        EXPECT_GE(bytes, changed * 76);
        EXPECT_LE(bytes, changed * 76 * 11 / 10 + 6 * 4096) << changed;
        before += bytes;
      }
      world.barrier(ctx);
      ++options.metadata.step;
    }
    MemoryRows again(tables[0],
                     {.rows = {world.rank(), 1'000'000'000, 2}, .cols = {0, 16}, .sparse = true});
    StateSink* sink = &again;
    load(world, ctx, {directory.path()}, std::span(&sink, 1));
    EXPECT_EQ(again.differences(versions), 0);
    EXPECT_LT(again.existing(), 20'001);
  });
  EXPECT_EQ(read_manifest(directory.path()).segments.size(), 3U);
}

/// Nobody writes tombstones yet; whoever does finds that they are read.
TEST(RowIncrements, TombstonesRemoveWhatIsBeforeThem) {
  const std::vector<Table> tables = {{"rows.a", 100, 8, DType::kFloat32, RowExtra::kOfRow}};
  const TemporaryDirectory directory;
  Versions versions;
  for (std::int64_t row = 0; row < 10; ++row) {
    versions[{"rows.a", row}] = 1;
  }
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(tables[0], {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
    const StateSource* source = &rows;
    for (std::int64_t row = 0; row < 10; ++row) {
      rows.update(row, 1);
    }
    save(world, ctx, save_options(directory.path(), 1), std::span(&source, 1));
    Manifest manifest = read_manifest(directory.path());
    const std::uint64_t key = stream_key(manifest.tables[0], manifest.tables[0].streams[0]);
    const auto packed = [&](std::int64_t row, int version) {
      MemoryRows other(tables[0], {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
      other.update(row, version);
      std::vector<std::byte> out(36);
      other.read_rows(std::span(&row, 1), out.data());
      return out;
    };
    // Row 1 goes; 2 goes and comes back behind its tombstone, 3 comes and goes, 4 and 5 come back
    // in the next segment, 5 to go once more.
    for (int number = 0; number < 2; ++number) {
      SegmentSet set;
      set.prefix = fmt::format("abc-{}", number);
      set.tombstones = 4;
      SegmentFile file;
      const std::string name = segment_name(set.prefix, file);
      rowfile::SegmentWriter writer(io::real_file_system(), directory.path() + "/rows/" + name,
                                    {{name_key(name), 1}, {key, 36}});
      const auto append = [&](std::uint64_t id, int version) {
        writer.append(1, std::span(&id, 1), packed(static_cast<std::int64_t>(id), version));
        ++set.rows;
      };
      const auto remove = [&](std::uint64_t id) { writer.remove(1, std::span(&id, 1)); };
      if (number == 0) {
        append(3, 2);
        for (const std::uint64_t id : {1, 2, 3, 4, 5}) {
          remove(id);
        }
        append(2, 3);
      } else {
        append(4, 5);
        append(5, 5);
        append(6, 5);
        append(6, 6);
        remove(5);
      }
      file.bytes = writer.bytes();
      writer.seal();
      set.files = {file};
      manifest.segments.push_back(set);
    }
    std::ofstream(directory.path() + "/step-00000001/manifest.json") << manifest_to_json(manifest);
    for (const std::int64_t row : {1, 3, 5}) {
      versions.erase({"rows.a", row});
    }
    versions[{"rows.a", 2}] = 3;
    versions[{"rows.a", 4}] = 5;
    versions[{"rows.a", 6}] = 6;
    for (const bool sparse : {true, false}) {
      MemoryRows again(tables[0], {.rows = {0, 100}, .cols = {0, 8}, .sparse = sparse});
      StateSink* sink = &again;
      load(world, ctx, {directory.path()}, std::span(&sink, 1));
      EXPECT_EQ(again.differences(versions), 0);
      EXPECT_EQ(again.existing(), sparse ? 7 : 100);
    }
    manifest.segments[2].tombstones = 0;
    manifest.segments[1].tombstones = 0;
    std::ofstream(directory.path() + "/step-00000001/manifest.json") << manifest_to_json(manifest);
    MemoryRows wrong(tables[0], {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
    StateSink* sink = &wrong;
    load(world, ctx, {directory.path()}, std::span(&sink, 1));
    EXPECT_GT(wrong.differences(versions), 0) << "the control";
  });
}

}  // namespace
}  // namespace weft::checkpoint
