// Checkpoints of rows that lie in files: the files are linked, and the other rows written behind
// them.
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_rows.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/background_save.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/row_reader.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

using io::CallKind;
using io::FaultyFileSystem;
using io::Verdict;

/// Saves of a job whose rows lie in files.
struct LinkingJob {
  std::uint32_t seed = 1;
  int ranks = 2;
  int saves = 6;
  std::string resume = {};
  RowLinks links = RowLinks::kWherePossible;
  bool in_background = false;
  double share = 100.0;
  bool denies_moves = false;      ///< the control
  std::int64_t written_back = 3;  ///< every so many-th changed row, between saves
  unsigned changed = 15;          ///< rows between saves, in percent
  std::int64_t keep = 0;
};

/// The checkpoints that ranks have saved, and the rows that there were at each step.
struct Saved {
  std::map<std::int64_t, Versions> at;
  SavedRows rows;  ///< of rank 0, all saves
};

void write_back(const RankTables& tables, std::int64_t share, std::int64_t rest) {
  for (const auto& table : tables) {
    table->write_back([=](std::int64_t row) { return row % share == rest; });
  }
}

/// Between two saves rows change, some are given to the store, and its oldest file is cleaned.
Saved run(io::FileSystem& files, const LinkingJob& job, const std::vector<Table>& tables) {
  Folder folder({.directory = "/ck", .files = &files});
  job.resume.empty() ? folder.start_job() : folder.resume_job(job.resume);
  Saved saved;
  std::int64_t step = 0;
  Versions at_start;
  if (!job.resume.empty()) {
    const Manifest manifest = read_manifest(job.resume, files);
    step = manifest.metadata.step;
  }
  comm::run_local(job.ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const std::unique_ptr<Device> device = make_device({});
    FileStore store(files, fmt::format("/store/{}", world.rank()));
    store.denies_moves = job.denies_moves;
    const RankTables own = make_tables(tables, job.seed, job.ranks, world.rank(), Holding::kSparse);
    use_store(own, store);
    Increments increments{.rows = rows_of(own)};
    Versions now;
    if (!job.resume.empty()) {
      LoadOptions options{.path = job.resume};
      options.files = &files;
      options.increments = &increments;
      load(world, ctx, options, sinks_of(own));
      for (std::int64_t done = 1; done <= step; ++done) {
        draw_updates(tables, static_cast<std::uint32_t>(done), job.changed, now);
      }
    }
    for (std::int64_t i = 1; i <= job.saves; ++i) {
      Versions next = now;
      draw_updates(tables, static_cast<std::uint32_t>(step + i), job.changed, next);
      apply(own, now, next);
      now = std::move(next);
      write_back(own, job.written_back, i % job.written_back);
      if (i % 2 == 0) {
        store.clean();
      }
      SaveOptions options = save_options("/ck", step + i);
      options.files = &files;
      options.folder = &folder;
      options.increments = &increments;
      options.increment_share = job.share;
      options.links = job.links;
      options.keep = job.keep;
      if (job.in_background) {
        std::vector<const StateSource*> sources = sources_of(own);
        BackgroundSave save(world, *device, options, sources);
        // A step that runs meanwhile does the same: rows leave memory.
        write_back(own, 2, i % 2);
        save.finish();
      } else {
        save(world, ctx, options, sources_of(own));
      }
      if (world.rank() == 0) {
        saved.at[step + i] = now;
        saved.rows.linked_files += increments.saved.linked_files;
        saved.rows.linked_bytes += increments.saved.linked_bytes;
        saved.rows.copied_files += increments.saved.copied_files;
        saved.rows.written_bytes += increments.saved.written_bytes;
      }
    }
  });
  return saved;
}

/// Rows of a checkpoint, loaded on other ranks, that are not as they were.
std::int64_t differences_in(FaultyFileSystem& files,
                            const std::string& path,
                            const Versions& versions,
                            const std::vector<Table>& tables,
                            std::uint32_t seed,
                            int ranks,
                            Holding holding) {
  std::atomic<std::int64_t> sum = 0;
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const RankTables own = make_tables(tables, seed, ranks, world.rank(), holding);
    LoadOptions options{.path = path};
    options.files = &files;
    load(world, ctx, options, sinks_of(own));
    sum += differences(own, versions);
  });
  return sum;
}

std::int64_t differences_in(FaultyFileSystem& files,
                            const Saved& saved,
                            const std::vector<Table>& tables) {
  std::int64_t sum = 0;
  std::uint32_t seed = 300;
  for (const auto& [step, versions] : saved.at) {
    const std::string path = fmt::format("/ck/{}", step_name({.step = step}));
    ++seed;
    sum += differences_in(files, path, versions, tables, seed, 1 + static_cast<int>(seed % 3),
                          seed % 2 == 0 ? Holding::kDense : Holding::kSparse);
  }
  return sum;
}

