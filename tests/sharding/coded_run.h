// Jobs of sparse_run.h whose vectors and gradients travel encoded.
#pragma once

#include <string>

#include "tests/sharding/sparse_run.h"

namespace weft::sharding {

inline spec::Config coded(spec::Config config, CodecFormat forward, CodecFormat backward) {
  config.codecs = {.forward = forward, .backward = backward, .group_size = 16};
  return config;
}

inline spec::Config adagrad_job(spec::Sharding sharding) {
  return make_config(sharding, make_optimizer(SparseOptimizerKind::kRowWiseAdagrad));
}

inline std::string format_name(CodecFormat format) {
  return std::string(to_string(format));
}

}  // namespace weft::sharding
