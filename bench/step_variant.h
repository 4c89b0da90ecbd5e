/// The configurations that a step benchmark compares, and the data they read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::bench {

struct Variant {
  std::string label;
  spec::Config config;
  spec::Plan plan;
};

struct VariantOptions {
  std::string config;                  ///< a file; its data is synthetic
  std::vector<std::string> overrides;  ///< "PATH=VALUE", of all variants
  std::string text;                    ///< "LABEL:PATH=VALUE,PATH=VALUE"
};

/// Throws Error(kUsage) or Error(kConfig) naming what cannot be read.
Variant make_variant(const VariantOptions& options, std::int64_t ranks);

/// Writes the variant's generated log into `folder`, under a name that says what it depends on,
/// where it is not there yet; returns its path.
std::string generate_data(const std::string& folder, const Variant& variant);

/// Bytes of all tables and their optimizer state.
std::int64_t table_bytes(const spec::Config& config);

/// Bytes that processes can still have; 0 where the system does not say.
std::int64_t available_memory();

}  // namespace weft::bench