/// The stores are gone when the checkpoints are loaded.
TEST(LinkedRows, EveryCheckpointHasTheRowsOfItsStep) {
  std::int64_t linked = 0;
  for (const bool in_background : {false, true}) {
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      for (const double share : {0.0, 100.0}) {
        LinkingJob job{.seed = seed, .ranks = 1 + static_cast<int>(seed % 3), .saves = 5};
        job.in_background = in_background;
        job.share = share;
        FaultyFileSystem files;
        const Saved saved = run(files, job, small_tables());
        linked += saved.rows.linked_files;
        EXPECT_EQ(differences_in(files, saved, small_tables()), 0)
            << "seed " << seed << ", share " << share << (in_background ? ", beside steps" : "");
        EXPECT_EQ(read_manifest("/ck", files).segments.size(), share > 0 ? 5U : 1U);
        FaultyFileSystem others;
        job.links = RowLinks::kNever;
        const Saved copied = run(others, job, small_tables());
        EXPECT_EQ(copied.rows.linked_files, 0);
        EXPECT_EQ(differences_in(others, copied, small_tables()), 0);
      }
    }
  }
  EXPECT_GT(linked, 40);
}

TEST(LinkedRows, AChainGoesOnAfterAResume) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    FaultyFileSystem files;
    Saved saved = run(files, {.seed = seed, .saves = 3}, small_tables());
    for (const RowLinks links : {RowLinks::kWherePossible, RowLinks::kNever}) {
      LinkingJob on{
          .seed = seed + 20, .ranks = 3, .saves = 3, .resume = find_checkpoint("/ck", files)};
      on.links = links;
      const Saved more = run(files, on, small_tables());
      saved.at.insert(more.at.begin(), more.at.end());
    }
    EXPECT_EQ(read_manifest("/ck", files).segments.size(), 9U);
    EXPECT_EQ(differences_in(files, saved, small_tables()), 0) << "seed " << seed;
  }
}

/// The control: rows that the save before has written, and that cleaning has moved since, as they
/// were, into a file which is linked.
TEST(LinkedRows, MovedRowsThatAreOlderAreFound) {
  std::int64_t wrong = 0;
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    LinkingJob job{.seed = seed, .ranks = 1, .saves = 8};
    FaultyFileSystem files;
    EXPECT_EQ(differences_in(files, run(files, job, small_tables()), small_tables()), 0);
    job.denies_moves = true;
    FaultyFileSystem others;
    wrong += differences_in(others, run(others, job, small_tables()), small_tables());
  }
  EXPECT_GT(wrong, 0);
}

const std::vector<Table> kOneTable = {{"rows.a", 2000, 24, DType::kFloat32, RowExtra::kOfRow}};

/// The control: files that come in another order than that of their numbers.
TEST(LinkedRows, WrittenRowsComeBehindLinkedOnes) {
  FaultyFileSystem files;
  const Saved saved = run(files, {.ranks = 1, .saves = 1, .changed = 60}, kOneTable);
  Manifest manifest = read_manifest("/ck", files);
  // A second save in which all rows are linked, and then written: those in memory hold.
  const Saved more = run(files,
                         {.ranks = 1,
                          .saves = 1,
                          .resume = find_checkpoint("/ck", files),
                          .share = 0.0,
                          .changed = 60},
                         kOneTable);
  manifest = read_manifest("/ck", files);
  ASSERT_EQ(manifest.segments.size(), 1U);
  std::vector<SegmentFile>& set = manifest.segments.front().files;
  ASSERT_GE(set.size(), 2U);
  EXPECT_NE(set.front().key, 0U);
  EXPECT_EQ(set.back().key, 0U);
  const auto wrong = [&] {
    MemoryRows rows(kOneTable[0], {.rows = {0, 2000}, .cols = {0, 24}, .sparse = true});
    const std::vector<RowTarget> targets = {
        {&rows, 0, {0, 2000}, {{0, 0, {0, 24}}, {1, 1, {0, 1}}}}};
    WorkProgress progress;
    fill_rows({files, manifest, find_checkpoint("/ck", files)}, targets, progress);
    return rows.differences(more.at.at(2));
  };
  EXPECT_EQ(wrong(), 0);
  EXPECT_EQ(find_row_fault(manifest), "");
  std::reverse(set.begin(), set.end());
  EXPECT_GT(wrong(), 0);
  EXPECT_NE(find_row_fault(manifest).find("order of their numbers"), std::string::npos);
}

