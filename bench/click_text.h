/// Text like Criteo's Kaggle log, made up: the same columns, missing rates, lengths of numbers and
/// cardinalities, the popularity of ids a Zipf law.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace weft::bench {

/// Distinct values of the 26 categorical columns of the Kaggle log, less those seen once or twice:
/// the table sizes of the published DLRM.
inline constexpr std::array<std::int64_t, 26> kKaggleRows = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

/// `lines` lines, the same for every call.
std::string click_text(std::int64_t lines);

}  // namespace weft::bench
