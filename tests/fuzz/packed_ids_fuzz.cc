// Any bytes as packed ids, and any ids packed: the plain loops agree, nothing is read or written
// beside them, and what was packed comes back.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "weft/kernels/packed_ids.h"

namespace {

using weft::kernels::kPackedIdSlack;
using weft::kernels::most_packed_bytes;

/// Bytes of an id, count, bits of the limit; then the bytes.
constexpr std::size_t kHeader = 4;

void check(bool holds) {
  if (!holds) {
    __builtin_trap();
  }
}

void unpack(const std::vector<std::byte>& bytes,
            std::int64_t id_bytes,
            std::int64_t limit,
            std::size_t count) {
  std::vector<std::int64_t> ids(count);
  std::vector<std::int64_t> plain(count);
  const std::int64_t read = weft::kernels::unpack_ids(bytes, id_bytes, limit, ids);
  check(weft::kernels::reference::unpack_ids(bytes, id_bytes, limit, plain) == read);
  check(read <= static_cast<std::int64_t>(bytes.size()));
  if (read >= 0) {
    check(ids == plain && std::is_sorted(ids.begin(), ids.end()));
    check(ids.empty() || (ids.front() >= 0 && ids.back() < limit));
  }
}

void pack(const std::vector<std::byte>& bytes, std::int64_t id_bytes) {
  std::vector<std::int64_t> ids(bytes.size() / 8);
  std::copy_n(bytes.begin(), 8 * ids.size(), reinterpret_cast<std::byte*>(ids.data()));
  const std::uint64_t mask = id_bytes == 8 ? std::numeric_limits<std::int64_t>::max()
                                           : (std::uint64_t{1} << (8 * id_bytes)) - 1;
  for (std::int64_t& id : ids) {
    id = static_cast<std::int64_t>(static_cast<std::uint64_t>(id) & mask);
  }
  std::sort(ids.begin(), ids.end());
  const auto most = most_packed_bytes(static_cast<std::int64_t>(ids.size()), id_bytes);
  std::vector<std::byte> packed(static_cast<std::size_t>(most + kPackedIdSlack));
  std::vector<std::byte> plain(static_cast<std::size_t>(most));
  const std::int64_t size = weft::kernels::pack_ids(ids, id_bytes, packed.data());
  check(weft::kernels::reference::pack_ids(ids, id_bytes, plain.data()) == size && size <= most);
  packed.resize(static_cast<std::size_t>(size));
  packed.shrink_to_fit();
  check(std::equal(packed.begin(), packed.end(), plain.begin()));
  std::vector<std::int64_t> back(ids.size());
  check(weft::kernels::unpack_ids(packed, id_bytes, std::numeric_limits<std::int64_t>::max(),
                                  back) == size ||
        ids.back() == std::numeric_limits<std::int64_t>::max());
  check(ids.empty() || ids.back() == std::numeric_limits<std::int64_t>::max() || back == ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHeader) {
    return 0;
  }
  const std::int64_t id_bytes = std::int64_t{1} << data[0] % 4;
  const std::size_t count = data[1] + 256U * (data[2] % 4);
  const std::int64_t limit = std::int64_t{1} << data[3] % 63;
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(first + kHeader, first + size);
  unpack(bytes, id_bytes, limit, count);
  pack(bytes, id_bytes);
  return 0;
}
