/// The `local` backend: ranks are threads of one process.
///
/// Ranks post pointers on a board that the group shares and copy straight from each other's
/// buffers: every byte is moved once. Waits block on a condition variable, never spin.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/activity.h"
#include "weft/comm/communicator.h"

namespace weft::comm {

/// Called when ranks have not come to the end in time after an error: their threads are stuck
/// outside of Weft, in a disk that does not answer for instance. Says the world's error, these
/// ranks, and the seconds that were waited.
using GiveUp = std::function<void(const Error& error, std::span<const int> ranks, double seconds)>;

/// Options of run_local.
struct LocalOptions {
  double timeout_s = 300.0;          ///< how long a collective waits for its peers
  double shutdown_timeout_s = 30.0;  ///< how long the end waits for the others after an error; at
                                     ///< most twice timeout_s
  GiveUp give_up = nullptr;          ///< optional; a program ends its process here
  std::shared_ptr<ActivityLog> activity =
      nullptr;                  ///< optional: what the ranks are doing, for others to read
  std::vector<int> hosts = {};  ///< [ranks] as if ranks of other numbers were on other hosts
};

/// Runs `body` on `ranks` threads, each with its communicator of the group "world", and returns
/// when all have ended. When a body throws, all waits of the other ranks throw the same error, and
/// it is rethrown here: an Error with its code, message and origin_rank; another exception becomes
/// Error(kInternal) with its text. A rank that returns while others wait for it ends the world with
/// Error(kComm). A thread cannot be taken away: a rank that never ends after an error keeps
/// run_local waiting, unless options.give_up does not return.
void run_local(int ranks,
               const LocalOptions& options,
               const std::function<void(Communicator& world)>& body);

}  // namespace weft::comm
