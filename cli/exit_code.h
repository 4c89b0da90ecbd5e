/// What the process returns. Scripts and schedulers rely on these numbers.
#pragma once

#include "weft/base/error.h"

namespace weft::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kBadUsage = 2,  ///< usage or configuration
  kBadData = 3,
  kBadComm = 4,
  kBadCheckpoint = 5,
  kStopped = 130,  ///< by a stop request, in order
};

inline int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kConfig:
      return kBadUsage;
    case ErrorCode::kData:
      return kBadData;
    case ErrorCode::kComm:
    case ErrorCode::kTimeout:
      return kBadComm;
    case ErrorCode::kCheckpoint:
    case ErrorCode::kLockLost:
      return kBadCheckpoint;
    case ErrorCode::kInternal:
    case ErrorCode::kNonFinite:
    case ErrorCode::kIo:
    case ErrorCode::kResource:
      return kFailed;
  }
  return kFailed;
}

}  // namespace weft::cli
