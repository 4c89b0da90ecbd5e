// Encoded syncs by hand; bytes and copies against the objects:
// tests/sharding/replica_codec_test.cc.
#include "weft/cost/replicas.h"

#include <gtest/gtest.h>

namespace weft::cost {
namespace {

spec::Table replicated_table(SparseOptimizerKind kind, spec::RowDType dtype) {
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
    return coded_row_bytes(replicated_table(kind, spec::RowDType::kBf16), 40, codecs);
  };
  // 40 columns in groups of 16, 16 and 8, each with 2 bytes of scale; one number with its own.
  EXPECT_EQ(bytes(Kind::kSgd), 46.0);
  EXPECT_EQ(bytes(Kind::kRowWiseAdagrad), 46.0 + 3.0);
  EXPECT_EQ(bytes(Kind::kAdagrad), 2 * 46.0);
  EXPECT_EQ(bytes(Kind::kRowWiseAdam), 2 * 46.0 + 3.0);
  EXPECT_EQ(bytes(Kind::kAdam), 3 * 46.0);
}

TEST(ReplicaSync, RowsTravelWithTheirState) {
  using Kind = SparseOptimizerKind;
  EXPECT_EQ(replica_row_bytes(replicated_table(Kind::kSgd, spec::RowDType::kFp32), 40), 160.0);
  const spec::Table adam = replicated_table(Kind::kAdam, spec::RowDType::kFp32);
  EXPECT_EQ(sync_row_bytes(adam, 40, {}), replica_row_bytes(adam, 40));
  EXPECT_EQ(replica_row_bytes(replicated_table(Kind::kSgd, spec::RowDType::kSplitBf16), 40), 160.0);
  EXPECT_EQ(replica_row_bytes(replicated_table(Kind::kRowWiseAdam, spec::RowDType::kBf16), 40),
            80.0 + 160.0 + 4.0);
}

}  // namespace
}  // namespace weft::cost
