#include "cli/page_origin.h"

#include <array>
#include <ctime>
#include <utility>

#include <unistd.h>

namespace weft::cli {

PageOrigin page_origin(std::string what, std::string configuration) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &utc);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return {.made = date.data(),
          .program = "weft " WEFT_VERSION,
          .host = host.data(),
          .what = std::move(what),
          .configuration = std::move(configuration)};
}

}  // namespace weft::cli