/// A row in a file costs no bytes but a name; any other row is written as it was before.
TEST(LinkedRows, NoRowOfAFileIsReadOrWritten) {
  FaultyFileSystem files;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    FileStore store(files, "/store");
    MemoryRows rows(kOneTable[0], {.rows = {0, 2000}, .cols = {0, 24}, .sparse = true});
    rows.use_store(store);
    Increments increments{.rows = {&rows}};
    const StateSource* source = &rows;
    std::int64_t version = 0;
    std::int64_t read = 0;
    const auto save_changes = [&](std::int64_t changed, std::int64_t kept) {
      ++version;
      for (std::int64_t row = 0; row < changed; ++row) {
        rows.update(row, static_cast<int>(version));
      }
      rows.write_back([&](std::int64_t row) { return row >= kept; });
      SaveOptions options = save_options("/ck", version);
      options.files = &files;
      options.increments = &increments;
      save(world, ctx, options, std::span(&source, 1));
      read = rows.rows_read() - read;
      EXPECT_EQ(read, std::min(changed, kept));
      read = rows.rows_read();
      return increments.saved;
    };
    SavedRows saved = save_changes(2000, 20);
    EXPECT_EQ(saved.linked_files, 1);
    EXPECT_GT(saved.linked_bytes, 1980 * 100);
    EXPECT_LT(saved.written_bytes, 20 * 108 + 6 * 4096);
    // An increment links what has come since, and writes what has changed since.
    saved = save_changes(100, 10);
    EXPECT_EQ(saved.linked_files, 1);
    EXPECT_LT(saved.linked_bytes, 90 * 108 + 6 * 4096);
    // Rows that stay in memory as they were are in the one before.
    saved = save_changes(0, 2000);
    EXPECT_EQ(saved.linked_files + saved.written_files, 0);
    // The bytes that a checkpoint names decide when it has all rows: three files of half the rows.
    for (const std::int64_t sets : {3, 1}) {
      save_changes(1000, 0);
      EXPECT_EQ(std::ssize(read_manifest("/ck", files).segments), sets);
    }
  });
}

TEST(LinkedRows, AreCopiedWhereTheFileSystemDoesNotLinkThem) {
  for (const bool in_background : {false, true}) {
    for (const int refusal : {EXDEV, EPERM, EMLINK, EOPNOTSUPP}) {
      FaultyFileSystem files;
      std::atomic<int> links = 0;
      files.set_hook([&](const io::Call& call) {
        // On two disks, one may be the checkpoint's.
        const bool refuses = call.kind == CallKind::kLink && (links++ % 2 == 0 || refusal == EXDEV);
        return refuses ? Verdict{Verdict::What::kFail, refusal} : Verdict{};
      });
      LinkingJob job{.ranks = 1, .saves = 4};
      job.in_background = in_background;
      const Saved saved = run(files, job, small_tables());
      EXPECT_GT(links, 2);
      EXPECT_GT(saved.rows.copied_files, 0);
      EXPECT_EQ(refusal == EXDEV, saved.rows.linked_files == 0);
      EXPECT_EQ(differences_in(files, saved, small_tables()), 0);
    }
  }
  // The control: what is no refusal is an error.
  FaultyFileSystem files;
  files.set_hook([](const io::Call& call) {
    return call.kind == CallKind::kLink ? Verdict{Verdict::What::kFail, ENOSPC} : Verdict{};
  });
  EXPECT_TRUE(says(checkpoint_error([&] { run(files, {.ranks = 1, .saves = 4}, small_tables()); }),
                   {"cannot link '/store/", "' to '/ck/rows/", "No space left"}));
}

/// A store that keeps other rows too, or a save without links: rows are read and written as ever.
TEST(LinkedRows, FilesWithRowsOfOthersAreNotLinked) {
  FaultyFileSystem files;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    FileStore store(files, "/store");
    MemoryRows rows(kOneTable[0], {.rows = {0, 2000}, .cols = {0, 24}, .sparse = true});
    rows.use_store(store);
    Table table = kOneTable[0];
    table.name = "rows.b";
    MemoryRows copy(table, {.rows = {0, 2000}, .cols = {0, 24}, .first_holder = false});
    copy.use_store(store);
    Increments increments{.rows = {&rows, &copy}};
    const StateSource* source = &rows;
    Versions versions;
    for (int step = 1; step <= 3; ++step) {
      for (std::int64_t row = step; row < 2000; row += 3) {
        versions[{"rows.a", row}] = step;
        rows.update(row, step);
        copy.update(row, step);
      }
      rows.write_back([](std::int64_t row) { return row % 2 == 0; });
      copy.write_back([](std::int64_t) { return true; });
      SaveOptions options = save_options("/ck", step);
      options.files = &files;
      options.increments = &increments;
      save(world, ctx, options, std::span(&source, 1));
      EXPECT_EQ(increments.saved.linked_files + increments.saved.copied_files, 0);
      EXPECT_EQ(differences_in(files, "/ck", versions, kOneTable, 7, 2, Holding::kSparse), 0);
    }
  });
}

