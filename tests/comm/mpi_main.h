// main() of a test program in which every process is a rank.
#pragma once

#include <cstdio>
#include <exception>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/mpi/mpi.h"

namespace weft::comm::testing {

/// The world of this process; set while tests run.
inline Communicator*& world() {
  static Communicator* world = nullptr;
  return world;
}

/// Runs all tests on every rank. Messages are short, so that small data travels in many pieces.
/// `hosts`: where the ranks pretend to be.
inline int run_all_tests(int argc, char** argv, const std::vector<int>& hosts = {}) {
  ::testing::InitGoogleTest(&argc, argv);
  int status = 1;
  try {
    MpiSession session({.timeout_s = 60.0, .max_message_bytes = 10000, .hosts = hosts});
    session.run([&](Communicator& own) {
      world() = &own;
      status = RUN_ALL_TESTS();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return status;
}

}  // namespace weft::comm::testing
