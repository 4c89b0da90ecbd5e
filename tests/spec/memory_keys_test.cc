// What memory.tier of a table goes with.
#include <string>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

/// The message of a configuration with more keys of all tables, and more sections.
std::string error_with(const std::string& of_tables, const std::string& sections) {
  try {
    parse_config(changed("embedding_dim: 8\n",
                         "embedding_dim: 8\n    " + of_tables + "\n" + sections + "\n"),
                 "test.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MemoryKeys, RowsNotInMemoryGoWithAllMeshesAndCodecsOfSyncs) {
  for (const std::string tier : {"lazy", "ssd, cache_bytes: 100000"}) {
    const std::string memory = "memory: {tier: " + tier + "}";
    const std::string folder = "tiers: {directories: [rows]}\n";
    for (const std::string sync : {"dense", "touched", "gradients", "auto"}) {
      EXPECT_EQ(error_with(memory, folder + "mesh: {groups: 2, sync: " + sync + "}"), "no error");
    }
    EXPECT_EQ(error_with(memory, folder + "mesh: {groups: 0}"), "no error");
    EXPECT_EQ(error_with(memory, folder + "mesh: {groups: 2}\ncodecs: {sync: int8}"), "no error");
  }
}

TEST(MemoryKeys, GoWithDataParallelTables) {
  EXPECT_EQ(error_with("sharding: data_parallel\n    memory: {tier: lazy}", ""), "no error");
}

}  // namespace
}  // namespace weft::spec
