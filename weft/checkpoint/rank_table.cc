#include "weft/checkpoint/rank_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"

namespace weft::checkpoint {
namespace {

void put_block(ByteWriter& out, const StoredBlock& block) {
  for (const std::int64_t value :
       {block.offset, block.row_begin, block.row_end, block.col_begin, block.col_end,
        block.chunk_rows, block.row_step, static_cast<std::int64_t>(block.checksums.size())}) {
    out.put(value);
  }
  for (const std::uint64_t checksum : block.checksums) {
    out.put(checksum);
  }
}

StoredBlock take_block(ByteReader& in) {
  StoredBlock block;
  std::int64_t checksums = 0;
  for (std::int64_t* value : {&block.offset, &block.row_begin, &block.row_end, &block.col_begin,
                              &block.col_end, &block.chunk_rows, &block.row_step, &checksums}) {
    *value = in.take<std::int64_t>();
  }
  for (std::int64_t i = 0; i < checksums; ++i) {
    block.checksums.push_back(in.take<std::uint64_t>());
  }
  return block;
}

void put_item(ByteWriter& out, const StoredItem& item) {
  out.put(item.parameter);
  out.put(item.kind);
  out.put(item.dtype);
  out.put(item.rows);
  out.put(item.cols);
  out.put(item.blocks.size());
  for (const StoredBlock& block : item.blocks) {
    put_block(out, block);
  }
}

StoredItem take_item(ByteReader& in) {
  StoredItem item;
  item.parameter = in.take<std::string>();
  item.kind = in.take<std::string>();
  item.dtype = in.take<DType>();
  item.rows = in.take<std::int64_t>();
  item.cols = in.take<std::int64_t>();
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    item.blocks.push_back(take_block(in));
  }
  return item;
}

void put_table(ByteWriter& out, const StoredTable& table) {
  out.put(table.parameter);
  out.put(table.ids);
  out.put(table.rows);
  out.put(table.initial.rule);
  out.put(table.initial.key);
  out.put(table.initial.scale);
  out.put(table.initial.accumulator);
  out.put(table.items.size());
  for (const RowItem& item : table.items) {
    out.put(item.kind);
    out.put(item.dtype);
    out.put(item.cols);
  }
  const RowStream& stream = table.streams.front();
  out.put(stream.cols.begin);
  out.put(stream.cols.end);
  out.put(stream.dtype);
}

StoredTable take_table(ByteReader& in) {
  StoredTable table;
  table.parameter = in.take<std::string>();
  table.ids = in.take<RowIds>();
  table.rows = in.take<std::int64_t>();
  table.initial.rule = in.take<std::string>();
  table.initial.key = in.take<std::uint64_t>();
  table.initial.scale = in.take<float>();
  table.initial.accumulator = in.take<float>();
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    RowItem& item = table.items.emplace_back();
    item.kind = in.take<std::string>();
    item.dtype = in.take<DType>();
    item.cols = in.take<std::int64_t>();
  }
  RowStream& stream = table.streams.emplace_back();
  stream.cols.begin = in.take<std::int64_t>();
  stream.cols.end = in.take<std::int64_t>();
  stream.dtype = in.take<DType>();
  return table;
}

/// Makes one manifest of the tables of ranks.
class Merger {
 public:
  explicit Merger(const MergeOptions& options) : options_(options) {
    all_.metadata = options.metadata;
    if (options.parent) {
      all_.tables = options.parent->tables;
      all_.layouts = options.parent->layouts;
      all_.segments = options.parent->segments;
    }
    for (std::size_t t = 0; t < all_.tables.size(); ++t) {
      tables_[table_key(all_.tables[t])] = t;
    }
    set_.prefix = options.prefix;
  }

  void add(std::int64_t rank, RankTable table) {
    for (const StoredTable& one : table.tables) {
      add_stream(one);
    }
    if (table.file_bytes > 0) {
      all_.files.push_back({data_file_name(rank), table.file_bytes});
    }
    for (StoredItem& item : table.items) {
      add_item(std::move(item));
    }
    for (const RankRows& rows : table.rows) {
      shards_.push_back({rank, rows});
    }
    set_.rows += table.segment_rows;
    set_.files.insert(set_.files.end(), table.segments.begin(), table.segments.end());
  }

  Manifest finish() {
    if (!options_.prefix.empty()) {
      add_layout();
      if (!options_.parent) {
        find_whole_tables();
      }
      if (!options_.parent || !set_.files.empty()) {
        all_.segments.push_back(std::move(set_));
      }
    }
    return std::move(all_);
  }

 private:
  struct Shard {
    std::int64_t rank = 0;
    RankRows rows;
  };

  void add_item(StoredItem item) {
    const auto file = static_cast<std::int64_t>(all_.files.size()) - 1;
    for (StoredBlock& block : item.blocks) {
      block.file = file;
    }
    const auto [place, is_new] = items_.try_emplace({item.parameter, item.kind}, all_.items.size());
    if (is_new) {
      all_.items.push_back(std::move(item));
      return;
    }
    StoredItem& whole = all_.items[place->second];
    if (whole.dtype != item.dtype || whole.rows != item.rows || whole.cols != item.cols) {
      fail(ErrorCode::kCheckpoint, "cannot save {}: ranks disagree, {} x {} {} and {} x {} {}",
           item_name(item.parameter, item.kind), whole.rows, whole.cols, to_string(whole.dtype),
           item.rows, item.cols, to_string(item.dtype));
    }
    whole.blocks.insert(whole.blocks.end(), item.blocks.begin(), item.blocks.end());
  }

