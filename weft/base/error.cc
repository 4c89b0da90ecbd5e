#include "weft/base/error.h"

namespace weft {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kData:
      return "data";
    case ErrorCode::kComm:
      return "comm";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCheckpoint:
      return "checkpoint";
    case ErrorCode::kLockLost:
      return "lock_lost";
    case ErrorCode::kNonFinite:
      return "non_finite";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kResource:
      return "resource";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, int origin_rank)
    : std::runtime_error(message), code_(code), origin_rank_(origin_rank) {
}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw Error(ErrorCode::kInternal,
              fmt::format("{}:{}: invariant '{}' does not hold{}{}; this is a bug in Weft", file,
                          line, expression, message.empty() ? "" : ": ", message));
}

}  // namespace weft
