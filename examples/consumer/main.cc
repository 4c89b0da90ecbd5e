// consumer JOB.yaml: trains the job on two ranks, which are threads of this process, with the same
// bits as `weft train JOB.yaml --ranks 2`.
#include <cstdio>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/spec/yaml.h"
#include "weft/train/job.h"

int main(int argc, char** argv) try {
  weft::train::JobOptions job;
  job.config = weft::spec::load_config(argc > 1 ? argv[1] : "job.yaml");
  weft::comm::run_local(2, {}, [&job](weft::comm::Communicator& world) {
    const weft::train::Summary summary = weft::train::run_train(world, job);
    if (world.rank() == 0) {
      fmt::print("NE {:.4f}, weights hash {:016x}\n", summary.lifetime_ne.front(),
                 summary.weights_hash);
    }
  });
} catch (const weft::Error& error) {
  fmt::print(stderr, "consumer: {}\n", error.what());
  return 1;
}
