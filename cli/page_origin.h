/// Where a page of a report comes from, as it says at its end.
#pragma once

#include <string>

#include "weft/base/html_page.h"

namespace weft::cli {

/// Made now, by this program on this host, from `what`; `configuration` may be empty.
PageOrigin page_origin(std::string what, std::string configuration);

}  // namespace weft::cli