  void add_stream(const StoredTable& one) {
    const RowStream& stream = one.streams.front();
    const auto [place, is_new] = tables_.try_emplace(table_key(one), all_.tables.size());
    if (is_new) {
      all_.tables.push_back(one);
      return;
    }
    std::vector<RowStream>& streams = all_.tables[place->second].streams;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  }

  /// Index of table and stream, by key.
  [[nodiscard]] std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> places() const {
    std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> out;
    for (std::size_t t = 0; t < all_.tables.size(); ++t) {
      const StoredTable& table = all_.tables[t];
      for (std::size_t s = 0; s < table.streams.size(); ++s) {
        out[stream_key(table, table.streams[s])] = {t, s};
      }
    }
    return out;
  }

  void add_layout() {
    const auto known = places();
    std::map<std::size_t, std::vector<RankBlock>> blocks;  // by table
    for (const Shard& shard : shards_) {
      const auto found = known.find(shard.rows.key);
      if (found == known.end()) {
        fail(ErrorCode::kInternal,
             "cannot save a checkpoint: rank {} holds rows [{}, {}) of a table of which no rank "
             "holds row 0; this is a bug, please report it",
             shard.rank, shard.rows.rows.begin, shard.rows.rows.end);
      }
      const auto [t, s] = found->second;
      blocks[t].push_back({shard.rank, shard.rows.rows, all_.tables[t].streams[s].cols});
      written_[found->second] += shard.rows.written;
    }
    RowLayout layout;
    for (auto& [t, list] : blocks) {
      for (const CutRule& rule : rules_of(std::move(list))) {
        layout.push_back({static_cast<std::int64_t>(t), stream_of(t, rule.cols), rule});
      }
    }
    const auto found = std::find(all_.layouts.begin(), all_.layouts.end(), layout);
    set_.layout = found - all_.layouts.begin();
    if (found == all_.layouts.end()) {
      all_.layouts.push_back(std::move(layout));
    }
  }

  /// Of this save's streams the one with these columns.
  [[nodiscard]] std::int64_t stream_of(std::size_t table, Range cols) const {
    const std::vector<RowStream>& streams = all_.tables[table].streams;
    std::size_t s = 0;
    while (s < streams.size() && !(streams[s].cols == cols && written_.contains({table, s}))) {
      ++s;
    }
    WEFT_CHECK(s < streams.size(), "no stream has columns [{}, {})", cols.begin, cols.end);
    return static_cast<std::int64_t>(s);
  }

  void find_whole_tables() {
    for (std::size_t t = 0; t < all_.tables.size(); ++t) {
      StoredTable& table = all_.tables[t];
      table.has_all_rows = true;
      for (std::size_t s = 0; s < table.streams.size(); ++s) {
        table.has_all_rows = table.has_all_rows && written_[{t, s}] == table.rows;
      }
    }
  }

  const MergeOptions& options_;
  Manifest all_;
  SegmentSet set_;
  std::map<std::pair<std::string, std::string>, std::size_t> items_;
  std::map<std::uint64_t, std::size_t> tables_;  ///< by table_key()
  std::vector<Shard> shards_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> written_;  ///< by table and stream
};

}  // namespace

std::string data_file_name(std::int64_t rank) {
  return fmt::format("rank-{:04}.bin", rank);
}

std::string RankTable::encode() const {
  ByteWriter out;
  out.put(file_bytes);
  out.put(items.size());
  for (const StoredItem& item : items) {
    put_item(out, item);
  }
  out.put(tables.size());
  for (const StoredTable& table : tables) {
    put_table(out, table);
  }
  out.put(rows.size());
  for (const RankRows& one : rows) {
    out.put(one.key);
    out.put(one.rows.begin);
    out.put(one.rows.end);
    out.put(one.rows.step);
    out.put(one.written);
  }
  out.put(segments.size());
  for (const SegmentFile& file : segments) {
    out.put(file.rank);
    out.put(file.number);
    out.put(file.bytes);
    out.put(file.key);
  }
  out.put(segment_rows);
  return out.bytes();
}

RankTable RankTable::decode(std::string_view bytes) {
  ByteReader in(bytes);
  RankTable table;
  table.file_bytes = in.take<std::int64_t>();
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    table.items.push_back(take_item(in));
  }
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    table.tables.push_back(take_table(in));
  }
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    RankRows& one = table.rows.emplace_back();
    one.key = in.take<std::uint64_t>();
    one.rows.begin = in.take<std::int64_t>();
    one.rows.end = in.take<std::int64_t>();
    one.rows.step = in.take<std::int64_t>();
    one.written = in.take<std::int64_t>();
  }
  for (auto left = in.take<std::size_t>(); left > 0; --left) {
    SegmentFile& file = table.segments.emplace_back();
    file.rank = in.take<std::int64_t>();
    file.number = in.take<std::int64_t>();
    file.bytes = in.take<std::int64_t>();
    file.key = in.take<std::uint64_t>();
  }
  table.segment_rows = in.take<std::int64_t>();
  WEFT_CHECK(in.is_at_end(), "a message of a rank is too long");
  return table;
}

Manifest merge(const MergeOptions& options, const Gathered& tables) {
  Merger merger(options);
  std::string_view left(reinterpret_cast<const char*>(tables.bytes.data()), tables.bytes.size());
  for (std::size_t r = 0; r < tables.counts.size(); ++r) {
    merger.add(static_cast<std::int64_t>(r),
               RankTable::decode(left.substr(0, at(tables.counts[r]))));
    left.remove_prefix(at(tables.counts[r]));
  }
  return merger.finish();
}

}  // namespace weft::checkpoint
