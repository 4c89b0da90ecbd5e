// Encoded syncs by hand; bytes and copies against the objects:
// tests/sharding/replica_codec_test.cc.
#include "weft/cost/replicas.h"

#include <gtest/gtest.h>

namespace weft::cost {
namespace {

spec::Table table_of(SparseOptimizerKind kind, spec::RowDType dtype) {
  spec::Table table;
  table.num_embeddings = 100;
  table.embedding_dim = 40;
  table.dtype = dtype;
  table.optimizer.type = kind;
  return table;
}

TEST(CodedSync, RowsAndMatricesOfStateAreVectorsByThemselves) {
  using Kind = SparseOptimizerKind;
  const spec::Codecs codecs{.sync = CodecFormat::kInt8, .group_size = 16};
  const auto bytes = [&](Kind kind) {
    return coded_row_bytes(table_of(kind, spec::RowDType::kBf16), 40, codecs);
  };
  // 40 columns in groups of 16, 16 and 8, each with 2 bytes of scale; one number with its own.
  EXPECT_EQ(bytes(Kind::kSgd), 46.0);
  EXPECT_EQ(bytes(Kind::kRowWiseAdagrad), 46.0 + 3.0);
  EXPECT_EQ(bytes(Kind::kAdagrad), 2 * 46.0);
  EXPECT_EQ(bytes(Kind::kRowWiseAdam), 2 * 46.0 + 3.0);
  EXPECT_EQ(bytes(Kind::kAdam), 3 * 46.0);
}

TEST(CodedSync, KeepsTheLastValueAndWhatWasLost) {
  const spec::Table table = table_of(SparseOptimizerKind::kRowWiseAdagrad, spec::RowDType::kBf16);
  spec::Codecs codecs{.sync = CodecFormat::kInt8};
  EXPECT_EQ(coded_sync_memory(table, 100.0, 40, codecs), 100.0 * (2 * 40 + 4 + 4 * 41));
  codecs.error_feedback = false;
  EXPECT_EQ(coded_sync_memory(table, 100.0, 40, codecs), 100.0 * (2 * 40 + 4));
  codecs.sync = CodecFormat::kFp32;
  EXPECT_EQ(coded_sync_memory(table, 100.0, 40, codecs), 0.0);
  EXPECT_EQ(sync_row_bytes(table, 40, codecs), replica_row_bytes(table, 40));
}

TEST(ReplicaSync, RowsTravelWithTheirState) {
  using Kind = SparseOptimizerKind;
  EXPECT_EQ(replica_row_bytes(table_of(Kind::kSgd, spec::RowDType::kFp32), 40), 160.0);
  EXPECT_EQ(replica_row_bytes(table_of(Kind::kSgd, spec::RowDType::kSplitBf16), 40), 160.0);
  EXPECT_EQ(replica_row_bytes(table_of(Kind::kRowWiseAdam, spec::RowDType::kBf16), 40),
            80.0 + 160.0 + 4.0);
}

TEST(CodedSync, BuffersAreThoseOfARound) {
  const spec::Codecs codecs{.sync = CodecFormat::kInt8};
  EXPECT_EQ(coded_sync_buffers(4, 1000.0, 0.0, false, codecs), 1000.0);
  EXPECT_EQ(coded_sync_buffers(4, 1000.0, 10.0, true, codecs), 1750.0 + 50.0);
  EXPECT_EQ(coded_sync_buffers(2, 1e12, 0.0, true, codecs), 1.5 * 64 * 1024 * 1024);
  EXPECT_EQ(coded_sync_buffers(4, 1000.0, 10.0, true, {}), 0.0);
}

}  // namespace
}  // namespace weft::cost
