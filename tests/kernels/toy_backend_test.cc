// Half a backend: a device of kind cuda, three operations of it that are defined here by the plain
// loops, and the stubs of the library for the rest. What a CUDA backend has to do first works: it
// builds, its operations pass their parity lists, and a shard of a table says what is missing.

#include <atomic>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/kernels/assemble_bags_parity.h"
#include "tests/kernels/embedding_bag_parity.h"
#include "tests/kernels/initial_values_parity.h"
#include "tests/kernels/toy_device.h"
#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"

namespace weft::kernels {

namespace {

// Calls of the operations: that a list passes says nothing where something else ran.
std::atomic<int> toy_lookups = 0;
std::atomic<int> toy_initials = 0;
std::atomic<int> toy_assemblies = 0;

}  // namespace

void cuda::embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  ++toy_lookups;
  reference::embedding_bag(ctx, lookups);
}

void cuda::set_initial_rows(Context& ctx, std::span<const InitialRows> jobs) {
  ++toy_initials;
  reference::set_initial_rows(ctx, jobs);
}

void cuda::assemble_bags(Context& ctx, std::span<const BagAssembly> jobs) {
  ++toy_assemblies;
  reference::assemble_bags(ctx, jobs);
}

namespace test {
namespace {

TEST(ToyBackend, ItsOperationsPassTheirParityLists) {
  weft::test::ToyDevice device(2);
  toy_lookups = 0;
  expect_embedding_bag_parity(device);
  EXPECT_GT(toy_lookups, 0);
  toy_initials = 0;
  expect_initial_values_parity(device);
  expect_listed_rows_parity(device);
  EXPECT_GT(toy_initials, 0);
  toy_assemblies = 0;
  expect_assemble_bags_parity(device);
  EXPECT_GT(toy_assemblies, 0);
}

/// Runs body on the device; returns the message of what it throws.
std::string message_of(Device& device, const std::function<void(Context&)>& body) {
  try {
    run_on(device, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "nothing thrown";
}

/// A step of a table: its first values and its lookup run, and the next operation is named.
TEST(ToyBackend, AStepNamesTheFirstMissingOperation) {
  weft::test::ToyDevice device(2);
  spec::Table table;
  table.name = "t";
  table.num_embeddings = 10;
  table.embedding_dim = 16;
  embedding::TableShard shard(device, table, {0, 10}, {0, 16}, 1, {});
  embedding::RowGradients gradients(device, shard);
  const std::int64_t ids[] = {4, 7};
  const std::int64_t offsets[] = {0, 2};
  const std::int32_t parts[] = {0};
  float out[16] = {};
  run_on(device, [&](Context& ctx) {
    const BagLookup lookup =
        shard.lookup({.bags = {ids, offsets, nullptr, 1}, .out = out, .out_stride = 16});
    embedding_bag(ctx, std::span(&lookup, 1));
  });
  EXPECT_NE(out[3], 0.0F);
  const GradientBlock block{
      .bags = {ids, offsets, nullptr, 1}, .grads = out, .grad_stride = 16, .parts = parts};
  const std::string message = message_of(device, [&](Context& ctx) {
    gradients.coalesce(ctx, std::span(&block, 1));
    shard.update(ctx, gradients, {});
  });
  EXPECT_NE(message.find("operation 'coalesce' is not there for device cuda"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace test
}  // namespace weft::kernels