TEST(LinkedRows, DamageAndForeignFilesAreFoundByName) {
  FaultyFileSystem files;
  run(files, {.ranks = 1, .saves = 2, .changed = 60}, kOneTable);
  const std::string path = find_checkpoint("/ck", files);
  const Manifest manifest = read_manifest(path, files);
  const Versions any;
  const auto error = [&] {
    return checkpoint_error(
        [&] { differences_in(files, path, any, kOneTable, 1, 1, Holding::kSparse); });
  };
  ASSERT_EQ(error(), "NO ERROR");
  int linked = 0;
  std::string before;  // the bytes of another linked file
  for (std::size_t s = 0; s < manifest.segments.size(); ++s) {
    const SegmentSet& set = manifest.segments[s];
    for (const SegmentFile& file : set.files) {
      if (file.key == 0) {
        continue;
      }
      ++linked;
      const std::string name = "/ck/rows/" + segment_name(set.prefix, file);
      std::string bytes;
      ASSERT_FALSE(io::read_file(files, name, 1 << 24, bytes));
      for (std::size_t i = 20; i < bytes.size(); i += 1499) {
        std::string bad = bytes;
        bad[i] = static_cast<char>(bad[i] ^ 4);
        ASSERT_FALSE(io::write_file(files, name, bad));
        ASSERT_TRUE(says(error(), {"'" + name + "'"})) << "byte " << i;
      }
      // A file of the same store, of the size that it should have or not.
      if (!before.empty()) {
        ASSERT_FALSE(io::write_file(files, name, before));
        EXPECT_TRUE(says(error(), {"'" + name + "'"}));
      }
      before = bytes;
      // One of another job's store, with the same rows.
      FaultyFileSystem others;
      run(others, {.ranks = 1, .saves = 2, .changed = 60}, kOneTable);
      const Manifest theirs = read_manifest("/ck", others);
      std::string foreign;
      ASSERT_FALSE(io::read_file(
          others, "/ck/rows/" + segment_name(theirs.segments[s].prefix, file), 1 << 24, foreign));
      ASSERT_EQ(foreign.size(), bytes.size());
      ASSERT_FALSE(io::write_file(files, name, foreign));
      EXPECT_TRUE(says(error(), {"'" + name + "' was written under another name"}));
      ASSERT_FALSE(files.remove(name));
      EXPECT_TRUE(says(error(), {"cannot open '" + name + "': it is missing"}));
      ASSERT_FALSE(io::write_file(files, name, bytes));
      EXPECT_EQ(error(), "NO ERROR");
    }
  }
  EXPECT_GE(linked, 2);
}

/// Whatever is wrong with the text of a linked file is found; a manifest without any is as before.
TEST(LinkedRows, OfAManifestHaveTheirKeys) {
  FaultyFileSystem files;
  run(files, {.ranks = 1, .saves = 1}, kOneTable);
  const Manifest manifest = read_manifest("/ck", files);
  const std::string text = manifest_to_json(manifest);
  EXPECT_EQ(manifest_from_json(text, "m").segments, manifest.segments);
  const SegmentFile& file = manifest.segments[0].files[0];
  const std::string entry =
      fmt::format("{} {} {} {:016x}", file.rank, file.number, file.bytes, file.key);
  EXPECT_NE(text.find(entry), std::string::npos) << text;
  // Nothing else of the text has changed: its other entries have three numbers.
  EXPECT_NE(text.find(fmt::format("\"0 1 {}\"", manifest.segments[0].files[1].bytes)),
            std::string::npos);
}

/// Old links go as other segments do.
TEST(LinkedRows, GoWhenNoManifestNamesThem) {
  FaultyFileSystem files;
  LinkingJob job{.ranks = 1, .saves = 3, .share = 0.0};
  run(files, job, kOneTable);
  EXPECT_GT(files.list("/ck/rows").names.size(), 6U);
  FaultyFileSystem kept;
  job.keep = 1;
  const Saved saved = run(kept, job, kOneTable);
  const Manifest newest = read_manifest("/ck", kept);
  EXPECT_EQ(kept.list("/ck/rows").names.size(), newest.segments[0].files.size());
  EXPECT_EQ(differences_in(kept, "/ck", saved.at.at(3), kOneTable, 5, 2, Holding::kDense), 0);
}

}  // namespace
}  // namespace weft::checkpoint
